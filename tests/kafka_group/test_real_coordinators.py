"""What becomes of members when the broker that coordinates them goes away."""

from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.testing.servers import Broker
from tests.helpers import until
from tests.kafka_group.real import Following, member, the_generation, until_divided


def coordinator_of(following: Following, cluster: KafkaCluster) -> Broker:
    address = following.coordinator.address
    return next(one for one in cluster.brokers.values() if one.address() == str(address))


async def test_a_coordinator_that_is_killed_costs_no_rebalance(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, group = await kafka_cluster.topic(partitions=4), kafka_cluster.group()
    servers = kafka_cluster.bootstrap_servers
    async with (
        member(servers, group, topic, session_timeout_ms=45_000) as one,
        member(servers, group, topic, session_timeout_ms=45_000) as two,
    ):
        await until_divided([one, two], {topic: 4})
        before = [list(one.history), list(two.history), the_generation(one), the_generation(two)]
        broker = coordinator_of(one, kafka_cluster)
        await broker.kill()
        deadlines = one.membership.deadline, two.membership.deadline
        for place, following in enumerate((one, two)):
            await until(lambda: following.membership.deadline > deadlines[place])  # noqa: B023
            assert coordinator_of(following, kafka_cluster) is not broker
        await broker.start()  # and has its old place back, sooner or later
        deadlines = one.membership.deadline, two.membership.deadline
        for place, following in enumerate((one, two)):
            await until(lambda: following.membership.deadline > deadlines[place])  # noqa: B023
        after = [list(one.history), list(two.history), the_generation(one), the_generation(two)]
        assert after == before
        await two.leave()
        await until(lambda: one.numbers == {0, 1, 2, 3})
        await one.leave()

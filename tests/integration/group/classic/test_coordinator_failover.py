"""Members whose coordinator fails."""

from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.testing.servers import Broker
from tests.support.helpers import until
from tests.support.real_classic_group import (
    ClassicMember,
    generation_of,
    open_member,
    until_divided,
)


def coordinator_of(following: ClassicMember, cluster: KafkaCluster) -> Broker:
    address = following.coordinator.address
    return next(broker for broker in cluster.brokers.values() if broker.address() == str(address))


async def test_killing_the_coordinator_causes_no_rebalance(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, group = await kafka_cluster.topic(partitions=4), kafka_cluster.group()
    servers = kafka_cluster.bootstrap_servers
    async with (
        open_member(servers, group, topic, session_timeout_ms=45_000) as member,
        open_member(servers, group, topic, session_timeout_ms=45_000) as two,
    ):
        await until_divided([member, two], {topic: 4})
        before = [
            list(member.history),
            list(two.history),
            generation_of(member),
            generation_of(two),
        ]
        broker = coordinator_of(member, kafka_cluster)
        await broker.kill()
        deadlines = member.membership.deadline, two.membership.deadline
        for place, following in enumerate((member, two)):
            await until(lambda: following.membership.deadline > deadlines[place])  # noqa: B023
            assert coordinator_of(following, kafka_cluster) is not broker
        await broker.start()  # it becomes the coordinator again later
        deadlines = member.membership.deadline, two.membership.deadline
        for place, following in enumerate((member, two)):
            await until(lambda: following.membership.deadline > deadlines[place])  # noqa: B023
        after = [
            list(member.history),
            list(two.history),
            generation_of(member),
            generation_of(two),
        ]
        assert after == before
        await two.leave()
        await until(lambda: member.numbers == {0, 1, 2, 3})
        await member.leave()

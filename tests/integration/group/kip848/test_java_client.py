"""Members of asyncconsumer and of the Java client in one KIP-848 group."""

from collections import Counter
from collections.abc import Iterable

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import JavaConsumer, JavaConsumers
from asyncconsumer.types import TopicPartition
from tests.support.connector_members import sending
from tests.support.helpers import until
from tests.support.kip848_readers import ReadingMember, reading

JAVA = {"group.protocol": "consumer"}


def divided(topic: str, count: int, *members: ReadingMember | JavaConsumer) -> bool:
    """Return whether each partition has one owner, and the counts differ by at most 1."""
    assignments = [set(member.owned) for member in members]
    everything = {TopicPartition(topic, number) for number in range(count)}
    sizes = [len(assignment) for assignment in assignments]
    together: set[TopicPartition] = set().union(*assignments)
    return together == everything and sum(sizes) == count and max(sizes) - min(sizes) <= 1


def received(*members: ReadingMember | JavaConsumer) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for member in members:
        if isinstance(member, ReadingMember):
            total += member.values
        else:
            total.update(record.value or b"" for record in member.records)
    return total


def twice(values: Counter[bytes]) -> set[bytes]:
    return {value for value, count in values.items() if count > 1}


async def test_rebalances_with_java_members_lose_no_record(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group, servers = await kafka.topic(partitions=6), kafka.group(), kafka.bootstrap_servers

    async def java(name: str) -> JavaConsumer:
        return await java_consumers.start(group, [topic], name=name, properties=JAVA)

    async def all_have(values: Iterable[bytes], *members: ReadingMember | JavaConsumer) -> None:
        await until(lambda: set(received(*members)) >= set(values))

    async with reading(servers, group, topic) as reader, sending(kafka, topic) as sent:
        await until(lambda: divided(topic, 6, reader) and len(reader.values) > 20)
        other = await java("a")
        await until(lambda: divided(topic, 6, reader, other))
        third = await java("b")
        async with reading(servers, group, topic) as two:
            await until(lambda: divided(topic, 6, reader, other, third, two))
            await until(lambda: bool(two.values))
            await third.stop()
            await until(lambda: divided(topic, 6, reader, other, two))
            await all_have(list(sent), reader, other, third, two)
            # members committed all partitions before they were revoked
            assert not twice(received(reader, other, third, two))
            await other.kill()
            await until(lambda: divided(topic, 6, reader, two))
        await until(lambda: divided(topic, 6, reader))
        await all_have(list(sent), reader, other, third, two)
    everybody = received(reader, other, third, two)
    assert set(everybody) >= set(sent)
    # only uncommitted records of the killed member were redelivered
    assert twice(everybody) <= {record.value for record in other.records}

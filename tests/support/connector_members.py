"""Members of ZooKeeper groups, of asyncconsumer and Scala, and the records that they received."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer

from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.environment import Environment
from asyncconsumer.group.zookeeper.assignors import GroupInfo, GroupMemberInfo, by_range
from asyncconsumer.group.zookeeper.filters import TopicFilter
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import ScalaConsumer
from tests.support.helpers import produce

T = TypeVar("T")


class OwnMember:
    """A connector in this process, and the values that it received."""

    def __init__(self, connector: ConsumerConnector) -> None:
        self.connector = connector
        self.values: Counter[bytes] = Counter()

    @property
    def id(self) -> str:
        assert self.connector.consumer_id is not None
        return self.connector.consumer_id

    async def read(self, stream: MessageStream[Any, Any]) -> None:
        async for record in stream:
            assert record.value is not None
            self.values[record.value] += 1


def connector_of(kafka: KafkaHandle, group: str, name: str, **options: Any) -> ConsumerConnector:
    """Return a connector with short intervals."""
    if isinstance(kafka, KafkaWithZooKeeper):
        options.setdefault("zookeeper_connect", kafka.zookeeper_connect)
    environment: Environment = options.pop("environment", Environment())
    return environment.run(
        ConsumerConnector,
        group_id=group,
        consumer_id=name,
        **{
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": 200,
            "rebalance_backoff_ms": 300,
            "rebalance_max_retries": 40,
            **options,
        },
    )


@asynccontextmanager
async def open_member(
    kafka: KafkaHandle,
    group: str,
    topics: dict[str, int] | TopicFilter,
    name: str,
    streams: int = 1,
    **options: Any,
) -> AsyncIterator[OwnMember]:
    connector = connector_of(kafka, group, name, **options)
    async with connector, asyncio.TaskGroup() as readers:
        tested = OwnMember(connector)
        if isinstance(topics, TopicFilter):
            opened: list[MessageStream[bytes, bytes]]
            opened = await connector.create_message_streams_by_filter(topics, streams)
        else:
            of_topics: dict[str, list[MessageStream[bytes, bytes]]]
            of_topics = await connector.create_message_streams(topics)
            opened = [stream for of_topic in of_topics.values() for stream in of_topic]
        for stream in opened:
            readers.create_task(tested.read(stream))
        yield tested
        await connector.shutdown()


def numbers(topic: str, count: int, start: int = 0) -> list[bytes]:
    return [f"{topic}-{n}".encode() for n in range(start, start + count)]


async def send(kafka: KafkaHandle, topic: str, count: int, start: int = 0) -> None:
    await produce(topic, numbers(topic, count, start), bootstrap_servers=kafka.bootstrap_servers)


@asynccontextmanager
async def sending(kafka: KafkaHandle, topic: str) -> AsyncIterator[list[bytes]]:
    """Send a few hundred records a second until the block ends. Yield the list of their values."""
    sent: list[bytes] = []
    leaving = asyncio.Event()

    async def produce() -> None:
        servers = kafka.bootstrap_servers
        async with AIOKafkaProducer(acks="all", bootstrap_servers=servers) as producer:
            while not leaving.is_set():
                (value,) = numbers(topic, 1, len(sent))
                await producer.send_and_wait(topic, value)
                sent.append(value)
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        yield sent
        leaving.set()


def received(*members: OwnMember | ScalaConsumer) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for member in members:
        if isinstance(member, OwnMember):
            total += member.values
        else:
            total.update(record.value or b"" for record in member.records)
    return total


def all_of(values: Iterable[bytes], *members: OwnMember | ScalaConsumer) -> bool:
    return set(received(*members)) >= set(values)


def expected_owners(
    topic: str, partitions: int, *threads: tuple[str, int], strategy: Any = by_range
) -> Any:
    members = [GroupMemberInfo(name, {topic: count}) for name, count in threads]
    return strategy(GroupInfo(members, {topic: range(partitions)}))


async def equal(read: Awaitable[T], expected: T) -> bool:
    return bool(await read == expected)

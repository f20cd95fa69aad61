"""Members of one group, of asyncconsumer and Java: their partitions and received records."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from asyncconsumer import Consumer, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import JavaChange, JavaConsumer
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer

if TYPE_CHECKING:
    from asyncconsumer.streams.messages import Message

Written = Mapping[TopicPartition, Mapping[int, bytes]]
"""The acknowledged values, by partition and offset."""

ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class OwnMember(ConsumerRebalanceListener):
    """A member in this process that reads inside its block and records its callbacks."""

    def __init__(
        self,
        kafka: KafkaHandle,
        group: str,
        *topics: str,
        name: str,
        strategy: str | Sequence[str] = "range",
        **options: Any,
    ) -> None:
        self.records: list[Message[bytes, bytes]] = []
        self.changes: list[JavaChange] = []
        self.consumer: Consumer = make_consumer(
            kafka,
            *topics,
            group_id=group,
            client_id=name,
            partition_assignment_strategy=strategy,
            listener=self,
            **options,
        )
        self._stack = AsyncExitStack()

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.changes.append(JavaChange("assigned", frozenset(partitions)))

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        self.changes.append(JavaChange("revoked", frozenset(partitions)))
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.changes.append(JavaChange("lost", frozenset(partitions)))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.consumer)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            reading = group.create_task(self._read())
            stack.callback(reading.cancel)
            await self.consumer.wait_assigned()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def stop(self) -> None:
        """Leave the group before the end of the block."""
        await self._stack.aclose()

    async def _read(self) -> None:
        async for record in self.consumer:
            self.records.append(record)


AnyMember = OwnMember | JavaConsumer


class Place(NamedTuple):
    """The position of a record."""

    partition: TopicPartition
    offset: int


def received(*members: AnyMember) -> Counter[Place]:
    """Return how often each record was delivered by all members."""
    return Counter(
        Place(TopicPartition(record.topic, record.partition), record.offset)
        for member in members
        for record in member.records
    )


def repeated(*members: AnyMember) -> dict[Place, int]:
    """Return the records that were delivered more than once."""
    return {place: count for place, count in received(*members).items() if count > 1}


def all_of(written: Written, *members: AnyMember) -> bool:
    """Return whether all acknowledged records were delivered."""
    places = {Place(tp, offset) for tp, offsets in written.items() for offset in offsets}
    return places <= received(*members).keys()


async def send(kafka: KafkaHandle, partitions: Collection[TopicPartition], count: int) -> Written:
    """Send this number of records to each partition, without pauses."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        sent = [
            (tp, await producer.send(tp.topic, b"x", partition=tp.partition))
            for _ in range(count)
            for tp in partitions
        ]
        written: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in partitions}
        for tp, reported in sent:
            written[tp][(await reported).offset] = b"x"
        return written


async def wait_delivered(written: Written, *members: AnyMember, records: int = 5) -> None:
    """Wait until `records` more records of each partition were written and delivered."""
    enough = {tp: max(offsets, default=-1) + records for tp, offsets in written.items()}

    def reached() -> bool:
        places = received(*members)
        return all(Place(tp, offset) in places for tp, offset in enough.items())

    await until(reached)


def division(
    strategy: str,
    topics: Mapping[str, int],
    owned: Mapping[str, Collection[TopicPartition]],
) -> dict[str, set[TopicPartition]]:
    """Return the assignment of Java's assignor for these members and their partitions."""
    assignor = ASSIGNORS[strategy]()
    while True:
        subscriptions = {}
        for name, has in owned.items():
            reported = ASSIGNORS[strategy]()
            if has:
                reported.assigned(has, 1)
            subscriptions[name] = MemberSubscription(
                topics=sorted(topics),
                user_data=reported.user_data(topics, has, 1),
                owned_partitions=sorted(has),
                generation_id=1,
            )
        assignments = {
            name: set(has) for name, has in assignor.assign(topics, subscriptions).items()
        }
        if sum(map(len, assignments.values())) == sum(topics.values()):
            return assignments
        owned = assignments  # revoked partitions are assigned in a second generation


async def until_divided(expected: Mapping[str, set[TopicPartition]], **members: AnyMember) -> None:
    """Wait until each member has its expected partitions. Members are given by name."""

    def divided() -> bool:
        return {name: member.owned for name, member in members.items()} == expected

    try:
        await until(divided)
    except TimeoutError:
        assert {name: member.owned for name, member in members.items()} == expected
        raise


@asynccontextmanager
async def admin_of(kafka: KafkaHandle) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield an admin client of aiokafka."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def committed(kafka: KafkaHandle, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of the group."""
    async with admin_of(kafka) as admin:
        result = await admin.list_consumer_group_offsets(group)
    return {TopicPartition(*tp): reported.offset for tp, reported in result.items()}


async def description(kafka: KafkaHandle, group: str) -> Mapping[str, Any]:
    """Return the description of the group, with its `state` and its assignor as `protocol`."""
    async with admin_of(kafka) as admin:
        (answer,) = await admin.describe_consumer_groups([group])
    result: Mapping[str, Any] = answer.to_object()["groups"][0]
    return result

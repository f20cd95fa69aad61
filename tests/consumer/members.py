"""Members of one group, ours and Java ones: what they have, and what they were given."""

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
from tests.consumer.real import consumer
from tests.helpers import until

if TYPE_CHECKING:
    from asyncconsumer.streams.messages import Message

Written = Mapping[TopicPartition, Mapping[int, bytes]]
"""The values that were acknowledged, by their offsets."""

ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Ours(ConsumerRebalanceListener):
    """A member of ours in this process, within its block: it reads, and keeps what it is told."""

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
        self.consumer: Consumer = consumer(
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
        """Leave in good order, before the end of the block."""
        await self._stack.aclose()

    async def _read(self) -> None:
        async for record in self.consumer:
            self.records.append(record)


Anyone = Ours | JavaConsumer


class Place(NamedTuple):
    """Where a record is."""

    partition: TopicPartition
    offset: int


def received(*members: Anyone) -> Counter[Place]:
    """How often each record was given out, by all of them together."""
    return Counter(
        Place(TopicPartition(record.topic, record.partition), record.offset)
        for member in members
        for record in member.records
    )


def repeated(*members: Anyone) -> dict[Place, int]:
    """What was given out more than once."""
    return {place: count for place, count in received(*members).items() if count > 1}


def all_of(written: Written, *members: Anyone) -> bool:
    """Whether everything was given out that was acknowledged."""
    places = {Place(one, offset) for one, offsets in written.items() for offset in offsets}
    return places <= received(*members).keys()


async def send(kafka: KafkaHandle, partitions: Collection[TopicPartition], count: int) -> Written:
    """So many records to each partition, as fast as they can be written."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        sent = [
            (at, await producer.send(at.topic, b"x", partition=at.partition))
            for _ in range(count)
            for at in partitions
        ]
        written: dict[TopicPartition, dict[int, bytes]] = {at: {} for at in partitions}
        for at, told in sent:
            written[at][(await told).offset] = b"x"
        return written


async def go_on(written: Written, *members: Anyone, records: int = 5) -> None:
    """Return once so many more records of each partition were written, and given out."""
    enough = {one: max(offsets, default=-1) + records for one, offsets in written.items()}

    def reached() -> bool:
        places = received(*members)
        return all(Place(one, offset) in places for one, offset in enough.items())

    await until(reached)


def division(
    strategy: str,
    topics: Mapping[str, int],
    owned: Mapping[str, Collection[TopicPartition]],
) -> dict[str, set[TopicPartition]]:
    """What Java's assignor gives to members of these names, which have this already."""
    assignor = ASSIGNORS[strategy]()
    while True:
        subscriptions = {}
        for name, has in owned.items():
            told = ASSIGNORS[strategy]()
            if has:
                told.assigned(has, 1)
            subscriptions[name] = MemberSubscription(
                topics=sorted(topics),
                user_data=told.user_data(topics, has, 1),
                owned_partitions=sorted(has),
                generation_id=1,
            )
        shares = {name: set(has) for name, has in assignor.assign(topics, subscriptions).items()}
        if sum(map(len, shares.values())) == sum(topics.values()):
            return shares
        owned = shares  # some are let go of first, and given to others in a second generation


async def until_divided(expected: Mapping[str, set[TopicPartition]], **members: Anyone) -> None:
    """Return once each member, by its name, has what is expected of it."""

    def divided() -> bool:
        return {name: member.owned for name, member in members.items()} == expected

    try:
        await until(divided)
    except TimeoutError:
        assert {name: member.owned for name, member in members.items()} == expected
        raise


@asynccontextmanager
async def admin_of(kafka: KafkaHandle) -> AsyncIterator[AIOKafkaAdminClient]:
    """Another client, which sees the group from outside."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def committed(kafka: KafkaHandle, group: str) -> dict[TopicPartition, int]:
    """The group's offsets."""
    async with admin_of(kafka) as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {TopicPartition(*one): told.offset for one, told in found.items()}


async def description(kafka: KafkaHandle, group: str) -> Mapping[str, Any]:
    """Of the group: its `state`, and by which assignor it divides, its `protocol`."""
    async with admin_of(kafka) as admin:
        (answer,) = await admin.describe_consumer_groups([group])
    found: Mapping[str, Any] = answer.to_object()["groups"][0]
    return found

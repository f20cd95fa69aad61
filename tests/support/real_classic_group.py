"""Members of classic groups of a real Kafka."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.assignors import Assignor, RangeAssignor
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.subscription import Subscription, TopicSubscription
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.types import TopicPartition
from tests.support.helpers import until

if TYPE_CHECKING:
    from asyncconsumer.group.membership import Assignment

QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300, "metadata_refresh_ms": 300}


class ClassicMember:
    """A member and its assignments. It acknowledges each of them, after a delay if one is set."""

    def __init__(
        self, membership: ClassicMembership, coordinator: Coordinator, delay: float = 0.0
    ) -> None:
        self.delay = delay
        self.membership = membership
        self.coordinator = coordinator
        self.history: list[Assignment] = []
        self.failure: ConsumerError | None = None
        self.task: asyncio.Task[None]

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.history[-1].partitions) if self.history else set()

    @property
    def numbers(self) -> set[int]:
        return {tp.partition for tp in self.owned}

    async def follow(self) -> None:
        try:
            async for assignment in self.membership.assignments():
                self.history.append(assignment)
                await asyncio.sleep(self.delay)
        except ConsumerError as error:
            self.failure = error

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.membership.leave()


@asynccontextmanager
async def open_member(
    servers: str,
    group: str,
    requested: str | Subscription,
    assignors: Sequence[Assignor] = (),
    **options: Any,
) -> AsyncIterator[ClassicMember]:
    """Open a member. At the end of the block it ends without LeaveGroup, as if killed."""
    subscription = TopicSubscription([requested]) if isinstance(requested, str) else requested
    async with AsyncExitStack() as stack:
        config = ConnectionConfig(bootstrap_servers=servers)
        client = await stack.enter_async_context(KafkaClient(config, patience_ms=10_000))
        coordinator = Coordinator(group, client.brokers, client.cluster)
        membership = ClassicMembership(
            coordinator,
            client.cluster,
            ClassicGroupConfig(group_id=group, **QUICK | options),
            subscription,
            assignors or [RangeAssignor()],
            randomness=Random(1),
        )
        await stack.enter_async_context(membership)
        following = ClassicMember(membership, coordinator)
        async with asyncio.TaskGroup() as tasks:
            following.task = tasks.create_task(following.follow())
            try:
                yield following
            finally:
                following.task.cancel()


async def until_divided(members: Sequence[ClassicMember], expected: Mapping[str, int]) -> None:
    """Wait until each partition has one owner, and each member has a partition."""
    everything = {
        TopicPartition(topic, n) for topic, count in expected.items() for n in range(count)
    }

    def divided() -> bool:
        owned = [tp for member in members for tp in member.owned]
        return sorted(owned) == sorted(everything) and all(member.owned for member in members)

    await until(divided)


def generation_of(following: ClassicMember) -> int:
    """Return the generation of the member."""
    identity = following.membership.identity
    assert identity is not None
    return identity.generation

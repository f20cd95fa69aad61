"""Members of KIP-848 groups, each with its own connections, and their assignments."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.subscription import Subscription, TopicSubscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.group.membership import Assignment


class Follower:
    """A reader of a membership. It acknowledges assignments while `may_acknowledge` is set."""

    def __init__(self, membership: ConsumerGroupMembership, coordinator: Coordinator) -> None:
        self.membership = membership
        self.coordinator = coordinator
        self.assignments: list[Assignment] = []
        self.error: ConsumerError | None = None
        self.may_acknowledge = asyncio.Event()
        self.may_acknowledge.set()

    async def follow(self) -> None:
        try:
            async for assignment in self.membership.assignments():
                self.assignments.append(assignment)
                await self.may_acknowledge.wait()
        except ConsumerError as error:
            self.error = error

    @property
    def owned(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self.assignments[-1].partitions) if self.assignments else set()

    @property
    def lost(self) -> set[TopicPartition]:
        """Return the lost partitions."""
        return set().union(*(assignment.lost for assignment in self.assignments))

    @property
    def epoch(self) -> int:
        identity = self.membership.identity
        return -1 if identity is None else identity.generation


@asynccontextmanager
async def open_member(
    servers: str | ConnectionConfig,
    group: str,
    subscription: Subscription | Iterable[str],
    *,
    opener: Callable[..., Any] | None = None,
    seed: int | None = None,
    leave: bool = True,
    **options: Any,
) -> AsyncIterator[Follower]:
    """Open a member. At the end of the block it leaves, unless `leave` is False."""
    if isinstance(servers, str):
        servers = ConnectionConfig(bootstrap_servers=servers)
    if not isinstance(subscription, Subscription):
        subscription = TopicSubscription(subscription)
    randomness = Random(seed)
    more = {} if opener is None else {"opener": opener}
    async with (
        BrokerPool(servers, randomness=randomness, **more) as brokers,
        Cluster(brokers, randomness=randomness) as cluster,
    ):
        coordinator = Coordinator(group, brokers, cluster)
        config = ConsumerGroupConfig(group_id=group, **options)
        membership = ConsumerGroupMembership(
            coordinator, cluster, config, subscription, randomness=randomness
        )
        async with membership, asyncio.TaskGroup() as tasks:
            follower = Follower(membership, coordinator)
            following = tasks.create_task(follower.follow())
            yield follower
            if leave:
                await membership.leave()
            following.cancel()


def partitions(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def split(topic: str, count: int, *followers: Follower) -> bool:
    """Return whether the partitions of a topic are divided evenly, each to one member."""
    assignments = [{tp for tp in follower.owned if tp.topic == topic} for follower in followers]
    sizes = sorted(map(len, assignments))
    everything = set().union(*assignments)
    return (
        everything == partitions(topic, *range(count))
        and sum(sizes) == count
        and sizes[-1] - sizes[0] <= 1
    )

"""The methods of a `Consumer` for subscriptions, listeners and the current assignment."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.listener import checked
from asyncconsumer.consumer.offset_operations import OffsetOperations
from asyncconsumer.consumer.subscription import (
    ActiveSubscription,
    Collaborators,
    join,
    store_without_members,
)
from asyncconsumer.consumer.subscription_lock import SubscriptionLock
from asyncconsumer.consumer.subscription_spec import (
    ManualPartitions,
    ToAssign,
    Wish,
    manual_partitions,
    parse_subscription,
)
from asyncconsumer.consumer.topic_check import TopicCheck
from asyncconsumer.consumer.unsubscribed_offsets import UnsubscribedOffsets
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.manual import GrouplessMembership
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.consumer.resources import Resources

_SECONDS_BETWEEN_LOOKS: Final = 0.01


class SubscribeOperations(OffsetOperations):
    """The part of a `Consumer` that manages its subscription."""

    def __init__(self, config: ConsumerConfig, given: Collaborators) -> None:
        super().__init__(config, given)
        self._scope = Scope("consumer")
        self._connected: Resources  # set within the ``async with`` block
        self._joined: ActiveSubscription | None = None
        self._changes = SubscriptionLock()

    @abstractmethod
    def _read_from(self, stream: BatchedStream | None) -> None:
        """Deliver records from this stream from now on."""

    async def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        listener: object = None,
    ) -> None:
        """Subscribe to these topics or this pattern, and end the subscription before.

        A listener replaces the one that the constructor or an earlier `subscribe` was given.
        `wait_assigned` waits for the partitions. Without a group_id all partitions are assigned
        when this returns.
        """
        wish = parse_subscription(topics, pattern, None)
        if wish is None:
            raise ConfigError("subscribe() needs topics, or a pattern; `unsubscribe` ends it")
        if listener is not None:
            self._given.listeners.replace(checked(listener))
        await self._want(wish)

    async def assign(self, partitions: ToAssign) -> None:
        """Read exactly these partitions, without group assignment, and end the assignment before.

        A mapping gives the offset to begin at for each partition: a number, EARLIEST, LATEST, or
        None for the committed offset. When this returns the partitions are assigned.
        """
        await self._want(manual_partitions(partitions))

    async def unsubscribe(self) -> None:
        """Stop reading, commit acknowledged records and leave the group.

        The consumer can subscribe again.
        """
        async with self._changes.one():
            await self._leave()

    def listen(self, listener: object) -> None:
        """Add a rebalance listener. It is called from the next change on, after earlier ones."""
        self._given.listeners.append(checked(listener))

    def remove_listener(self, listener: object) -> None:
        """Remove a rebalance listener."""
        if listener not in self._given.listeners:
            raise ConfigError(f"{listener!r} is no listener of this consumer: it cannot be removed")
        self._given.listeners.remove(listener)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; for a pattern, the known topics that match.

        The result is empty for manual assignments, and if nothing is subscribed.
        """
        there = self._joined
        if there is None:
            return frozenset()
        return (
            there.wish.names
            if isinstance(there.wish, TopicSubscription)
            else there.membership.topics
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset() if self._joined is None else frozenset(self._rebalancer.reading)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return frozenset() if self._joined is None else self._rebalancer.paused

    async def wait_assigned(self) -> frozenset[TopicPartition]:
        """Wait until partitions of the current subscription are assigned, and return them.

        The result is empty only if the group has none for this member. In protocols that revoke
        step by step, this is certain after `revoke_grace_ms` and some heartbeats.
        """
        now, empty_since = asyncio.get_running_loop().time, None
        while True:
            there = self._there
            there.following.check()
            if not (there.is_assigned and self._is_subscribed(there, self.assignment)):
                empty_since = None
            elif found := self.assignment:
                return found
            else:
                empty_since = now() if empty_since is None else empty_since
                settles_after = there.membership.settles_after
                grace = self.config.member.revoke_grace_ms / 1000 if settles_after else 0.0
                if now() - empty_since >= settles_after + grace:
                    return found
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def wait_joined(self) -> None:
        """Wait for the first assignment of the group, which may be empty."""
        await self._following.joined()

    async def topics(self) -> frozenset[str]:
        """Return the names of all topics of the cluster that this consumer may see."""
        self._scope.check_open()
        return frozenset(await self._connected.kafka.cluster.topic_names())

    def _is_subscribed(
        self, there: ActiveSubscription, partitions: Iterable[TopicPartition]
    ) -> bool:
        """Return whether all these partitions belong to the current subscription."""
        wish = there.wish
        if isinstance(wish, ManualPartitions):
            return wish.issuperset(partitions)
        topics = {one.topic for one in partitions}.difference(self._given.companions.values())
        if isinstance(wish, TopicSubscription):
            return topics <= wish.names
        return topics == wish.matching(topics, exclude_internal=False)

    # --- changes of the subscription -------------------------------------------------------------

    async def _want(self, wish: Wish) -> None:
        self._scope.check_open()
        async with self._changes.one():
            await self._change_to(wish)
        there = self._there
        # the rebalance waits for its listeners, so a listener that assigns must not wait for it
        if isinstance(there.membership, GrouplessMembership) and not there.following.is_within:
            while not there.is_assigned and there is self._joined:
                there.following.check()
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def _change_to(self, wish: Wish) -> None:
        self._scope.check_open()
        there = self._joined
        if there is not None and there.following.failure is None and there.takes(wish):
            await there.topics.look(wish)
            if isinstance(wish, ManualPartitions):
                kept = wish.starts.keys() & self.assignment
                self._go_to({one: wish.starts[one] for one in kept})
            self._joined = there.wanting(wish)
            await there.following.rebalancer.load_missing_offsets()
            return
        topics = TopicCheck(self._connected.kafka.cluster, self.config, wish)
        await topics.look()
        await self._leave()
        self._joined = await join(topics, self.config, self._given, self._connected, self._scope)
        self._read_from(self._joined.stream)

    async def _leave(self) -> None:
        if self._joined is not None:
            self._joined.following.check_not_within()
            await self._changes.leaving(self._end)

    async def _end(self) -> None:
        assert self._joined is not None
        try:
            await self._joined.end()
        finally:
            self._joined = None
            self._read_from(None)

    @property
    def _direct_offsets(self) -> UnsubscribedOffsets | None:
        if self._joined is not None or self.config.zookeeper is not None:
            return None
        self._scope.check_open()
        return UnsubscribedOffsets(store_without_members(self.config, self._given, self._connected))

    @property
    def _there(self) -> ActiveSubscription:
        self._scope.check_open()
        if self._joined is None:
            raise ConfigError("nothing is subscribed: give topics, or `await consumer.subscribe()`")
        return self._joined

    @property
    def _following(self) -> MembershipRunner:
        return self._there.following

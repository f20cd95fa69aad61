"""The methods of a `Consumer` for subscriptions, listeners and the current assignment."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.wait import wait_until
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
    SubscriptionSpec,
    ToAssign,
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

_POLL_SECONDS: Final = 0.01


class SubscribeOperations(OffsetOperations):
    """A base class of `Consumer` with methods that manage its subscription."""

    def __init__(self, config: ConsumerConfig, collaborators: Collaborators) -> None:
        super().__init__(config, collaborators)
        self._scope = Scope("consumer")
        self._resources: Resources  # set within the ``async with`` block
        self._current: ActiveSubscription | None = None
        self._changes = SubscriptionLock()

    @abstractmethod
    def _read_from(self, stream: BatchedStream | None) -> None:
        """Deliver the records of `stream` from now on, or none if it is None."""

    async def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        listener: object = None,
    ) -> None:
        """Subscribe to topics or to a pattern. This replaces the previous subscription.

        `listener` replaces the listener of the constructor or of an earlier `subscribe`. Await
        `wait_assigned` to wait for the partitions. Without a group_id, all partitions are assigned
        when this returns.
        """
        spec = parse_subscription(topics, pattern, None)
        if spec is None:
            raise ConfigError(
                "subscribe() needs topics or a pattern. Call unsubscribe() to end the subscription"
            )
        if listener is not None:
            self._collaborators.listeners.replace(checked(listener))
        await self._change_subscription(spec)

    async def assign(self, partitions: ToAssign) -> None:
        """Read exactly these partitions, without a group. This replaces the previous assignment.

        A mapping gives the start offset of each partition: a number, EARLIEST, LATEST, or None for
        the committed offset. When this returns, the partitions are assigned.
        """
        await self._change_subscription(manual_partitions(partitions))

    async def unsubscribe(self) -> None:
        """Stop reading, commit acknowledged records and leave the group.

        A call by the task that reads acknowledges the records that this task has in flight. The
        consumer can subscribe again.
        """
        self._acknowledge_by_reader()
        async with self._changes.hold():
            await self._leave()

    def stop(self) -> Awaitable[None]:
        """End all loops over this consumer, commit acknowledged records and leave the group.

        A loop ends when it asks for its next record. A call by the task that reads acknowledges the
        records that this task has in flight. After the ``async with`` block, a call does nothing.

        The stop begins at the call, before the result is awaited. A callback of
        `add_signal_handler` may therefore call this. Await the result to wait until the group is
        left.
        """
        if self._scope.is_over:
            return asyncio.sleep(0)
        self._scope.check_open()
        self._acknowledge_by_reader()
        return asyncio.shield(self._scope.start(self.unsubscribe(), "stop"))

    def _acknowledge_by_reader(self) -> None:
        if self._current is not None:
            self._current.runner.acknowledge_by_reader()

    def listen(self, listener: object) -> None:
        """Add a rebalance listener.

        From the next rebalance on, it is called after the listeners that were added before.
        """
        self._collaborators.listeners.append(checked(listener))

    def remove_listener(self, listener: object) -> None:
        """Remove a rebalance listener."""
        if listener not in self._collaborators.listeners:
            raise ConfigError(f"{listener!r} is not a listener of this consumer")
        self._collaborators.listeners.remove(listener)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics. For a pattern, return the known topics that match.

        The result is empty for manual assignments, and if nothing is subscribed.
        """
        current = self._current
        if current is None:
            return frozenset()
        return (
            current.spec.names
            if isinstance(current.spec, TopicSubscription)
            else current.membership.topics
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset() if self._current is None else frozenset(self._rebalancer.reading)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return frozenset() if self._current is None else self._rebalancer.paused

    async def wait_assigned(self) -> frozenset[TopicPartition]:
        """Wait until partitions of the current subscription are assigned, and return them.

        The result is empty only if the group assigns none to this member. In protocols that revoke
        partitions step by step, this is certain only after `revoke_grace_ms` and some heartbeats.
        """
        now = asyncio.get_running_loop().time
        empty_since: float | None = None

        def is_final() -> bool:
            nonlocal empty_since
            active = self._active
            active.runner.check()
            if not (active.is_assigned and self._is_subscribed(active, self.assignment)):
                empty_since = None
                return False
            if self.assignment:
                return True
            empty_since = now() if empty_since is None else empty_since
            settles_after = active.membership.settles_after
            grace = self.config.member.revoke_grace_ms / 1000 if settles_after else 0.0
            return now() - empty_since >= settles_after + grace

        with self._runner.waiting():
            await wait_until(is_final, every=_POLL_SECONDS)
        return self.assignment

    async def wait_joined(self) -> None:
        """Wait for the first assignment of the group, which may be empty."""
        await self._runner.joined()

    async def topics(self) -> frozenset[str]:
        """Return the names of all topics of the cluster that this consumer may describe."""
        self._scope.check_open()
        return frozenset(await self._resources.kafka.cluster.topic_names())

    def _is_subscribed(
        self, active: ActiveSubscription, partitions: Iterable[TopicPartition]
    ) -> bool:
        """Return whether the current subscription includes all of the partitions."""
        spec = active.spec
        if isinstance(spec, ManualPartitions):
            return spec.issuperset(partitions)
        topics = {tp.topic for tp in partitions}.difference(
            chain.from_iterable(self._collaborators.co_assigned.values())
        )
        if isinstance(spec, TopicSubscription):
            return topics <= spec.names
        return topics == spec.matching(topics, exclude_internal=False)

    # --- changes of the subscription -------------------------------------------------------------

    async def _change_subscription(self, spec: SubscriptionSpec) -> None:
        self._scope.check_open()
        async with self._changes.hold():
            await self._change_to(spec)
        active = self._active
        # the rebalance waits for its listeners, so a listener must not wait for the rebalance
        if isinstance(active.membership, GrouplessMembership) and not active.runner.is_in_listener:

            def is_over() -> bool:
                if active.is_assigned or active is not self._current:
                    return True
                active.runner.check()
                return False

            with active.runner.waiting():
                await wait_until(is_over, every=_POLL_SECONDS)

    async def _change_to(self, spec: SubscriptionSpec) -> None:
        self._scope.check_open()
        current = self._current
        if current is not None and current.runner.failure is None and current.takes(spec):
            await current.topics.look(spec)
            if isinstance(spec, ManualPartitions):
                repositioned = spec.starts.keys() & self.assignment
                self._user_seek({tp: spec.starts[tp] for tp in repositioned})
            self._current = current.changed_to(spec)
            await current.runner.rebalancer.load_missing_offsets()
            return
        topics = TopicCheck(self._resources.kafka.cluster, self.config, spec)
        await topics.look()
        await self._leave()
        self._current = await join(
            topics, self.config, self._collaborators, self._resources, self._scope
        )
        self._read_from(self._current.stream)

    async def _leave(self) -> None:
        if self._current is not None:
            self._current.runner.check_not_in_listener()
            await self._changes.leaving(self._end)

    async def _end(self) -> None:
        assert self._current is not None
        try:
            await self._current.end()
        finally:
            self._current = None
            self._read_from(None)

    @property
    def _direct_offsets(self) -> UnsubscribedOffsets | None:
        if self._current is not None or self.config.zookeeper is not None:
            return None
        self._scope.check_open()
        return UnsubscribedOffsets(
            store_without_members(self.config, self._collaborators, self._resources)
        )

    @property
    def _active(self) -> ActiveSubscription:
        self._scope.check_open()
        if self._current is None:
            raise ConfigError(
                "nothing is subscribed. Pass topics, or call `await consumer.subscribe()` first"
            )
        return self._current

    @property
    def _runner(self) -> MembershipRunner:
        return self._active.runner

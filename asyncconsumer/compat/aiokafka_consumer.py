"""The `Consumer` that `AIOKafkaConsumer` uses, and the subscription to apply to it."""

import asyncio
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from asyncconsumer import types
from asyncconsumer.compat.aiokafka_errors import translate
from asyncconsumer.compat.aiokafka_record import ConsumerRecord
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.poll_interval import unsuspend
from asyncconsumer.consumer.stream import DeliveryPolicy
from asyncconsumer.consumer.subscription_spec import ManualPartitions, SubscriptionSpec
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.streams.batched import BatchedStream


class RecordConsumer(Consumer[Any, Any]):
    """A `Consumer` that delivers aiokafka's records, and raises aiokafka's errors in loops."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of `Consumer`
        super().__init__(**options)
        self._collaborators = self._collaborators._replace(suspends=True)

    def _adapt(self, stream: BatchedStream, policy: DeliveryPolicy) -> DeliveryPolicy:
        stream.translate = translate
        return policy._replace(message_type=ConsumerRecord, fail=None)

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a subscription or a manual assignment."""
        return self._current is not None

    @property
    def is_manual(self) -> bool:
        """Whether the partitions are assigned manually."""
        return self._current is not None and isinstance(self._current.spec, ManualPartitions)

    @property
    def identity(self) -> types.MemberIdentity | None:
        """The identity of the member in its group, or None if it has none."""
        return None if self._current is None else self._current.runner.identity

    @property
    def is_in_listener(self) -> bool:
        """Whether the current code was called by a rebalance listener."""
        return self._current is not None and self._current.runner.is_in_listener

    @property
    def owned(self) -> Collection[types.TopicPartition]:
        """The partitions that may be committed. They include partitions that are being revoked."""
        return self.assignment | self._rebalancer.releasing.keys() if self._current else ()

    def acknowledge(self) -> None:
        """Count all delivered records as consumed."""
        if self._current is not None:
            for stream in self._rebalancer.streams.all():
                if isinstance(stream, BatchedStream) and stream.is_unacknowledged:
                    stream.acknowledge()

    def take_buffered(self) -> Any | None:  # noqa: ANN401 - aiokafka's record
        """Return the next record if no wait and no change of the subscription are due, or None."""
        if self._reading is None or self.is_suspended:
            return None
        return self._reading.take_buffered()

    async def read(
        self,
        partitions: Sequence[types.TopicPartition],
        end: float | None,
        max_records: int,
        turn_ms: int,
    ) -> dict[types.TopicPartition, list[Any]]:
        """Return up to `max_records` records by partition, which come before the loop time `end`.

        With `partitions`, wait for at most `turn_ms`.
        """
        if end is None and not partitions:
            record = await self.getone()
            return {types.TopicPartition(record.topic, record.partition): [record]}
        wait_ms = float(turn_ms)
        if end is not None:
            left_ms = max((end - asyncio.get_running_loop().time()) * 1000, 0)
            wait_ms = min(wait_ms, left_ms) if partitions else left_ms
        return await self.getmany(*partitions, timeout_ms=round(wait_ms), max_records=max_records)

    async def commit_delivered(self) -> None:
        """Commit all delivered records, including those of partitions that are being revoked."""
        self.acknowledge()
        rebalancer = self._rebalancer
        releasing = {
            tp: rebalancer.revoked[tp].position if tp in rebalancer.revoked else offset
            for tp, offset in rebalancer.releasing.items()
        }
        await self._runner.commit({**rebalancer.finished(), **releasing}, rewind=False)

    async def _change_to(self, spec: SubscriptionSpec) -> None:
        """Change the subscription. Rejoin also if it is the same, for the new listener."""
        before = self._current
        await super()._change_to(spec)
        after = self._current
        if before is None or after is None or before.spec != spec:
            return
        membership = after.membership
        if membership is before.membership and isinstance(membership, ClassicMembership):
            membership.rejoin("subscribe() was called again")

    @property
    def _classic(self) -> ClassicMembership | None:
        """The membership if the group uses the classic protocol, otherwise None."""
        membership = None if self._current is None else self._current.membership
        return membership if isinstance(membership, ClassicMembership) else None

    @property
    def is_suspended(self) -> bool:
        """Whether partitions were released after `max_poll_interval_ms`, until the next request."""
        return (membership := self._classic) is not None and membership.suspended

    async def unsuspend(self) -> None:
        """Get partitions again that were released after `max_poll_interval_ms`."""
        if (membership := self._classic) is not None:
            await unsuspend(self._runner, membership, auto_commit=self.config.auto_commit)

    def _select(self, partitions: Collection[types.TopicPartition] | None) -> bool:
        """Select partitions, which may also be assigned later."""
        return self._rebalancer.select(partitions)

    def known_partitions(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic in the cached metadata, or None."""
        known = self._resources.kafka.cluster.metadata.topics.get(topic)
        return set(known.partitions) if known is not None and known.partitions else None


class WantedSubscription(NamedTuple):
    """The topics, the pattern or the partitions of the user's last request."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[types.TopicPartition] | None = None

    def is_skipped(self, consumer: RecordConsumer, later: "WantedSubscription") -> bool:
        """Return whether the change to `later` makes this one needless.

        An `unsubscribe` before a `subscribe` is skipped, so that loops over records continue. For a
        static member it is not, because its return causes no rebalance, and a rejoin may.
        """
        manual = consumer.is_manual or later.partitions is not None
        static = consumer.config.member.group_instance_id is not None
        return self == WantedSubscription() != later and not manual and not static

    async def apply(self, consumer: Consumer[Any, Any]) -> None:
        """Change the subscription of `consumer` to this one."""
        if self.partitions is not None:
            await consumer.assign(self.partitions)
        elif self.topics or self.pattern is not None:
            await consumer.subscribe(*self.topics, pattern=self.pattern)
        else:
            await consumer.unsubscribe()

"""`AIOKafkaConsumer` with the interface of aiokafka's class, on top of `Consumer`.

Replace ``from aiokafka import AIOKafkaConsumer`` by
``from asyncconsumer.compat.aiokafka import AIOKafkaConsumer``.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

from aiokafka import (
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
)

from asyncconsumer import types
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.aiokafka_parts import commit_structure_validate
from asyncconsumer.compat.aiokafka_arguments import (
    check_limit,
    converted,
    is_int,
    names,
    prefix_pattern,
)
from asyncconsumer.compat.aiokafka_consumer import RecordConsumer, WantedSubscription
from asyncconsumer.compat.aiokafka_errors import translate, translated, translated_commit
from asyncconsumer.compat.aiokafka_listener import ListenerAdapter
from asyncconsumer.compat.aiokafka_lookups import Lookups
from asyncconsumer.compat.aiokafka_offset_errors import OffsetErrors
from asyncconsumer.compat.aiokafka_options import (
    AIOKafkaOptions,
    consumer_options,
    given_loop,
    plain_function,
)
from asyncconsumer.compat.aiokafka_turns import Turns
from asyncconsumer.errors import ConsumerError

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]

_MAX_RECORDS: Final = 10_000  # records of one `getmany` without a limit
_TURN_MS: Final = 50  # after which a call for some partitions lets other calls go first


class AIOKafkaConsumer(Lookups):
    """A consumer with the constructor, methods, results and errors of aiokafka's class.

    A record counts as consumed when the program asks for the next one in any way, or calls `commit`
    or `stop`. aiokafka counts it as soon as it is returned. See docs/migrating-from-aiokafka.md.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        max_poll_records: int | None = None,
        **options: Unpack[AIOKafkaOptions],
    ) -> None:
        self._loop = given_loop(options.get("loop"))
        check_limit("max_poll_records", max_poll_records)
        self._max_records = max_poll_records or _MAX_RECORDS
        self._offset_errors = OffsetErrors()
        self._listener = ListenerAdapter(self._offset_errors)
        with translated():
            self._consumer = RecordConsumer(
                listener=self._listener,
                key_deserializer=plain_function(key_deserializer),
                value_deserializer=plain_function(value_deserializer),
                **consumer_options(options),
            )
        self._subscription = WantedSubscription(topics=names(topics))
        self._started = self._closed = False
        self._changing: asyncio.Task[None] | None = None
        self._after_change: list[Callable[[], None]] = []  # delayed seeks and pauses
        self._turns = Turns()  # of calls of `getone` and `getmany`
        self._subscribed = asyncio.Event()  # or closed

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._started else "not started"
        return f"<AIOKafkaConsumer group_id={self._group_id!r} {state}>"

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._closed:
            warnings.warn(
                f"Unclosed AIOKafkaConsumer: {self!r}", ResourceWarning, stacklevel=1, source=self
            )

    # --- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and join the group if topics are subscribed."""
        assert not self._started, "Did you call `start` twice?"
        with translated():
            await self._consumer.__aenter__()
            try:
                if self._subscription != WantedSubscription():
                    await self._subscription.apply(self._consumer)
                    self._apply_queued()
                    if self._group_id is not None:
                        await self._consumer.wait_joined()
            except BaseException as error:
                await self._consumer.__aexit__(type(error), error, error.__traceback__)
                raise
        self._started = True

    async def stop(self) -> None:
        """Commit consumed records, leave the group and close the consumer. Running loops end."""
        await self._stop(None)

    async def _stop(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._subscribed.set()
        if self._changing is not None:
            await asyncio.wait({self._changing})
        if self._started:
            with translated():
                await self._consumer.__aexit__(None if error is None else type(error), error, None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop(error)

    # --- subscription ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern. The change is made in the background."""
        if bool(topics) == bool(pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if self._subscription.partitions is not None:
            raise IllegalStateError("Partitions are assigned manually; call unsubscribe() first")
        compiled = prefix_pattern(pattern) if pattern else None
        subscription = WantedSubscription(topics=names(topics), pattern=compiled)
        self._listener.listener = listener
        self._change(subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. The change is made in the background."""
        if self._subscription.topics or self._subscription.pattern is not None:
            raise IllegalStateError("Topics are subscribed; call unsubscribe() first")
        assigned = frozenset(types.TopicPartition(*tp) for tp in partitions)
        self._change(WantedSubscription(partitions=assigned))

    def unsubscribe(self) -> None:
        """End the subscription or the manual assignment. The change is made in the background."""
        self._change(WantedSubscription())

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        chosen = self._subscription
        if chosen.partitions is not None:
            return frozenset(tp.topic for tp in chosen.partitions)
        return chosen.topics if chosen.pattern is None else self._consumer.subscription()

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        chosen = self._subscription.partitions
        if chosen is None:
            chosen = frozenset() if self._changing is not None else self._consumer.assignment
        return {TopicPartition(*tp) for tp in chosen}

    def _change(self, subscription: WantedSubscription) -> None:
        self._subscription = subscription
        self._subscribed.set()
        self._after_change.clear()
        if self._started and not self._closed:
            change = self._applied(subscription, self._changing)
            self._changing = start_task(self._loop, change, "change the subscription")

    async def _applied(
        self, subscription: WantedSubscription, previous: "asyncio.Task[None] | None"
    ) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        await asyncio.sleep(0)  # a call of `subscribe` may follow a call of `unsubscribe`
        if not subscription.is_skipped(self._consumer, self._subscription):
            with translated():
                await subscription.apply(self._consumer)
        if self._subscription is subscription:
            self._changing = None
            self._apply_queued()

    def _apply_queued(self) -> None:
        while self._after_change:
            with suppress(IllegalStateError), translated():  # the partition was revoked
                self._after_change.pop(0)()

    async def _settled(self) -> None:
        """Wait until the last change of the subscription is complete, except in a listener.

        If the change failed, raise its error.
        """
        changing = self._changing
        if changing is None or self._consumer.is_in_listener:
            return
        await asyncio.wait({changing})
        if self._changing is changing:
            self._changing = None
        changing.result()

    def _soon(self, operation: Callable[[], None]) -> None:
        """Call `operation` now. During a change of the subscription, call it after the change."""
        applied = self._changing is None and self._consumer.is_subscribed
        if applied or self._consumer.is_in_listener:
            with translated():
                operation()
        else:
            self._after_change.append(operation)

    # --- records ---------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Wait for the next record and return it. With `partitions`, return a record of these."""
        if not partitions and (record := self._take_buffered()) is not None:
            return record
        while True:
            batches = await self._read(partitions, None, 1)
            for (record,) in batches.values():
                return record
            if self._closed:
                raise ConsumerStoppedError

    def _take_buffered(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record, or None if `_read` has to check, wait or raise an error."""
        ready = self._started and not self._closed and self._changing is None
        if not ready or self._turns.taken or self._offset_errors.exist:
            return None
        try:
            return self._consumer.take_buffered()
        except ConsumerError as error:
            raise translate(error) from error

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the buffered records by partition. If there are none, wait up to `timeout_ms`."""
        check_limit("max_records", max_records)
        end = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            batches = await self._read(partitions, end, max_records or self._max_records)
            if batches or self._closed or asyncio.get_running_loop().time() >= end:
                return {TopicPartition(*tp): records for tp, records in batches.items()}

    async def _read(
        self, partitions: Sequence[TopicPartition], end: float | None, max_records: int
    ) -> dict[types.TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the next records. Return none after the time `end`, a turn, or a `stop`."""
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        self._check_running()
        async with self._turns.take():
            settled = self._changing is None and self._consumer.is_subscribed
            if not settled and not await self._is_subscribed(end):
                return {}
            self._consumer.acknowledge()
            if self._consumer.is_suspended:
                await self._consumer.unsuspend()
            if self._offset_errors.exist:
                self._offset_errors.check(partitions or self.assignment())
            try:
                with self._offset_errors.noticed(), translated():
                    return await self._consumer.read(
                        converted(partitions), end, max_records, _TURN_MS
                    )
            except ConsumerStoppedError:  # by `stop` or `unsubscribe` during this call
                return {}

    async def _is_subscribed(self, end: float | None) -> bool:
        """Wait for a subscription until the time `end`. Return whether there is one."""
        await self._settled()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                while self._subscription == WantedSubscription() and not self._closed:
                    self._subscribed.clear()
                    await self._subscribed.wait()
        await self._settled()
        return self._consumer.is_subscribed

    def _check_running(self) -> None:
        if self._closed:
            raise ConsumerStoppedError
        if not self._started:
            raise IllegalStateError("The consumer is not started")

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        self._check_running()
        if self._changing is not None or not self._consumer.is_subscribed:
            return self
        with translated():
            self._consumer.acknowledge()
            return aiter(self._consumer)

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Return the next record."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --- offsets ---------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit consumed records, or the given offsets.

        `offsets` maps partitions to numbers or to pairs of offset and metadata.
        """
        self._check_group()
        await self._settled()
        if not self._consumer.is_subscribed:
            raise IllegalStateError("Not subscribed to any topics")
        if offsets is None:
            with translated_commit():
                await self._consumer.commit_delivered()
            return
        chosen = {
            types.TopicPartition(*tp): types.Offset(offset, metadata=metadata)
            for tp, (offset, metadata) in commit_structure_validate(offsets).items()
        }
        owned = self._consumer.owned
        if chosen and not owned:
            raise IllegalStateError("No partitions assigned")
        for tp in chosen:
            if tp not in owned:
                raise IllegalStateError(f"Partition {tp} is not assigned")
        with translated_commit():
            committed = await self._consumer.commit(chosen)
        if chosen.keys() - committed.keys():
            raise CommitFailedError("Partitions were revoked before they could be committed")

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition, or None if it has none."""
        self._check_group()
        await self._settled()
        (tp,) = converted([partition])
        with translated():
            offset = (await self._consumer.committed([tp]))[tp]
        return None if offset is None else int(offset)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the partition's next record to deliver."""
        await self._settled()
        self._check_assigned([partition])
        with translated():
            return int(await self._consumer.position(*converted([partition])))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading the partition at `offset`."""
        if not is_int(offset) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._check_assigned([partition])
        (tp,) = converted([partition])
        self._offset_errors.resolve([tp])
        self._soon(lambda: self._consumer.seek(tp, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first record of these partitions, or of the whole assignment."""
        chosen = await self._chosen(partitions)
        self._offset_errors.resolve(chosen)
        with translated():
            self._consumer.seek_to_beginning(*chosen)
            for tp in chosen:
                await self._consumer.position(tp)
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue at the end of these partitions, or of the whole assignment."""
        chosen = await self._chosen(partitions)
        self._offset_errors.resolve(chosen)
        with translated():
            self._consumer.seek_to_end(*chosen)
            for tp in chosen:
                await self._consumer.position(tp)
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, and return them.

        Without `partitions`, this applies to the whole assignment.
        """
        chosen = await self._chosen(partitions)
        self._check_group()
        with translated():
            committed = await self._consumer.committed(chosen)
            for tp, offset in committed.items():
                if offset is not None:
                    self._offset_errors.resolve([tp])
                    self._consumer.seek(tp, int(offset))
        return {
            TopicPartition(*tp): None if offset is None else int(offset)
            for tp, offset in committed.items()
        }

    async def _chosen(self, partitions: Collection[TopicPartition]) -> list[types.TopicPartition]:
        if not all(isinstance(tp, TopicPartition) for tp in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        await self._settled()
        self._check_assigned(partitions)
        chosen = converted(partitions or self.assignment())
        assert chosen, "No partitions are currently assigned"
        return chosen

    # --- pauses and state ------------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until `resume`."""
        chosen = self._checked(partitions)
        self._soon(lambda: self._consumer.pause(*chosen))

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these paused partitions again."""
        chosen = self._checked(partitions)
        self._soon(lambda: self._consumer.resume(*chosen))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {TopicPartition(*tp) for tp in self._consumer.paused}

    def _checked(self, partitions: Collection[TopicPartition]) -> list[types.TopicPartition]:
        if not all(isinstance(tp, TopicPartition) for tp in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        self._check_assigned(partitions)
        return converted(partitions)

    @property
    def _group_id(self) -> str | None:
        return self._consumer.config.member.group_id

    @property
    def _coordinator(self) -> types.MemberIdentity | None:
        """The identity of the member. An example of aiokafka prints its `member_id`."""
        return self._consumer.identity

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if missing := set(partitions) - self.assignment():
            raise IllegalStateError(f"Partitions {missing} are not assigned")

"""Exactly-once handlers: outputs and offsets are committed in the same transaction.

An app has one transactional producer. The outputs of a handler call are kept until the call is
finished. They are then part of the next transaction, which commits the offsets, too. There is no
barrier between transactions: a record that finishes during a commit belongs to the next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig, ProducerConfig, SendConfig
from asyncconsumer.consumer.dead_letters import Failure, dead_letter_headers
from asyncconsumer.errors import (
    ConfigError,
    ConsumerError,
    DeliveryTimedOut,
    FencedMemberEpoch,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidTopic,
    InvalidTransactionState,
    NothingClaimed,
    OffsetMetadataTooLarge,
    OutOfOrderSequence,
    ProducerFenced,
    RecordListTooLarge,
    RecordTooLarge,
    TopicAccessDenied,
    TransactionAbortable,
    TransactionAborted,
    TransactionInDoubt,
    UnknownMemberId,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from asyncconsumer.handlers.commit_metadata import LONGEST
from asyncconsumer.handlers.invoke import Call
from asyncconsumer.handlers.outputs import CommitPlan, OutputRecord, Outputs, plan_commit
from asyncconsumer.handlers.partition_work import Item, PartitionWork, WorkState, first_of
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers
from asyncconsumer.types import GroupMetadata, MemberIdentity, Offset, TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.producer.batch import RecordDelivery

_log: Final = logging.getLogger(__name__)
_MAX_BUFFERED_BYTES: Final = 32 * 2**20
_OF_A_RECORD: Final = (
    RecordTooLarge, RecordListTooLarge, InvalidRecord, InvalidTopic, TopicAccessDenied,
    UnknownTopicOrPartition, ConfigError,
)  # fmt: skip
_REPEATED: Final = (
    DeliveryTimedOut,
    # a fenced member: the partitions that it still owns are committed later
    IllegalGeneration, UnknownMemberId, FencedMemberEpoch,
    # the next transaction has a new epoch
    InvalidProducerIdMapping, InvalidTransactionState, TransactionAbortable, OutOfOrderSequence,
    UnknownProducerId,
)  # fmt: skip
"""Errors after which a transaction is repeated, in addition to those that are retriable."""

_current: Final[ContextVar[tuple[PartitionWork, Outputs]]] = ContextVar("outputs")
"""The partition and the outputs of the handler call in the current task."""

Identity = Callable[[], MemberIdentity | None]
GiveUp = Callable[[Record, BaseException, int], Awaitable[object]]
"""Apply the failure policy to a record, after a number of attempts."""


class TransactionOptions(NamedTuple):
    """The options of an exactly-once app."""

    transactional_id: str
    is_named: bool  # by the user; otherwise no other process can have the id
    timeout_ms: int


class Collected:
    """A delivery that is complete at once, because a transaction will write the record."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_COLLECTED: Final = Collected()


class OutputCollector:
    """A sender of records that keeps them with the outputs of the current handler call."""

    def send_now(self, topic: str, key: bytes | None, value: bytes | None) -> Collected:
        """Keep a record without headers."""
        _current.get()[1].add(OutputRecord(topic, key, value))
        return _COLLECTED

    async def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Collected:
        """Keep a record."""
        _current.get()[1].add(OutputRecord(topic, key, value, headers, partition))
        return _COLLECTED


class CollectedDeadLetters:
    """The dead letters of one topic, which are outputs of the failed records."""

    trouble: Final = None

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Do nothing, because the producer of the app writes the dead letters."""

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Make the dead letter the only output of a record."""
        work, _ = _current.get()
        outputs = Outputs(record, _refuse_again)
        headers = dead_letter_headers(record, failure)
        outputs.add(OutputRecord(self.topic, record.key, record.value, headers, partition))
        if work.state is not WorkState.OVER:
            work.outputs[record.offset] = outputs
        return -1


class ExactlyOnce(AsyncResource):
    """The transactional producer of an app, with the outputs that its handlers wait to write.

    `fail` stops the app.
    """

    def __init__(
        self,
        group_id: str,
        options: TransactionOptions,
        connection: ConnectionConfig,
        network: Mapping[str, Any],
        fail: Callable[[Exception], object],
    ) -> None:
        self.collector: Final = OutputCollector()
        self.group_id: Final = group_id
        self._options = options
        sending = SendConfig(
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.timeout_ms,
            delivery_timeout_ms=options.timeout_ms,
        )
        config = ProducerConfig(connection, sending)
        self.producer: Final[Producer[Any, Any]] = Producer(config=config, **network)
        self.fail: Final = fail
        self._queues: dict[WorkQueue, None] = {}
        self._buffered = 0
        self._scope = Scope("transactions of an app")

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.producer)
        await stack.enter_async_context(self._scope)

    @property
    def scope(self) -> Scope:
        """The tasks of the transactions."""
        return self._scope

    @property
    def options(self) -> TransactionOptions:
        """The options of the transactions."""
        return self._options

    def call(self, call: Call, queue: WorkQueue, give_up: GiveUp) -> Call:
        """Return a call that keeps what `call` sends, until a transaction commits its item."""
        self._queues[queue] = None

        def refused(outputs: Outputs, error: Exception) -> None:
            self._scope.start(self._give_up(outputs, error, queue, give_up), "give up outputs")

        async def collect(item: Item) -> Any:  # noqa: ANN401 - what the handler returns
            task = asyncio.current_task()
            assert task is not None
            work = queue.running[task].work
            assert work is not None
            outputs = Outputs(item, refused)
            _current.set((work, outputs))
            offset = outputs.offsets[0]
            work.outputs.pop(offset, None)  # of a failed attempt
            result = await call(item)
            if outputs.records and work.state is not WorkState.OVER:
                work.outputs[offset] = outputs
                self._add(outputs.size)
            return result

        return collect

    async def _give_up(
        self, outputs: Outputs, error: Exception, queue: WorkQueue, give_up: GiveUp
    ) -> None:
        """Apply the failure policy to the records of outputs that a topic refuses."""
        first = first_of(outputs.item)
        work = queue.partitions.get(TopicPartition(first.topic, first.partition))
        if work is None or work.outputs.get(first.offset) is not outputs:
            return
        _current.set((work, outputs))
        del work.outputs[first.offset]
        records = outputs.item if isinstance(outputs.item, list) else [outputs.item]
        try:
            for record in records:
                await give_up(record, error, 1)
        except Exception as failure:  # noqa: BLE001 - it stops the app
            work.outputs[first.offset] = outputs  # not processed
            self.fail(failure)

    # --- the size of the outputs -----------------------------------------------------------------

    def _add(self, size: int) -> None:
        self._buffered += size
        if self._buffered >= _MAX_BUFFERED_BYTES:
            for queue in self._queues:
                queue.block()

    def measure(self) -> None:
        """Count the kept outputs again. Accept more records if there is room."""
        works = [
            work
            for queue in self._queues
            for work in queue.partitions.values()
            if work.state is not WorkState.OVER
        ]
        self._buffered = sum(each.size for work in works for each in work.outputs.values())
        if self._buffered < _MAX_BUFFERED_BYTES:
            for queue in self._queues:
                queue.unblock()

    def work(self, tp: TopicPartition) -> PartitionWork | None:
        """Return the last assignment of a partition."""
        return next(
            (queue.partitions[tp] for queue in self._queues if tp in queue.partitions), None
        )

    def store(self, stored: OffsetStore, identity: Identity) -> OffsetStore:
        """Return an offset store that commits in transactions, and loads from `stored`."""
        return TransactionalOffsets(self, stored, identity)


def _refuse_again(outputs: Outputs, error: Exception) -> None:
    raise error


class _Attempt(NamedTuple):
    """The commits of a transaction, with the work of each partition."""

    plans: dict[TopicPartition, CommitPlan]
    works: dict[TopicPartition, PartitionWork]

    def outputs(self) -> Iterator[Outputs]:
        """Yield the outputs of all partitions."""
        for plan in self.plans.values():
            yield from plan.outputs

    def done(self, tp: TopicPartition) -> None:
        """Forget the outputs of a partition, because they are written."""
        work = self.works.get(tp)
        for each in self.plans[tp].outputs:
            if work is not None and work.outputs.get(each.offsets[0]) is each:
                del work.outputs[each.offsets[0]]


class TransactionalOffsets:
    """An offset store whose commits are transactions with the outputs of the processed records.

    The coordinator of the group checks the member of each transaction. So a transaction of a member
    that has lost partitions fails, and the outputs of the others are part of the next one.
    """

    def __init__(self, parts: ExactlyOnce, stored: OffsetStore, identity: Identity) -> None:
        self._parts = parts
        self._stored = stored
        self._identity = identity
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._longest = LONGEST
        self._running: asyncio.Task[ConsumerError | None] | None = None
        self._in_doubt: _Attempt | None = None  # its commit has no result
        self._began = 0.0

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offsets. No open transaction may change them any more."""
        loaded = await self._stored.load(partitions)
        for tp, offset in loaded.items():
            self._committed.pop(tp, None)
            if offset is not None:
                self._committed[tp] = _key(offset)
        return loaded

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets and the outputs of the records before them.

        A transaction continues if this call is cancelled, and the next call waits for it.
        """
        while self._running is not None:
            await asyncio.wait({self._running})
        if self._in_doubt is not None:
            await self._resolve(self._in_doubt)
        # partitions and member belong together, so there is no await from here to the task
        if (attempt := self._plan(offsets)) is None:
            return
        if (member := self._identity()) is None:
            raise NothingClaimed(self._parts.group_id)
        group = GroupMetadata.of(self._parts.group_id, member)
        work = self._parts.scope.start(self._run(attempt, group), "commit a transaction")
        self._running = work
        work.add_done_callback(self._ended)
        await asyncio.wait({work})
        if not work.cancelled() and (error := work.result()) is not None:
            raise error

    def _ended(self, task: object) -> None:
        self._running = None
        self._parts.measure()

    def _plan(self, offsets: Mapping[TopicPartition, int]) -> _Attempt | None:
        """Return the commits that change something, or None."""
        plans, works = {}, {}
        for tp, offset in offsets.items():
            work = self._parts.work(tp)
            outputs = {} if work is None else work.outputs
            plan = plan_commit(offset, outputs, self._longest)
            if plan.outputs or self._committed.get(tp) != _key(plan.offset):
                plans[tp] = plan
                if work is not None:
                    works[tp] = work
        return _Attempt(plans, works) if plans else None

    async def _run(self, attempt: _Attempt, group: GroupMetadata) -> ConsumerError | None:
        """Run a transaction, and return its error."""
        sending = _Sending(self._parts.producer)
        offsets = {tp: plan.offset for tp, plan in attempt.plans.items()}
        self._began = asyncio.get_running_loop().time()
        try:
            async with self._parts.producer.transaction() as transaction:
                await sending.send(attempt.outputs())
                await transaction.send_offsets(offsets, group)
        except ConsumerError as error:
            self._failed(attempt, sending, error)
            return error
        for tp in attempt.plans:
            self._done(attempt, tp)
        return None

    def _done(self, attempt: _Attempt, tp: TopicPartition) -> None:
        attempt.done(tp)
        self._committed[tp] = _key(attempt.plans[tp].offset)

    def _failed(self, attempt: _Attempt, sending: "_Sending", error: ConsumerError) -> None:
        """Decide how to continue after a transaction has failed. The next one repeats its work."""
        cause = error.cause if isinstance(error, TransactionAborted) else error
        if isinstance(cause, TransactionInDoubt):
            self._in_doubt, cause = attempt, cause.cause
        if isinstance(cause, ProducerFenced | InvalidProducerEpoch):
            self._in_doubt = attempt
            self._take_over(cause)
        elif isinstance(cause, OffsetMetadataTooLarge):
            self._longest //= 2
            _log.warning("the brokers accept less offset metadata: %d characters", self._longest)
        elif (refused := sending.refused(error)) is not None:
            refused.refused(refused, cause)
        elif not (cause.retriable or isinstance(cause, _REPEATED)):
            self._parts.fail(cause)

    def _take_over(self, error: ConsumerError) -> None:
        """Continue with a new epoch if the transaction timed out. Otherwise stop the app."""
        seconds = asyncio.get_running_loop().time() - self._began
        options = self._parts.options
        if options.is_named and seconds < options.timeout_ms / 1000:
            self._parts.fail(error)
            return
        self._parts.producer.take_over()

    async def _resolve(self, attempt: _Attempt) -> None:
        """Find out whether a transaction without a result was committed.

        A new epoch ends the transaction. Then the committed offsets show how it has ended. A
        partition that is being revoked is committed once more, so it counts, too. If another member
        owns a partition and has committed it since, its coordinator refuses the outputs.
        """
        async with self._parts.producer.transaction():
            pass
        loaded = await self._stored.load(attempt.plans)
        for tp, plan in attempt.plans.items():
            offset = loaded[tp]
            if offset is not None and _key(offset) == _key(plan.offset):
                self._done(attempt, tp)
        self._in_doubt = None


class _Sending:
    """The sending of outputs in a transaction."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer
        self._current: Outputs | None = None
        self._sent: list[tuple[Outputs, RecordDelivery]] = []

    async def send(self, each: Iterable[Outputs]) -> None:
        """Send all records of the outputs, in order."""
        producer = self._producer
        for outputs in each:
            self._current = outputs
            for record in outputs.records:
                delivery = producer.send_now(*record) or await producer.send_bytes(*record)
                self._sent.append((outputs, delivery))
        self._current = None

    def refused(self, error: ConsumerError) -> Outputs | None:
        """Return the outputs with a record that its topic refuses, or None."""
        if isinstance(error, _OF_A_RECORD):
            return self._current
        for outputs, delivery in self._sent:
            if isinstance(delivery.error, _OF_A_RECORD):
                return outputs
        return None


def _key(offset: int) -> tuple[int, str]:
    full = Offset.of(offset)
    return int(full), full.metadata

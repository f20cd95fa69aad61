"""Exactly-once handlers: outputs and offsets are committed in the same transaction.

An app has one transactional producer. The outputs of a handler call are kept until the call is
finished. The next transaction writes them and commits the offsets. There is no barrier between
transactions: if a call ends during a commit, its outputs belong to the next transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig, ProducerConfig, SendConfig
from asyncconsumer.consumer.dead_letters import Failure, dead_letter_headers
from asyncconsumer.errors import (
    ConsumerError,
    DeliveryTimedOut,
    FencedMemberEpoch,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NothingClaimed,
    OffsetMetadataTooLarge,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionInDoubt,
    UnknownMemberId,
    UnknownProducerId,
)
from asyncconsumer.handlers.commit_metadata import LONGEST
from asyncconsumer.handlers.invoke import CallHandler
from asyncconsumer.handlers.output_sender import OutputSender, is_of_a_record
from asyncconsumer.handlers.outputs import CommitPlan, Outputs, plan_commit
from asyncconsumer.handlers.partition_work import (
    Item,
    PartitionWork,
    WorkState,
    current_worker,
    first_of,
)
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers
from asyncconsumer.types import FindIdentity, GroupMetadata, Offset, TopicPartition

_log: Final = logging.getLogger(__name__)
_MAX_BUFFERED_BYTES: Final = 32 * 2**20
_SECONDS_BETWEEN_TRIES: Final = 1.0
_REPEATED: Final = (
    DeliveryTimedOut,
    # The member was fenced. Later transactions commit the partitions that it still owns.
    IllegalGeneration, UnknownMemberId, FencedMemberEpoch,
    # The next transaction has a new producer epoch.
    InvalidProducerIdMapping, InvalidTransactionState, TransactionAbortable, OutOfOrderSequence,
    UnknownProducerId,
)  # fmt: skip
"""Errors after which a transaction is repeated, in addition to those that are retriable."""

_FENCED: Final = (ProducerFenced, InvalidProducerEpoch)

_current: Final[ContextVar[Outputs]] = ContextVar("outputs")
"""The outputs of the handler call in the current task."""

GiveUp = Callable[[Record, BaseException, int], Awaitable[object]]
"""A function that applies the failure policy to a record, after a number of attempts."""


class TransactionOptions(NamedTuple):
    """The options of the transactions of an exactly-once app."""

    transactional_id: str
    is_named: bool  # the user chose the id; otherwise no other process can have it
    timeout_ms: int


class Collected:
    """A result of `send_now` that need not be awaited. A later transaction writes the record."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_COLLECTED: Final = Collected()


class OutputCollector:
    """A sender that writes no records. It keeps them as outputs of the current handler call."""

    def send_now(self, topic: str, key: bytes | None, value: bytes | None) -> Collected:
        """Keep a record without headers as an output of the current handler call."""
        _current.get().add(topic, key, value)
        return _COLLECTED

    async def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Collected:
        """Keep a record as an output of the current handler call."""
        _current.get().add(topic, key, value, headers, partition)
        return _COLLECTED


class CollectedDeadLetters:
    """A writer that keeps dead letters as outputs of the failed records.

    The next transaction writes them.
    """

    trouble: Final = None

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Do nothing, because the producer of the app writes the dead letters."""

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Replace the outputs of a failed record by its dead letter.

        Return -1, because the dead letter has no offset before the transaction.
        """
        work = _current.get().work
        outputs = Outputs(work, record, _refuse_again)
        headers = dead_letter_headers(record, failure)
        outputs.add(self.topic, record.key, record.value, headers, partition)
        if work.state is not WorkState.OVER:
            work.outputs[record.offset] = outputs
        return -1


class ExactlyOnce(AsyncResource):
    """The transactional producer of an app, and the outputs of its handlers until they are written.

    `fail` is called with an error that must stop the app.
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
        """The scope of the tasks that run transactions."""
        return self._scope

    @property
    def options(self) -> TransactionOptions:
        """The options of the transactions."""
        return self._options

    def call(self, call: CallHandler, queue: WorkQueue, give_up: GiveUp) -> CallHandler:
        """Return a function that calls the handler by `call` and keeps the records that it sends.

        The transaction that commits the offsets of the processed item writes these records. If a
        topic rejects one of them, `give_up` is called for each record of the item.
        """
        self._queues[queue] = None

        def refused(outputs: Outputs, error: Exception) -> None:
            self._scope.start(self._give_up(outputs, error, queue, give_up), "give up outputs")

        async def collect(item: Item) -> Any:  # noqa: ANN401 - what the handler returns
            work = current_worker.get().work
            assert work is not None
            outputs = Outputs(work, item, refused)
            _current.set(outputs)
            if work.outputs:
                work.outputs.pop(outputs.first, None)  # the outputs of a failed attempt
            result = await call(item)
            if not outputs.records:
                return result
            if work.state is not WorkState.OVER:
                work.outputs[outputs.first] = outputs
                self._add(outputs.size)
            return None

        return collect

    async def _give_up(
        self, outputs: Outputs, error: Exception, queue: WorkQueue, give_up: GiveUp
    ) -> None:
        """Drop outputs that a topic rejected, and call `give_up` for each record of their item."""
        first = first_of(outputs.item)
        work = queue.partitions.get(TopicPartition(first.topic, first.partition))
        if work is None or work.outputs.get(first.offset) is not outputs:
            return
        _current.set(outputs)
        del work.outputs[first.offset]
        records = outputs.item if isinstance(outputs.item, list) else [outputs.item]
        try:
            for record in records:
                await give_up(record, error, 1)
        except Exception as failure:  # noqa: BLE001 - it stops the app
            work.outputs[first.offset] = outputs  # the records count as unprocessed
            self.fail(failure)

    # --- the size of the outputs -----------------------------------------------------------------

    def _add(self, size: int) -> None:
        self._buffered += size
        if self._buffered >= _MAX_BUFFERED_BYTES:
            for queue in self._queues:
                queue.block()

    def measure(self) -> None:
        """Compute the size of the kept outputs. If it is below the limit, accept records again."""
        partitions = [
            work
            for queue in self._queues
            for work in queue.partitions.values()
            if work.state is not WorkState.OVER
        ]
        self._buffered = sum(each.size for work in partitions for each in work.outputs.values())
        if self._buffered < _MAX_BUFFERED_BYTES:
            for queue in self._queues:
                queue.unblock()

    def work(self, tp: TopicPartition) -> PartitionWork | None:
        """Return the `PartitionWork` of a partition's last assignment, or None without one."""
        return next(
            (queue.partitions[tp] for queue in self._queues if tp in queue.partitions), None
        )

    def store(self, stored: OffsetStore, identity: FindIdentity) -> OffsetStore:
        """Return an offset store that commits in transactions, and loads offsets from `stored`.

        `identity` returns the member that commits, or None if this app is not a member.
        """
        return TransactionalOffsets(self, stored, identity)


def _refuse_again(outputs: Outputs, error: Exception) -> None:
    raise error


class _Attempt(NamedTuple):
    """The offsets and outputs of one transaction, with the `PartitionWork` of each partition."""

    plans: dict[TopicPartition, CommitPlan]
    works: dict[TopicPartition, PartitionWork]

    def outputs(self) -> Iterator[Outputs]:
        """Yield the outputs of all partitions."""
        for plan in self.plans.values():
            yield from plan.outputs

    def done(self, tp: TopicPartition) -> None:
        """Drop the outputs of a partition, because they are written."""
        work = self.works.get(tp)
        for each in self.plans[tp].outputs:
            if work is not None and work.outputs.get(each.first) is each:
                del work.outputs[each.first]


class TransactionalOffsets:
    """An offset store whose commits are transactions with the outputs of the processed records.

    The group coordinator checks the member of each transaction. If the member has lost partitions,
    the transaction fails. The next one has only the outputs of the partitions that the member still
    owns.
    """

    def __init__(self, parts: ExactlyOnce, stored: OffsetStore, identity: FindIdentity) -> None:
        self._parts = parts
        self._stored = stored
        self._identity = identity
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._longest = LONGEST
        self._running: asyncio.Task[ConsumerError | None] | None = None
        self._in_doubt: _Attempt | None = None  # a transaction whose commit got no response
        self._tracks = False  # whether the next transaction looks for the rejected record
        self._began = 0.0

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        First wait for the transactions of this app, because one of them may still change the
        offsets. That happens if the member was lost and has returned in the same generation.
        `stored` waits for the open transactions of other producers.
        """
        while True:
            try:
                await self._settle()
                break
            except ConsumerError as error:
                if not _is_repeated(_cause(error)):
                    raise
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
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
        await self._settle()
        # No await from here to the task: the offsets and the member must be of one assignment.
        if (attempt := self._plan(offsets)) is None:
            return
        if (member := self._identity()) is None:
            raise NothingClaimed(self._parts.group_id)
        group = GroupMetadata.of(self._parts.group_id, member)
        await self._in_task(self._run(attempt, group), "commit a transaction")

    async def _settle(self) -> None:
        """Wait until no transaction is running, and the outcome of the last one is known."""
        while self._running is not None or self._in_doubt is not None:
            if self._running is not None:
                await asyncio.wait({self._running})
            elif self._in_doubt is not None:
                await self._in_task(self._resolve(self._in_doubt), "resolve a transaction")

    async def _in_task(self, work: Coroutine[Any, Any, ConsumerError | None], name: str) -> None:
        """Run a coroutine in a task of the app, and raise the error that it returns.

        The task continues if this call is cancelled.
        """
        task = self._running = self._parts.scope.start(work, name)
        task.add_done_callback(self._ended)
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.result()) is not None:
            raise error

    def _ended(self, task: object) -> None:
        self._running = None
        self._parts.measure()

    def _plan(self, offsets: Mapping[TopicPartition, int]) -> _Attempt | None:
        """Return the transaction for `offsets`, or None if it would change nothing."""
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
        """Run a transaction. Return its error, or None if it was committed."""
        sending = OutputSender(self._parts.producer, tracked=self._tracks)
        offsets = {tp: plan.offset for tp, plan in attempt.plans.items()}
        self._note_begin()
        try:
            async with self._parts.producer.transaction() as transaction:
                await sending.send(attempt.outputs())
                await transaction.send_offsets(offsets, group)
        except ConsumerError as error:
            self._failed(attempt, sending, error)
            return error
        self._tracks = False
        for tp in attempt.plans:
            self._done(attempt, tp)
        return None

    def _done(self, attempt: _Attempt, tp: TopicPartition) -> None:
        attempt.done(tp)
        self._committed[tp] = _key(attempt.plans[tp].offset)

    def _failed(self, attempt: _Attempt, sending: "OutputSender", error: ConsumerError) -> None:
        """Decide how to continue after a transaction has failed.

        The next transaction contains the outputs of `attempt` again, unless the app stops.
        """
        cause = error.cause if isinstance(error, TransactionAborted) else error
        if isinstance(cause, TransactionInDoubt):
            self._in_doubt, cause = attempt, cause.cause
        if isinstance(cause, _FENCED):
            self._in_doubt = attempt
            self._take_over(cause)
        elif isinstance(cause, OffsetMetadataTooLarge):
            self._longest //= 2
            _log.warning(
                "a commit failed, because its offset metadata is too long; the next commits have "
                "at most %d characters",
                self._longest,
            )
        elif (refused := sending.refused(error)) is not None:
            refused.refused(refused, cause)
        elif is_of_a_record(cause) and not self._tracks:
            self._tracks = True
        elif not _is_repeated(cause):
            self._parts.fail(cause)

    def _note_begin(self) -> None:
        """Store the time at which a transaction begins.

        If the producer has an unfinished transaction, keep the time of that one, because it may
        have timed out.
        """
        if not self._parts.producer.has_unfinished_transaction:
            self._began = asyncio.get_running_loop().time()

    def _take_over(self, error: ConsumerError) -> bool:
        """Use a new producer epoch for the next transaction, and return True.

        This is safe if the transaction has timed out, or if no other process can have the
        transactional id. Otherwise another process may have taken over. Then stop the app with
        `error`, and return False.
        """
        seconds = asyncio.get_running_loop().time() - self._began
        options = self._parts.options
        if options.is_named and seconds < options.timeout_ms / 1000:
            self._parts.fail(error)
            return False
        self._parts.producer.take_over()
        return True

    async def _resolve(self, attempt: _Attempt) -> ConsumerError | None:
        """Find out whether a transaction whose commit got no response was committed.

        First run an empty transaction with a new producer epoch, which ends the other one. Then the
        committed offsets show whether that one was committed. Outputs that were not written are
        written by the next transaction. If another member has committed a partition since, its
        outputs count as not written. The coordinator rejects their repetition, because this member
        no longer owns the partition.

        Return None, or the error of the empty transaction or of loading the offsets.
        """
        loaded: Mapping[TopicPartition, int | None] | None = None
        while loaded is None:
            self._note_begin()
            try:
                async with self._parts.producer.transaction():
                    pass
                loaded = await self._stored.load(attempt.plans)
            except ConsumerError as error:
                if not (isinstance(error, _FENCED) and self._take_over(error)):
                    return error
        for tp, plan in attempt.plans.items():
            offset = loaded[tp]
            if offset is not None and _key(offset) == _key(plan.offset):
                self._done(attempt, tp)
        self._in_doubt = None
        return None


def _cause(error: ConsumerError) -> ConsumerError:
    return error.cause if isinstance(error, TransactionAborted | TransactionInDoubt) else error


def _is_repeated(error: ConsumerError) -> bool:
    return error.retriable or isinstance(error, _REPEATED)


def _key(offset: int) -> tuple[int, str]:
    full = Offset.of(offset)
    return int(full), full.metadata

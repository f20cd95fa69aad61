"""The transactions of a producer, whose records and offsets are visible together or not at all."""

import asyncio
import enum
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.errors import (
    BrokerError,
    ConfigError,
    ConsumerError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAborted,
    TransactionInDoubt,
)
from asyncconsumer.producer.transaction_requests import TransactionRequests
from asyncconsumer.records.batch_encoder import BatchProducer
from asyncconsumer.types import GroupMetadata, TopicPartition

_log: Final = logging.getLogger(__name__)


class TransactionState(enum.Enum):
    """The state of a transactional producer."""

    NEW = "no transaction is open, and the next one needs a new epoch"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    ENDING = "a transaction is being committed"
    FENCED = "another producer has the same `transactional_id`"


class BatchSender(Protocol):
    """The interface of a producer's sender, for the transactions of the producer."""

    async def flush(self) -> None:
        """Wait until all records are written or have failed. Raise the first record's error."""

    def give_up(self, error: ConsumerError) -> None:
        """Fail all records that are not written yet with `error`."""

    def activate(self, tp: TopicPartition) -> None:
        """Send the batches of a partition, which is now part of the transaction."""

    def restart(self, producer: BatchProducer) -> None:
        """Use another producer id or epoch for all partitions, with sequence numbers from 0.

        No record may be waiting to be written.
        """

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""


class Transaction:
    """An open transaction of a `Producer`, for the block of `Producer.transaction`."""

    def __init__(self, send: Callable[..., object]) -> None:
        self._send = send

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata | str
    ) -> None:
        """Commit offsets of a group together with the records of the transaction.

        `group` is `Consumer.group_metadata()` of the consumer that read the records. The group then
        rejects the offsets if the member is fenced. With only the name of a group, it accepts
        offsets from any producer.
        """
        metadata = GroupMetadata(group) if isinstance(group, str) else group
        await self._send(offsets, metadata)  # type: ignore[misc]


class ProducerTransactions:
    """The transactions of one producer, one at a time.

    The first transaction, and each one after an aborted one, begins with a new epoch. Late records
    of an aborted transaction therefore cannot become part of the next one.
    """

    def __init__(self, requests: TransactionRequests, sender: BatchSender) -> None:
        self._requests = requests
        self._sender = sender
        self._scope = Scope("transactions")
        self._state = TransactionState.NEW
        self._is_unfinished = False
        self._error: ConsumerError | None = None  # the first error of the open transaction
        self._partitions: set[TopicPartition] = set()  # the partitions of the open transaction
        self._groups: set[str] = set()
        self._to_add: set[TopicPartition] = set()  # partitions to add to the open transaction
        self._adding: asyncio.Task[None] | None = None
        self._aborting: asyncio.Task[None] | None = None

    @property
    def scope(self) -> Scope:
        """The scope of the tasks of transactions. The producer opens and closes it."""
        return self._scope

    @property
    def transactional_id(self) -> str:
        """The `transactional_id` of the producer, which no other running producer may have."""
        return self._requests.transactional_id

    def check_open(self) -> None:
        """Raise an error if no record can be added to the open transaction.

        The error is ConfigError if no transaction is open, and TransactionAborted if the open one
        has failed.
        """
        if self._state is not TransactionState.OPEN:
            raise ConfigError(
                f"the producer with `transactional_id` {self.transactional_id!r} sends only within "
                f"`async with producer.transaction()`: {self._state.value}"
            )
        if self._error is not None:
            raise TransactionAborted(self.transactional_id, self._error)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Return an async context manager of a transaction, which commits at the end of its block.

        If the block raises an exception, or if a record or an offset fails, the transaction is
        aborted.
        """
        await self._begin()
        try:
            yield Transaction(self._send_offsets)
            await self._commit()
        except BaseException:
            if self._state in (TransactionState.OPEN, TransactionState.ENDING):
                await self._abort()
            raise

    @property
    def is_unfinished(self) -> bool:
        """Whether the last transaction is open, or its end was not confirmed by the broker.

        The broker aborts such a transaction after its timeout, and then rejects this producer.
        """
        return self._is_unfinished

    def forget_identity(self) -> None:
        """Begin the next transaction with a new epoch, even after this producer was fenced."""
        self._requests.forget_identity()
        self._state = TransactionState.NEW

    # --- for the sender --------------------------------------------------------------------------

    def admits(self, tp: TopicPartition) -> bool:
        """Return whether records of a partition may be sent now.

        If the partition is not yet part of the transaction, begin to add it and return False. The
        sender is woken when the partition was added.
        """
        if tp in self._partitions:
            return True
        if self._error is None:
            self._to_add.add(tp)
            if self._adding is None:
                self._adding = self._scope.start(self._add_partitions(), "add partitions")
        return False

    def fail(self, error: ConsumerError) -> None:
        """Fail all records of the open transaction, because one of them has failed."""
        if self._error is None and self._state in (TransactionState.OPEN, TransactionState.ENDING):
            self._error = error
            self._sender.give_up(TransactionAborted(self.transactional_id, error))

    async def _add_partitions(self) -> None:
        try:
            while self._to_add:
                partitions, self._to_add = self._to_add, set()
                await self._requests.add_partitions(partitions)
                self._partitions |= partitions
                for tp in partitions:
                    self._sender.activate(tp)
        except ConsumerError as error:
            self.fail(error)
        finally:
            self._adding = None

    # --- the steps of a transaction --------------------------------------------------------------

    async def _begin(self) -> None:
        self._scope.check_open()
        if self._state in (TransactionState.OPEN, TransactionState.ENDING):
            raise ConfigError(
                f"the producer with `transactional_id` {self.transactional_id!r} has an open "
                "transaction: a producer has one at a time. End it, or use another producer"
            )
        if self._aborting is not None:
            await asyncio.wait({self._aborting})
        if self._state is TransactionState.FENCED:
            raise ProducerFenced(f"transactional id {self.transactional_id!r}")
        if self._state is TransactionState.NEW:
            self._sender.restart(await self._init())
        self._is_unfinished = True
        self._error = None
        self._partitions, self._groups, self._to_add = set(), set(), set()
        self._state = TransactionState.OPEN

    async def _init(self) -> BatchProducer:
        try:
            return await self._requests.init()
        except ProducerFenced:
            self._state = TransactionState.FENCED
            raise

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> None:
        self.check_open()
        if not offsets:
            return
        is_new = group.group_id not in self._groups
        self._groups.add(group.group_id)  # the group counts as added even if the response is lost
        try:
            await self._requests.add_offsets(group, offsets, is_new=is_new)
        except ConsumerError as error:
            self.fail(error)
            raise

    async def _commit(self) -> None:
        self._state = TransactionState.ENDING
        try:
            await self._sender.flush()
        except ConsumerError as error:
            self.fail(error)
        if self._error is not None:
            raise TransactionAborted(self.transactional_id, self._error) from self._error
        if self._partitions or self._groups:
            await self._end_with_commit()
        self._state = TransactionState.READY
        self._is_unfinished = False

    async def _end_with_commit(self) -> None:
        lost: list[bool] = []  # attempts without a result
        try:
            await self._requests.end(commit=True, on_lost=lambda: lost.append(True))
        except asyncio.CancelledError:
            self._state = TransactionState.NEW
            raise
        except ConsumerError as error:
            fenced = isinstance(error, ProducerFenced)
            self._state = TransactionState.FENCED if fenced else self._state
            if lost or error.retriable:
                self._state = TransactionState.FENCED if fenced else TransactionState.NEW
                raise TransactionInDoubt(self.transactional_id, error) from error
            if fenced:
                raise
            raise TransactionAborted(self.transactional_id, error) from error

    async def _abort(self) -> None:
        """Abort the open transaction in a task, which continues if the caller is cancelled."""
        self._state = TransactionState.NEW
        cause = self._error or ConfigError("the block of the transaction raised an exception")
        self._error = cause
        self._sender.give_up(TransactionAborted(self.transactional_id, cause))
        self._aborting = self._scope.start(self._end_with_abort(), "abort a transaction")
        await asyncio.wait({self._aborting})

    async def _end_with_abort(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.wait({self._adding})
        try:
            # a record that arrives after the end would open the transaction again
            await wait_until(lambda: self._sender.is_idle)
            if isinstance(self._error, ProducerFenced | InvalidProducerIdMapping):
                is_fenced = isinstance(self._error, ProducerFenced)
                self._state = TransactionState.FENCED if is_fenced else self._state
            else:
                if self._partitions or self._to_add or self._groups:
                    await self._requests.end(commit=False)
                self._is_unfinished = False
        except ProducerFenced:
            self._state = TransactionState.FENCED
        except BrokerError as error:  # for example, the transaction has no record yet
            self._is_unfinished = isinstance(error, InvalidProducerEpoch)
            _log.debug(
                "the coordinator of %s refused to abort a transaction: %s",
                self.transactional_id,
                error,
            )
        except ConsumerError as error:
            _log.warning(
                "failed to abort a transaction of %s: %s; the next transaction or "
                "`transaction_timeout_ms` aborts it",
                self.transactional_id,
                error,
            )
        finally:
            self._aborting = None

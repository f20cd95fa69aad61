"""Offsets that a producer's transaction commits together with its output records."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Protocol

from asyncconsumer import aiokafka_parts
from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import TransactionFenced
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.membership import Membership
from asyncconsumer.producer.producer import Producer
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.types import NO_MEMBER, GroupMetadata, TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_TO_COMMIT: Final = 10.0  # if the caller is cancelled during the commit


class TransactionalProducer(Protocol):
    """The interface of aiokafka's producer, started with a ``transactional_id``.

    It sends no member id with the offsets. The group therefore cannot reject the offsets of a
    member that was fenced.
    """

    def transaction(self) -> Any:  # noqa: ANN401 - untyped there
        """Return an async context manager that begins and commits a transaction.

        After an exception it aborts the transaction.
        """

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_id: str, /
    ) -> object:
        """Add offsets of the group to the current transaction, which commits them."""


class Transactions:
    """The transactions that commit the offsets of a consumer. Only one runs at a time."""

    def __init__(
        self, group_id: str, membership: Membership, rebalancer: Rebalancer, manager: FetchManager
    ) -> None:
        self._group_id = group_id
        self._membership = membership
        self._rebalancer = rebalancer
        self._manager = manager
        self._done: dict[
            tuple[TopicPartition, int], int
        ] = {}  # offset after the last committed record, by partition and `PartitionRoute.since`
        self._any = False  # whether a transaction was opened

    @asynccontextmanager
    async def transaction(self, producer: Producer | TransactionalProducer) -> AsyncIterator[None]:
        """Return an async context manager that commits offsets in a transaction of the producer.

        The offsets are those of all records delivered by the end of the block. If the transaction
        aborts, these records are redelivered. It aborts if a partition with such records was
        revoked or lost meanwhile, because another member reads them.
        """
        self._any = True
        self._bases()
        block, done = _Ended(producer.transaction()), dict[tuple[TopicPartition, int], int]()
        try:
            async with block:
                yield
                self._check()
                offsets = self._handed_out(self._bases())
                current = self._assignments()
                done = {(tp, current[tp]): offset for tp, offset in offsets.items()}
                if offsets:
                    await _add_offsets(producer, block.opened, offsets, self.group_metadata())
                self._check()
        finally:
            if block.committed:
                self._are_done(done)
                self._acknowledge({tp: offset for (tp, _), offset in done.items()})
            else:
                self._go_back()
            self._rebalancer.forget_revoked()

    def group_metadata(self) -> GroupMetadata:
        """Return the group id and the identity of the member, for TxnOffsetCommit requests."""
        member = getattr(self._membership, "identity", None)
        return GroupMetadata.of(self._group_id, NO_MEMBER if member is None else member)

    def back_to(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `offsets`, each reduced to the offset that the last transaction committed.

        Records from that offset on are not processed, even if they are acknowledged.
        """
        bases = self._bases()
        if not self._any:
            return dict(offsets)
        return {tp: min(offset, bases.get(tp, offset)) for tp, offset in offsets.items()}

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the committed offsets of partitions that the user moved with a seek.

        Their next transaction starts at the new positions.
        """
        reading = self._rebalancer.reading
        for tp in partitions:
            self._done.pop((tp, reading[tp].since), None)

    def _assignments(self) -> dict[TopicPartition, int]:
        return {tp: routed.since for tp, routed in self._rebalancer.reading.items()}

    def _check(self) -> None:
        """Raise TransactionFenced if a partition with delivered records may have another owner."""
        now = asyncio.get_running_loop().time()
        revoked = [
            tp
            for tp, (since, position) in self._rebalancer.revoked.items()
            if position > self._done.get((tp, since), -1)
        ]
        if revoked or self._membership.lost or now >= self._membership.deadline:
            raise TransactionFenced(self._group_id, revoked)

    def _handed_out(self, bases: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the position of each partition of which records after `bases` were delivered."""
        positions = {tp: self._rebalancer.position(tp) for tp in self._rebalancer.reading}
        return {
            tp: position
            for tp, position in positions.items()
            if position is not None and position > bases.get(tp, position)
        }

    def _bases(self) -> dict[TopicPartition, int]:
        """Return the offset that the last transaction committed for each assigned partition.

        Before the first transaction it is the partition's start offset.
        """
        begun, current = self._manager.start_offsets(), self._assignments()
        for tp in current.keys() & begun.keys():
            self._done.setdefault((tp, current[tp]), begun[tp])
        return {place[0]: self._done[place] for place in current.items() if place in self._done}

    def _are_done(self, done: dict[tuple[TopicPartition, int], int]) -> None:
        """Store `done`, the offsets of a committed transaction.

        Each key is a partition and the `since` of its route, which identifies its assignment. Drop
        the offsets of partitions that are not assigned any more.
        """
        current = self._assignments().items()
        self._done = {
            assignment: offset for assignment, offset in self._done.items() if assignment in current
        } | done

    def _acknowledge(self, committed: Mapping[TopicPartition, int]) -> None:
        """Acknowledge the records of each stream that has delivered no record after `committed`."""
        for stream in self._rebalancer.streams.all():
            positions = {tp: stream.position(tp) for tp in committed}
            if all(
                position is None or position == committed[tp] for tp, position in positions.items()
            ):
                stream.acknowledge()

    def _go_back(self) -> None:
        """Seek back to the last transaction's offsets, so that later records are redelivered."""
        bases = self._bases()
        if again := {tp: bases[tp] for tp in self._handed_out(bases)}:
            self._rebalancer.seek(again)


async def _add_offsets(
    producer: Producer | TransactionalProducer,
    transaction: Any,  # noqa: ANN401 - as the producer returned it
    offsets: Mapping[TopicPartition, int],
    group: GroupMetadata,
) -> None:
    """Add the offsets of `group` to a transaction of `producer`, which commits them."""
    if isinstance(producer, Producer):
        await transaction.send_offsets(offsets, group)
        return
    theirs = {aiokafka_parts.TopicPartition(*tp): offset for tp, offset in offsets.items()}
    await producer.send_offsets_to_transaction(theirs, group.group_id)


class _Ended:
    """A producer's transaction whose commit is awaited even if the caller is cancelled.

    The producer commits even then, and records of a committed transaction must not be redelivered.
    """

    def __init__(self, block: AbstractAsyncContextManager[Any]) -> None:
        self.committed = False
        self.opened: Any = None  # what the block's context manager returned
        self._block = block
        self._error: Exception | None = None

    async def __aenter__(self) -> None:
        self.opened = await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            await self._block.__aexit__(kind, error, traceback)
            return
        async with Scope("a transaction") as scope:
            committing = scope.start(self._commit(), "commit a transaction")
            try:
                await asyncio.wait({committing})
            except asyncio.CancelledError:
                await asyncio.wait({committing}, timeout=_SECONDS_TO_COMMIT)
                raise
        if self._error is not None:
            raise self._error

    async def _commit(self) -> None:
        try:
            await self._block.__aexit__(None, None, None)
            self.committed = True
        except asyncio.CancelledError:
            _log.error(
                "the commit of a transaction was cancelled: its records are redelivered, even if "
                "the brokers committed it"
            )
            raise
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self._error = error

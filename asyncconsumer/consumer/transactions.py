"""Offsets that are committed by a transaction, together with what was made of the records."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiokafka import structs

from asyncconsumer.errors import TransactionFenced
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.membership import Membership
from asyncconsumer.model import TopicPartition
from asyncconsumer.rebalancer import Rebalancer


class TransactionalProducer(Protocol):
    """aiokafka's, started with a ``transactional_id``."""

    def transaction(self) -> Any:  # noqa: ANN401 - untyped there
        """A block that commits in the end, or aborts if something is raised."""

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_id: str, /
    ) -> object:
        """Have these committed with it."""


class Transactions:
    """One after the other, for one share of a group after the other."""

    def __init__(
        self, group_id: str, membership: Membership, rebalancer: Rebalancer, manager: FetchManager
    ) -> None:
        self._group_id = group_id
        self._membership = membership
        self._rebalancer = rebalancer
        self._manager = manager
        self._done: dict[tuple[TopicPartition, int], int] = {}  # by partition and epoch

    @asynccontextmanager
    async def transaction(self, producer: TransactionalProducer) -> AsyncIterator[None]:
        """All that was handed out up to its end is done with if it commits, and comes again if not.

        What a rebalance took while it was open is read by another: then it is aborted.
        """
        ours = self._epochs()
        try:
            async with producer.transaction():
                yield
                self._check(ours)
                offsets = self._handed_out()
                if offsets:
                    theirs = {structs.TopicPartition(*one): at for one, at in offsets.items()}
                    await producer.send_offsets_to_transaction(theirs, self._group_id)
                self._check(ours)
        except BaseException:
            self._go_back()
            raise
        epochs = self._epochs()
        self._done = {(one, epochs[one]): at for one, at in offsets.items() if one in epochs}

    def _epochs(self) -> dict[TopicPartition, int]:
        return {one: routed.wanted.epoch for one, routed in self._rebalancer.reading.items()}

    def _check(self, ours: Mapping[TopicPartition, int]) -> None:
        """Nothing that we may have made something of belongs to another by now."""
        now, epochs = asyncio.get_running_loop().time(), self._epochs()
        gone = [one for one, epoch in ours.items() if epochs.get(one) != epoch]
        if gone or self._membership.lost or now >= self._membership.deadline:
            raise TransactionFenced(self._group_id, gone)

    def _handed_out(self) -> dict[TopicPartition, int]:
        """Up to where, of each partition of which there was something since the last one."""
        found = {one: self._rebalancer.position(one) for one in self._rebalancer.reading}
        bases = self._bases()
        return {one: at for one, at in found.items() if at is not None and at > bases.get(one, at)}

    def _bases(self) -> dict[TopicPartition, int]:
        """Up to where each partition is done with: the last transaction, or where it began."""
        begun = self._manager.begun()
        return {
            one: max(self._done.get((one, epoch), -1), begun.get(one, -1))
            for one, epoch in self._epochs().items()
            if one in begun
        }

    def _go_back(self) -> None:
        """What was handed out since the last one is to come again."""
        bases = self._bases()
        if again := {one: bases[one] for one in self._handed_out()}:
            self._rebalancer.seek(again)

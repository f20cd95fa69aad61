"""Offsets that are committed by a transaction, together with what was made of the records."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
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
        self._done: dict[
            tuple[TopicPartition, int], int
        ] = {}  # up to where, by since when it is ours
        self._any = False  # whether there was one

    @asynccontextmanager
    async def transaction(self, producer: TransactionalProducer) -> AsyncIterator[None]:
        """All that was handed out up to its end is done with if it commits, and comes again if not.

        What a rebalance took while it was open is read by another: then it is aborted.
        """
        self._any = True
        self._bases()
        try:
            async with producer.transaction():
                yield
                self._check()
                offsets = self._handed_out(self._bases())
                done = {(one, self._ours()[one]): at for one, at in offsets.items()}
                if offsets:
                    theirs = {structs.TopicPartition(*one): at for one, at in offsets.items()}
                    await producer.send_offsets_to_transaction(theirs, self._group_id)
                self._check()
        except BaseException:
            self._go_back()
            raise
        finally:
            self._rebalancer.forget_given_up()
        self._done = {
            place: at for place, at in self._done.items() if place in self._ours().items()
        }
        self._done |= done

    def back_to(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """From where to read again: what is in no transaction yet is not done, however it looks."""
        bases = self._bases()
        if not self._any:
            return dict(offsets)
        return {one: min(at, bases.get(one, at)) for one, at in offsets.items()}

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """Their reader wants to read elsewhere: where it goes is where the next one begins."""
        ours = self._ours()
        for one in partitions:
            self._done.pop((one, ours[one]), None)

    def _ours(self) -> dict[TopicPartition, int]:
        return {one: routed.since for one, routed in self._rebalancer.reading.items()}

    def _check(self) -> None:
        """Nothing that we may have made something of belongs to another by now."""
        now = asyncio.get_running_loop().time()
        gone = [
            one
            for one, (since, position) in self._rebalancer.given_up.items()
            if position > self._done.get((one, since), -1)
        ]
        if gone or self._membership.lost or now >= self._membership.deadline:
            raise TransactionFenced(self._group_id, gone)

    def _handed_out(self, bases: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Up to where, of each partition of which there was something since the last one."""
        found = {one: self._rebalancer.position(one) for one in self._rebalancer.reading}
        return {one: at for one, at in found.items() if at is not None and at > bases.get(one, at)}

    def _bases(self) -> dict[TopicPartition, int]:
        """Up to where each partition is done with: the last transaction, or where it began."""
        begun, ours = self._manager.begun(), self._ours()
        for one in ours.keys() & begun.keys():
            self._done.setdefault((one, ours[one]), begun[one])
        return {place[0]: self._done[place] for place in ours.items() if place in self._done}

    def _go_back(self) -> None:
        """What was handed out since the last one is to come again."""
        bases = self._bases()
        if again := {one: bases[one] for one in self._handed_out(bases)}:
            self._rebalancer.seek(again)

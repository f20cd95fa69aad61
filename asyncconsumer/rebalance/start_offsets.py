"""Where to begin with new partitions: at the offset given, the one committed, or the reset."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from asyncconsumer.aio.cancel_when import unless
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.membership import Assignment, Membership
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.rebalance.ports import OffsetCommits, RebalancePolicy
from asyncconsumer.types import TopicPartition

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES: Final = 0.5
NO_OFFSET: Final = -3
"""No offset is committed and auto_offset_reset is "none": a seek must say where to begin."""


class StartOffset(NamedTuple):
    """The first offset to read, or EARLIEST, LATEST or NO_OFFSET; and the offset to stop at."""

    offset: int
    end: int | None


class StartOffsets:
    """Finds the starts of partitions. Every retriable error is tried again."""

    def __init__(
        self, membership: Membership, offsets: OffsetCommits, policy: RebalancePolicy
    ) -> None:
        self._membership = membership
        self._offsets = offsets
        self._policy = policy

    async def of(
        self,
        partitions: Collection[TopicPartition],
        assignment: Assignment,
        read_before: Collection[TopicPartition],
    ) -> dict[TopicPartition, StartOffset] | None:
        """The start of each; None if another assignment has to be handled first.

        A fresh partition begins at its first record, unless it is in `read_before`.
        """
        fresh = assignment.fresh.difference(read_before)
        loaded = [tp for tp in partitions if tp not in assignment.starts]
        committed = await self._load_with_retry(self._offsets.load, loaded) if loaded else {}
        ends = await self._load_with_retry(self._policy.ends, partitions)
        if committed is None or ends is None:
            return None
        starts: dict[TopicPartition, StartOffset] = {}
        for tp in partitions:
            offset = assignment.starts.get(tp, committed.get(tp))
            if offset is None:
                offset = EARLIEST if tp in fresh else self.reset
            starts[tp] = StartOffset(offset, ends.get(tp))
        return starts

    @property
    def reset(self) -> int:
        """Where auto_offset_reset says to begin."""
        resets = {"earliest": EARLIEST, "latest": LATEST}
        return resets.get(self._policy.auto_offset_reset, NO_OFFSET)

    async def _load_with_retry(
        self,
        ask: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, T]]],
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, T] | None:
        """Their offsets, as soon as they can be had; None if there is something else to do first.

        Offsets may not be there for long, as while a transaction is open, or for as long as no
        broker can be asked. The group, which waits for us to be in its next generation, need not.
        """
        quiet = RateLimitedLogger(_log)
        async with unless(self._superseded, every=_SECONDS_BETWEEN_TRIES):
            while not self._membership.lost:
                try:
                    return await ask(partitions)
                except ConsumerError as error:
                    if not error.retriable:
                        raise
                    quiet.warning("offsets of %d partitions: %s", len(partitions), error)
                    await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        return None

    def _superseded(self) -> bool:
        """Whether what we were given is not ours any more, or is about to be given anew."""
        return self._membership.lost or self._membership.rebalance_pending()

"""The start offsets of new partitions: given by the user, committed, or by `auto_offset_reset`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from asyncconsumer.aio.interrupt import cancel_when
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
"""No offset is committed and `auto_offset_reset` is "none", so a seek is needed."""


class StartOffset(NamedTuple):
    """The offset at which reading of a partition starts, and the end offset.

    The start may be EARLIEST, LATEST or NO_OFFSET. The end is None if reading has no end.
    """

    offset: int
    end: int | None


class StartOffsets:
    """A lookup of start offsets. Retriable errors are retried."""

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
        """Return the start of each partition, or None if a newer assignment becomes due.

        A new partition of a topic (in `assignment.fresh`) without a committed offset starts at its
        first record, unless this consumer has read it before (`read_before`).
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
        """The start that `auto_offset_reset` gives: EARLIEST, LATEST, or NO_OFFSET for "none"."""
        resets = {"earliest": EARLIEST, "latest": LATEST}
        return resets.get(self._policy.auto_offset_reset, NO_OFFSET)

    async def _load_with_retry(
        self,
        ask: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, T]]],
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, T] | None:
        """Await `ask(partitions)`, again after retriable errors, and return its result.

        Return None if the assignment is lost or a newer one is due. Loading may take long, for
        example while a transaction is open or no broker responds. The next generation of the group
        must not wait for this member.
        """
        log = RateLimitedLogger(_log)
        async with cancel_when(self._superseded, every=_SECONDS_BETWEEN_TRIES):
            while not self._membership.lost:
                try:
                    return await ask(partitions)
                except ConsumerError as error:
                    if not error.retriable:
                        raise
                    text = "failed to load the offsets of %d partitions; trying again: %s"
                    log.warning(text, len(partitions), error)
                    await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        return None

    def _superseded(self) -> bool:
        """Return whether the assignment was lost, or a newer one is due."""
        return self._membership.lost or self._membership.rebalance_pending()

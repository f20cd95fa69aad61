"""The committer of a consumer, which runs one commit at a time.

It prevents unintended commits of smaller offsets than the committed ones.
"""

import asyncio
import copy
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NoReturn

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ClosedError, ConsumerError, NothingClaimed
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.offsets.store import OffsetStore, check_offsets, commit_error, failed_partitions
from asyncconsumer.types import TopicPartition

_DROPPED: Final = "dropped commits"


@dataclass(slots=True, eq=False)
class _CommitBatch:
    """Offsets that are committed together, and the errors of partitions whose commit failed."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    failed: dict[TopicPartition, ConsumerError] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    attempt: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    def drop(self, partition: TopicPartition) -> bool:
        """Remove a partition from the batch. Return whether it was in the batch."""
        return self.offsets.pop(partition, None) is not None

    def begin(self) -> asyncio.Timeout:
        """Return the timeout of a new attempt to commit. A call of `withdraw` lets it expire."""
        self.attempt = asyncio.timeout(None)
        return self.attempt

    def fail(self, error: ConsumerError) -> int:
        """Store the error of each partition that failed with `error`.

        Remove partitions that this consumer does not own (`NothingClaimed`). Return the number of
        removed partitions.
        """
        self.failed = failed_partitions(self.offsets, error)
        lost = [tp for tp, why in self.failed.items() if isinstance(why, NothingClaimed)]
        for tp in lost:
            del self.failed[tp], self.offsets[tp]
        return len(lost)

    def withdraw(self) -> None:
        """Interrupt the attempt in flight, if there is one."""
        if not self.attempt.expired():
            self.attempt.reschedule(asyncio.get_running_loop().time())


class Committer:
    """The task that commits to an offset store for any number of other tasks.

    A caller of `commit` waits until the task, which executes `run`, has committed the offsets.

    Requests during a commit are collected for the next commit, with the largest offset of each
    partition. A larger offset includes the earlier records. Commits therefore neither overlap nor
    go back, in whatever order they were requested. An intended rewind needs `rewind`. If a position
    goes back because the log has changed, the reader must `forget` the partition.
    """

    def __init__(
        self,
        store: OffsetStore,
        counts: Counter[str] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.failures = 0  # commits that failed, at least in part
        self.last_error: ConsumerError | None = None
        self._store = store
        self._counts = Counter[str]() if counts is None else counts  # event counts
        self._recorder = recorder or Recorder()
        self._committed: dict[TopicPartition, int] = {}
        # largest requested offset since the partition was assigned
        self._furthest: dict[TopicPartition, int] = {}
        self._next = _CommitBatch()
        self._in_flight: _CommitBatch | None = None
        self._requested = asyncio.Event()
        self._stopped = False
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The last known committed offset of each assigned partition, after a load or a commit."""
        return MappingProxyType(self._committed)

    @property
    def dropped(self) -> int:
        """The number of offsets that were dropped because their partition was not assigned."""
        return self._counts[_DROPPED]

    def count_dropped(self, number: int) -> None:
        """Add `number` to the number of dropped offsets."""
        if number:
            self._counts[_DROPPED] += number

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None where none is committed."""
        offsets = await self._store.load(partitions)
        for tp, offset in offsets.items():
            self._committed.pop(tp, None)
            if offset is not None:
                self._committed[tp] = offset
        return offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, rewind: bool = False
    ) -> dict[TopicPartition, int]:
        """Commit `offsets`, or larger ones that were requested meanwhile.

        Return the committed offsets.

        With `rewind` the offsets are committed even if larger ones were committed before.
        Cancelling the wait does not cancel the commit. A partition that is forgotten meanwhile, or
        that the store reports as lost, is left out of the result without an error.
        """
        check_offsets(offsets)
        if self._stopped:
            raise ClosedError(
                "the membership has ended, so its offsets cannot be committed any more"
            )
        if not offsets:
            return {}
        batch = self._next
        for tp, offset in offsets.items():
            furthest = offset if rewind else max(offset, self._furthest.get(tp, offset))
            self._furthest[tp] = batch.offsets[tp] = furthest
        self._requested.set()
        await batch.over.wait()
        if failed := {tp: batch.failed[tp] for tp in offsets if tp in batch.failed}:
            error = commit_error(offsets, failed)
            raise copy.copy(error) from error  # raising an exception extends its traceback
        return {tp: batch.offsets[tp] for tp in offsets if tp in batch.offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of these partitions: the offsets to commit, and the last committed.

        Call this if the partitions are no longer assigned, or if their position has gone back. A
        commit in flight that includes them is interrupted, and then repeated without them. A commit
        that has reached the store cannot be undone.
        """
        committed, furthest, in_flight = self._committed, self._furthest, self._in_flight
        dropped = withdrawn = 0
        for tp in partitions:
            committed.pop(tp, None)
            furthest.pop(tp, None)
            dropped += self._next.drop(tp)
            withdrawn += in_flight is not None and in_flight.drop(tp)
        self.count_dropped(dropped + withdrawn)
        if in_flight is not None and withdrawn:
            in_flight.withdraw()

    async def flush(self) -> None:
        """Wait until all requested commits have succeeded or failed."""
        for batch in (self._in_flight, self._next):
            if batch is not None and batch.offsets:
                await batch.over.wait()

    async def run(self) -> NoReturn:
        """Commit requested offsets until cancelled. Calls of `commit` then raise `ClosedError`."""
        try:
            while True:
                await self._requested.wait()
                self._requested.clear()
                batch, self._next = self._next, _CommitBatch()
                self._in_flight = batch
                await self._commit_batch(batch)
                self._in_flight = None
                batch.over.set()
        finally:
            self._stop()

    async def _commit_batch(self, batch: _CommitBatch) -> None:
        """Commit a batch. If partitions are forgotten meanwhile, repeat the commit without them."""
        now = asyncio.get_running_loop().time
        while batch.offsets:
            began = now()
            try:
                async with batch.begin():
                    await self._store.commit(dict(batch.offsets))
            except TimeoutError:
                if not batch.attempt.expired():
                    raise
                continue
            except ConsumerError as error:
                self._failed(batch, error)
            self._recorder.commit_duration.observe(now() - began)
            self._committed |= {
                tp: offset for tp, offset in batch.offsets.items() if tp not in batch.failed
            }
            return

    def _failed(self, batch: _CommitBatch, error: ConsumerError) -> None:
        self.count_dropped(batch.fail(error))
        if not batch.failed:
            return
        self.failures += 1
        self.last_error = error
        self._recorder.count_error("commit_failures_total", error)
        self._log.warning("the commit of %d offsets failed: %s", len(batch.failed), error)

    def _stop(self) -> None:
        self._stopped = True
        for batch in (self._in_flight, self._next):
            if batch is not None:
                batch.fail(ClosedError("the membership ended before these offsets were committed"))
                batch.over.set()
        self._in_flight = None

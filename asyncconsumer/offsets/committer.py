"""The one who commits for a consumer: one commit at a time, and none that goes back unmeant."""

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
from asyncconsumer.offsets.store import OffsetStore, check_offsets, commit_error, failed_partitions
from asyncconsumer.types import TopicPartition

_DROPPED: Final = "dropped commits"


@dataclass(slots=True, eq=False)
class _CommitBatch:
    """Offsets that are committed together, and how that went."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    failed: dict[TopicPartition, ConsumerError] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    attempt: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    def drop(self, partition: TopicPartition) -> bool:
        """Leave a partition out, if it is in."""
        return self.offsets.pop(partition, None) is not None

    def begin(self) -> asyncio.Timeout:
        """A new attempt to commit it; `withdraw` ends it."""
        self.attempt = asyncio.timeout(None)
        return self.attempt

    def fail(self, error: ConsumerError) -> int:
        """The store says so, or nobody will ask it; how many are left out, for nothing is ours."""
        self.failed = failed_partitions(self.offsets, error)
        lost = [one for one, why in self.failed.items() if isinstance(why, NothingClaimed)]
        for one in lost:
            del self.failed[one], self.offsets[one]
        return len(lost)

    def withdraw(self) -> None:
        """End the attempt that is being made."""
        if not self.attempt.expired():
            self.attempt.reschedule(asyncio.get_running_loop().time())


class Committer:
    """Commits to a store what any number of tasks ask for. `run` must be running somewhere.

    While one commit is on its way, all that is asked for is collected for the next one: of each
    partition the largest offset, for whoever is done with a later record is done with the earlier
    ones. So commits neither overlap nor go back, in whatever order they were asked for. One that
    is meant to go back says so with `rewind`; a reader that was sent back by the broker, because
    the log is another, must `forget` the partition.
    """

    def __init__(self, store: OffsetStore, counts: Counter[str] | None = None) -> None:
        self.failures = 0  # commits of which something failed
        self.last_error: ConsumerError | None = None
        self._store = store
        self._counts = Counter[str]() if counts is None else counts  # of all that happens
        self._committed: dict[TopicPartition, int] = {}
        self._furthest: dict[TopicPartition, int] = {}  # that was asked for since it is ours
        self._next = _CommitBatch()
        self._underway: _CommitBatch | None = None
        self._asked = asyncio.Event()
        self._stopped = False
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """What the store has, as far as we loaded or committed it, of partitions that are ours."""
        return MappingProxyType(self._committed)

    @property
    def dropped(self) -> int:
        """How many offsets were asked for of partitions that were not ours any more."""
        return self._counts[_DROPPED]

    def drop(self, number: int) -> None:
        """So many more were."""
        if number:
            self._counts[_DROPPED] += number

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        found = await self._store.load(partitions)
        for one, offset in found.items():
            self._committed.pop(one, None)
            if offset is not None:
                self._committed[one] = offset
        return found

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, rewind: bool = False
    ) -> dict[TopicPartition, int]:
        """Return once these offsets are committed, or larger ones, or raise; what was committed.

        With `rewind` they are committed as they are, though larger ones may have been before.
        Who gives up waiting does not take back what it asked for. A partition that is forgotten
        meanwhile, or lost as the store knows, is not committed, and that is not an error.
        """
        check_offsets(offsets)
        if self._stopped:
            raise ClosedError("the committer has stopped: nothing more is committed")
        if not offsets:
            return {}
        batch = self._next
        for one, offset in offsets.items():
            furthest = offset if rewind else max(offset, self._furthest.get(one, offset))
            self._furthest[one] = batch.offsets[one] = furthest
        self._asked.set()
        await batch.over.wait()
        if failed := {one: batch.failed[one] for one in offsets if one in batch.failed}:
            error = commit_error(offsets, failed)
            raise copy.copy(error) from error  # tracebacks grow where an exception is raised
        return {one: batch.offsets[one] for one in offsets if one in batch.offsets}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not ours any more: commit nothing for them that is not committed yet.

        A commit that is on its way is withdrawn, for it might be tried again and again; it goes on
        without them. What has reached the store cannot be called back.
        """
        committed, furthest, underway = self._committed, self._furthest, self._underway
        dropped = withdrawn = 0
        for one in partitions:
            committed.pop(one, None)
            furthest.pop(one, None)
            dropped += self._next.drop(one)
            withdrawn += underway is not None and underway.drop(one)
        self.drop(dropped + withdrawn)
        if underway is not None and withdrawn:
            underway.withdraw()

    async def flush(self) -> None:
        """Wait until all that was asked for so far is committed or has failed."""
        for batch in (self._underway, self._next):
            if batch is not None and batch.offsets:
                await batch.over.wait()

    async def run(self) -> NoReturn:
        """Commit what is asked for, until cancelled. Then who still waits gets ClosedError."""
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                batch, self._next = self._next, _CommitBatch()
                self._underway = batch
                await self._settle(batch)
                self._underway = None
                batch.over.set()
        finally:
            self._stop()

    async def _settle(self, batch: _CommitBatch) -> None:
        """Commit a batch; anew without them if partitions are forgotten meanwhile."""
        while batch.offsets:
            try:
                async with batch.begin():
                    await self._store.commit(dict(batch.offsets))
            except TimeoutError:
                if not batch.attempt.expired():
                    raise
                continue
            except ConsumerError as error:
                self._failed(batch, error)
            self._committed |= {
                one: offset for one, offset in batch.offsets.items() if one not in batch.failed
            }
            return

    def _failed(self, batch: _CommitBatch, error: ConsumerError) -> None:
        self.drop(batch.fail(error))
        if not batch.failed:
            return
        self.failures += 1
        self.last_error = error
        self._log.warning("%d offsets were not committed: %s", len(batch.failed), error)

    def _stop(self) -> None:
        self._stopped = True
        for batch in (self._underway, self._next):
            if batch is not None:
                batch.fail(ClosedError("the committer was stopped before it could commit this"))
                batch.over.set()
        self._underway = None

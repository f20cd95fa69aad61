"""The committer with failing and slow stores and with cancelled callers."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    PartlyCommitted,
    TopicAccessDenied,
)
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.store import OffsetStore, commit_error
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

P0, P1, P2 = PARTITIONS = [TopicPartition("t", number) for number in range(3)]
Offsets = Mapping[TopicPartition, int]


class SlowStore(OffsetStore):
    """A store that takes a second for each commit, and refuses partitions in `refused`."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.asked: list[dict[TopicPartition, int]] = []
        self.busy = False
        self.open = asyncio.Event()
        self.open.set()
        self.refused: dict[TopicPartition, ConsumerError] = {}

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self.offsets.get(tp) for tp in partitions}

    async def commit(self, offsets: Offsets) -> None:
        assert not self.busy, "two commits overlap"
        self.busy = True
        self.asked.append(dict(offsets))
        try:
            await self.pause()
            self.keep(offsets)
        finally:
            self.busy = False

    async def pause(self) -> None:
        await asyncio.sleep(1)
        await self.open.wait()

    def keep(self, offsets: Offsets) -> None:
        failed = {tp: self.refused[tp] for tp in offsets if tp in self.refused}
        self.offsets |= {tp: offset for tp, offset in offsets.items() if tp not in failed}
        if failed:
            raise commit_error(offsets, failed)


@asynccontextmanager
async def running(committer: Committer) -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(committer.run(), name="committer")
        yield group
        task.cancel()


async def turn() -> None:
    """Let other tasks run until all of them wait."""
    await asyncio.sleep(0.1)


@simulated(seeds=range(20), limit=1000)
async def test_requests_during_a_commit_are_merged_into_one_commit() -> None:
    store = SlowStore()
    committer = Committer(store)
    async with running(committer) as group:
        group.create_task(committer.commit({P0: 1}))
        await turn()
        tasks = [
            group.create_task(committer.commit(offsets))
            for offsets in ({P0: 5, P1: 1}, {P0: 3}, {P0: 4, P2: 9})
        ]
        await asyncio.wait(tasks)
        assert store.asked == [{P0: 1}, {P0: 5, P1: 1, P2: 9}]
        assert committer.committed == store.offsets == {P0: 5, P1: 1, P2: 9}
        await committer.commit({})
        assert len(store.asked) == 2


@simulated(seeds=range(20), limit=1000)
async def test_only_a_rewind_commits_a_smaller_offset() -> None:
    store = SlowStore()
    committer = Committer(store)
    async with running(committer) as group:
        await committer.commit({P0: 10})
        await committer.commit({P0: 7, P1: 1})
        assert store.offsets == {P0: 10, P1: 1}
        await committer.commit({P0: 3}, rewind=True)
        assert store.offsets[P0] == committer.committed[P0] == 3
        await committer.commit({P0: 4})
        assert store.offsets[P0] == 4
        group.create_task(committer.commit({P0: 8}))
        await turn()
        await committer.commit({P0: 2}, rewind=True)  # while a larger offset is in flight
        assert store.offsets[P0] == 2
        committer.forget([P0])
        await committer.commit({P0: 1})  # by a new owner
        assert store.offsets[P0] == 1


@simulated(seeds=range(20), limit=1000)
async def test_a_failed_larger_offset_is_committed_with_a_later_commit() -> None:
    store = SlowStore()
    committer = Committer(store)
    async with running(committer):
        store.refused = {P0: ConnectionLost("k:1", "it broke")}
        with pytest.raises(ConnectionLost, match="it broke"):
            await committer.commit({P0: 10})
        assert (committer.failures, dict(committer.committed)) == (1, {})
        store.refused = {}
        await committer.commit({P0: 7})
        assert store.offsets == {P0: 10}
        assert isinstance(committer.last_error, ConnectionLost)


@simulated(seeds=range(20), limit=1000)
async def test_each_caller_gets_errors_of_its_own_partitions_only() -> None:
    store = SlowStore()
    committer = Committer(store)
    store.refused = {P1: TopicAccessDenied("t")}
    results: dict[str, Any] = {}

    async def commit(name: str, offsets: Offsets) -> None:
        try:
            await committer.commit(offsets)
            results[name] = None
        except ConsumerError as error:
            results[name] = error

    async with running(committer) as group:
        tasks = [
            group.create_task(commit(name, offsets))
            for name, offsets in {"good": {P0: 1}, "bad": {P1: 1}, "both": {P0: 1, P1: 1}}.items()
        ]
        await asyncio.wait(tasks)
    assert store.asked == [{P0: 1, P1: 1}]
    assert results["good"] is None
    assert isinstance(results["bad"], TopicAccessDenied)
    assert isinstance(results["both"], PartlyCommitted)
    assert results["bad"] is not store.refused[P1]  # each error has its own traceback
    assert (committer.failures, dict(committer.committed)) == (1, {P0: 1})


@simulated(seeds=range(20), limit=1000)
async def test_commits_of_a_forgotten_partition_are_dropped_without_errors() -> None:
    store = SlowStore()
    committer = Committer(store)
    async with running(committer) as group:
        store.open.clear()
        first = group.create_task(committer.commit({P0: 1, P1: 1}))
        await turn()
        second = group.create_task(committer.commit({P0: 2, P2: 2}))
        await turn()
        committer.forget([P0])  # the partition is in the commit in flight and in the next one
        committer.forget([P0])
        await turn()
        assert store.asked == [{P0: 1, P1: 1}, {P1: 1}]
        store.open.set()
        await asyncio.wait([first, second])
        assert store.offsets == {P1: 1, P2: 2}
        assert committer.dropped == 2
        assert (committer.failures, dict(committer.committed)) == (0, {P1: 1, P2: 2})
        store.open.clear()
        last = group.create_task(committer.commit({P1: 5}))
        await turn()
        committer.forget([P1])
        await last
        assert store.offsets[P1] == 1
        assert committer.committed == {P2: 2}


@simulated(seeds=range(20), limit=1000)
async def test_a_cancelled_caller_loses_no_commit() -> None:
    store = SlowStore()
    committer = Committer(store)
    async with running(committer):
        for offsets in ({P0: 1}, {P1: 1}, {P0: 2}):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await committer.commit(offsets)
        await committer.flush()
        assert store.offsets == committer.committed == {P0: 2, P1: 1}
        await committer.flush()


@simulated(seeds=range(20), limit=1000)
async def test_a_stopped_committer_fails_its_callers() -> None:
    store = SlowStore()
    committer = Committer(store)
    messages: list[str] = []

    async def commit(offsets: Offsets) -> None:
        with pytest.raises(ClosedError, match="membership ended before"):
            await committer.commit(offsets)
        messages.append("closed")

    async with asyncio.TaskGroup() as group, running(committer):
        group.create_task(commit({P0: 1}))
        await turn()
        group.create_task(commit({P0: 2}))
        await turn()
    assert messages == ["closed"] * 2
    assert not store.busy
    with pytest.raises(ClosedError, match="membership has ended"):
        await committer.commit({P0: 3})
    await committer.flush()
    committer.forget([P0])


@simulated(seeds=range(5), limit=1000)
async def test_an_unexpected_error_of_a_store_ends_the_committer() -> None:
    class Broken(SlowStore):
        def keep(self, offsets: Offsets) -> None:
            raise TimeoutError("a mistake")

    committer = Committer(Broken())
    with pytest.RaisesGroup(TimeoutError):
        async with running(committer):
            with pytest.raises(ClosedError):
                await committer.commit({P0: 1})


@simulated(seeds=range(5), limit=1000)
async def test_a_commit_may_be_smaller_than_the_loaded_offset() -> None:
    store = SlowStore()
    store.offsets = {P0: 100}
    committer = Committer(store)
    async with running(committer):
        assert await committer.load([P0, P1]) == {P0: 100, P1: None}
        assert committer.committed == {P0: 100}
        await committer.commit({P0: 50})  # the log was truncated and the reader restarted
        assert store.offsets == {P0: 50}
        store.offsets = {}
        await committer.load([P0])
        assert committer.committed == {}
        with pytest.raises(ConfigError, match="offset -1"):
            await committer.commit({P0: -1})
        with pytest.raises(TypeError):
            committer.committed[P0] = 1  # type: ignore[index] # read-only


# --- schedules -----------------------------------------------------------------------------------


class World(SlowStore):
    """A store that is slow, fails or hangs, with partitions that change owners, and checks."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = Random(seed)
        self.calm = False
        self.committer = Committer(self)
        self.positions = dict.fromkeys(PARTITIONS, 0)
        self.start = dict.fromkeys(PARTITIONS, 0)
        self.lost_at = dict.fromkeys(PARTITIONS, -1.0)
        self.tested = dict.fromkeys(PARTITIONS, 0)  # losses of each partition
        self.ended = self.failed = self.gave_up = 0

    async def pause(self) -> None:
        if self.calm:
            return
        if self.chance.random() < 0.05:
            await asyncio.Event().wait()  # until the commit is withdrawn
        await asyncio.sleep(self.chance.random() * self.chance.choice((0, 0.1, 3)))

    def keep(self, offsets: Offsets) -> None:
        now = asyncio.get_running_loop().time()
        self.refused = {}
        if not self.calm and self.chance.random() < 0.3:
            some = self.chance.sample(PARTITIONS, self.chance.randrange(4))
            self.refused = dict.fromkeys(some, ConnectionLost("k:1", "it broke"))
        for tp, offset in offsets.items():
            # a partition forgotten at this moment may have reached the store
            assert self.lost_at[tp] in (-1.0, now), "a commit of a lost partition"
            if self.lost_at[tp] == -1.0:
                assert offset >= self.offsets.get(tp, 0), "the committed offset decreased"
        super().keep(offsets)

    async def commit_some(self) -> None:
        mine = [tp for tp in PARTITIONS if self.lost_at[tp] == -1.0]
        chosen = self.chance.sample(mine, self.chance.randint(0, len(mine)))
        late = {tp: self.positions[tp] - self.chance.choice((0, 0, 1)) for tp in chosen}
        offsets = {tp: max(offset, self.start[tp]) for tp, offset in late.items()}
        held = {tp: self.tested[tp] for tp in chosen}
        try:
            async with asyncio.timeout(self.chance.choice((None, 0.05, 1))):
                await self.committer.commit(offsets)
        except TimeoutError:
            self.gave_up += 1
        except ConsumerError:
            self.failed += 1
        else:
            for tp, offset in offsets.items():
                if held[tp] == self.tested[tp]:
                    assert self.offsets[tp] >= offset, "the offset is not committed"
        self.ended += 1

    def change_owner(self) -> None:
        tp = self.chance.choice(PARTITIONS)
        if self.lost_at[tp] == -1.0:
            self.committer.forget([tp])
            self.tested[tp] += 1
            self.lost_at[tp] = asyncio.get_running_loop().time()
        elif self.lost_at[tp] < asyncio.get_running_loop().time():
            self.lost_at[tp] = -1.0
            self.positions[tp] = self.start[tp] = self.offsets.get(tp, 0)

    async def play(self, steps: int = 80) -> None:
        async with running(self.committer) as group:
            for _ in range(steps):
                for tp in self.positions:
                    self.positions[tp] += self.chance.randrange(3)
                group.create_task(self.commit_some())
                if self.chance.random() < 0.15:
                    self.change_owner()
                await asyncio.sleep(self.chance.random() * self.chance.choice((0, 0.1, 2)))
            self.committer.forget(PARTITIONS)  # hanging commits are withdrawn
            self.tested = {tp: count + 1 for tp, count in self.tested.items()}
            self.calm = True
            await self.committer.flush()
            final = {tp: self.offsets.get(tp, 0) + 5 for tp in PARTITIONS}
            self.lost_at = dict.fromkeys(PARTITIONS, -1.0)
            await self.committer.commit(final)
            assert self.offsets == self.committer.committed == final
        assert self.ended == steps


def play(seeds: range) -> list[World]:
    worlds: list[World] = []
    for seed in seeds:
        try:
            run(lambda: _play(seed, worlds), seed=seed, limit=100_000)  # noqa: B023 - called in the same iteration
        except BaseException as error:
            error.add_note(f"This was seed {seed}.")
            raise
    return worlds


async def _play(seed: int, worlds: list[World]) -> None:
    worlds.append(World(seed))
    await worlds[-1].play()


def test_commits_never_overlap_go_back_or_contain_lost_partitions() -> None:
    worlds = play(range(200))
    for count in ("failed", "gave_up"):
        assert sum(getattr(world, count) for world in worlds) > 500
    assert sum(world.committer.dropped for world in worlds) > 200

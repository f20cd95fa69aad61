"""Random walks through a landing folder: several writers, stopped before any call of the system.

A writer is a thread that waits before each call that touches the folder. The walk picks the writer
that goes on, so every interleaving can occur. Writers sleep for long, are killed, and new ones
start. Files get any age, and their reader takes them away. Each record must be in the lake exactly
once.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.spark.feeder.batches import BatchPart
from asyncconsumer.spark.sinks.landing import LandingFolder
from tests.support.feeder_tables import batch, in_a_row, joined, ranges

pytestmark = pytest.mark.fast

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = 12
CALLS = ("rename", "unlink", "symlink", "listdir", "readlink", "mkdir", "utime", "stat", "lstat")
DAY = 24 * 3600.0


class Killed(BaseException):
    """The end of a writer, wherever it was."""


class Quick(LandingFolder):
    """One that writes no Parquet, which would only take time."""

    def _write(self, path: Path, part: BatchPart) -> None:
        path.touch()


class Writer(threading.Thread):
    """One that writes what is not there yet, in batches of some size, until all is there."""

    def __init__(self, folder: Path, seed: int, arrived: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self.may_go = threading.Semaphore(0)
        self.killed = self.ended = False
        self._arrived = arrived
        self._folder = folder
        self._random = Random(seed)

    def run(self) -> None:
        try:
            self.gate()
            self._write_all()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - for the test to raise
            self.failure = error
        finally:
            self.ended = True
            self._arrived.release()

    def gate(self) -> None:
        """Wait to be picked."""
        if not self.killed:
            self._arrived.release()
            self.may_go.acquire()
        if self.killed:
            raise Killed

    def _write_all(self) -> None:
        socket = Quick(self._folder)
        socket.open()
        while True:
            ends = {place: end or 0 for place, end in socket.load(PLACES).items()}
            while remaining := [place for place in PLACES if ends[place] < RECORDS]:
                parts = []
                for place in remaining:
                    size = self._random.randint(1, 4)
                    until = min(ends[place] + size, RECORDS)
                    parts.append(batch(*place, ends[place], range(ends[place], until)))
                what = joined(*parts)
                if socket.publish(what, socket.prepare(what)):
                    break
                ends |= {place: part.end for place, part in what.parts.items()}
            if not remaining:
                return


class Walk:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.arrived = threading.Semaphore(0)
        self.writers = list[Writer]()
        self.seen: dict[TopicPartition, list[tuple[int, int]]] = {place: [] for place in PLACES}

    def go(self, steps: int) -> None:
        awake = list[Writer]()
        for _ in range(steps):
            if len(self.writers) < 4 and self.random.random() < 0.2:
                self.start()
            if self.random.random() < 0.05:
                awake = [writer for writer in self.writers if self.random.random() < 0.5]
            now = [writer for writer in awake if writer in self.writers] or self.writers
            if now:
                self.step(self.random.choice(now), killed=self.random.random() < 0.01)
            if self.random.random() < 0.1:
                self.age_files()
            if self.random.random() < 0.1:
                self.take_files()

    def finish(self) -> None:
        """Kill some, wake the others up, and have one more see to it that all is there."""
        for writer in self.random.sample(self.writers, len(self.writers)):
            killed = self.random.random() < 0.5
            while writer in self.writers:
                self.step(writer, killed=killed)
        last = self.start()
        while last in self.writers:
            self.step(last)
        self.take_files()

    def start(self) -> Writer:
        writer = Writer(self.folder, self.random.getrandbits(32), self.arrived)
        self.writers.append(writer)
        writer.start()
        self.arrived.acquire()
        return writer

    def step(self, writer: Writer, *, killed: bool = False) -> None:
        writer.killed = writer.killed or killed
        writer.may_go.release()
        self.arrived.acquire()
        if writer.ended:
            writer.join()
            self.writers.remove(writer)
            if writer.failure is not None:
                raise writer.failure

    def age_files(self) -> None:
        """As a clock makes them that jumps: days old, or not there for days."""
        for path in self.folder.rglob("*"):
            moment = 1.7e9 + self.random.choice((-9e8, -DAY, 0, 9e8))
            os.utime(path, (moment, moment), follow_symlinks=False)

    def take_files(self) -> None:
        """As Spark's cleanSource does."""
        for place, results in ranges(self.folder).items():
            self.seen[place] += results
        for path in self.folder.glob("*.parquet"):
            path.unlink()


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> None:
    def gate(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            if isinstance(item := threading.current_thread(), Writer):
                item.gate()
            return real(*values, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, gate(getattr(os, name)))
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def walk_of(tmp_path: Path) -> Iterator[Callable[[int], Walk]]:
    walks = list[Walk]()

    def start(seed: int) -> Walk:
        walks.append(Walk(tmp_path / str(seed), seed))
        return walks[-1]

    yield start
    for walk in walks:
        for writer in list(walk.writers):
            writer.killed = True
            writer.may_go.release()
            writer.join()


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 60, 20)])
def test_each_record_lands_once(seeds: range, walk_of: Callable[[int], Walk]) -> None:
    for seed in seeds:
        walk = walk_of(seed)
        walk.go(400)
        walk.finish()
        for place, results in walk.seen.items():
            assert (min(results)[0], max(results)[1]) == (0, RECORDS), (seed, place)
            assert in_a_row(sorted(results)), (seed, place, sorted(results))

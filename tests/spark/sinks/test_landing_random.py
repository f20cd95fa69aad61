"""Random interleavings of several writers of a landing folder, which stop before each system call.

A writer is a thread that waits before each call that accesses the folder. The walk picks the next
writer, so every interleaving can occur. Writers pause for long, are killed, and new ones start.
Files get any age, and their reader deletes them. Each record must be in the lake exactly once.

In an object store, a writer that dies between copy and deletion leaves a file. The next writer
copies it again, with a name that the reader has already seen.
"""

import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from asyncconsumer import TopicPartition
from asyncconsumer.spark.feeder.batches import BatchPart
from asyncconsumer.spark.sinks import object_store
from asyncconsumer.spark.sinks.landing import LandingFolder
from tests.support.feeder_tables import are_contiguous, batch, joined, ranges_of

pytestmark = pytest.mark.fast

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = 12
REQUESTS = ("put", "get", "head", "copy", "delete", "list")
CALLS = ("rename", "unlink", "symlink", "listdir", "readlink", "mkdir", "utime", "stat", "lstat")
DAY = 24 * 3600.0


class Killed(BaseException):
    """The end of a killed writer."""


class Quick(LandingFolder):
    """A local landing folder with empty files, because writing Parquet is slow."""

    def _write(self, name: str, part: BatchPart) -> None:
        (Path(self.folder) / "_pending" / name).touch()


class QuickObjects(LandingFolder):
    """A landing folder in an object store with empty files, because writing Parquet is slow."""

    def _write(self, name: str, part: BatchPart) -> None:
        object_store.obstore.put(self._store._store, f"_pending/{name}", b"")  # type: ignore[attr-defined]


class Objects:
    """The functions of obstore for one store, without its threads, which start slowly."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[bytes, str]] = {}
        self._tags = count()

    def put(self, _: object, path: str, content: bytes, *, mode: Any = None) -> dict[str, str]:
        stored = self.content.get(path)
        if mode == "create" and stored is not None:
            raise AlreadyExistsError(path)
        if isinstance(mode, dict) and (stored is None or stored[1] != mode["e_tag"]):
            raise PreconditionError(path)
        self.content[path] = bytes(content), str(next(self._tags))
        return {"e_tag": self.content[path][1]}

    def get(self, _: object, path: str) -> Any:
        content, tag = self._found(path)
        return SimpleNamespace(bytes=lambda: content, meta={"e_tag": tag})

    def head(self, _: object, path: str) -> dict[str, str]:
        return {"e_tag": self._found(path)[1]}

    def copy(self, _: object, path: str, target: str) -> None:
        content, _tag = self._found(path)
        self.content[target] = content, str(next(self._tags))

    def delete(self, _: object, path: str) -> None:
        self.content.pop(path, None)

    def list(self, _: object, folder: str) -> Any:
        return [[{"path": path} for path in self.content if path.startswith(f"{folder}/")]]

    def _found(self, path: str) -> tuple[bytes, str]:
        if path not in self.content:
            raise FileNotFoundError(path)
        return self.content[path]


class Lake:
    """A local folder and its reader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self) -> LandingFolder:
        return Quick(self.folder)

    def names(self) -> list[str]:
        return [path.name for path in self.folder.glob("kafka-*.parquet")]

    def delete(self, name: str) -> None:
        (self.folder / name).unlink()

    def age_files(self, random: Random) -> None:
        """Set random times of files, as of a clock that jumps by days."""
        for path in self.folder.rglob("*"):
            moment = 1.7e9 + random.choice((-9e8, -DAY, 0, 9e8))
            os.utime(path, (moment, moment), follow_symlinks=False)


class ObjectLake(Lake):
    """An object store in memory."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def sink(self) -> LandingFolder:
        return QuickObjects("s3://lake", storage_options={"region": "eu-1"})

    def names(self) -> list[str]:
        return [path for path in self._objects.content if "/" not in path]

    def delete(self, name: str) -> None:
        del self._objects.content[name]

    def age_files(self, random: Random) -> None: ...


class Writer(threading.Thread):
    """A writer that writes missing records in batches of random sizes, until all are written."""

    def __init__(self, lake: Lake, seed: int, arrived: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self.may_proceed = threading.Semaphore(0)
        self.killed = self.ended = False
        self._arrived = arrived
        self._lake = lake
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
        """Wait until the walk picks this writer."""
        if not self.killed:
            self._arrived.release()
            self.may_proceed.acquire()
        if self.killed:
            raise Killed

    def _write_all(self) -> None:
        socket = self._lake.sink()
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
    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.random = Random(seed)
        self.arrived = threading.Semaphore(0)
        self.writers = list[Writer]()
        self.seen = set[str]()

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
                self.lake.age_files(self.random)
            if self.random.random() < 0.1:
                self.take_files()

    def finish(self) -> None:
        """Kill some writers, run the others to their end, and let a last one write the rest."""
        for writer in self.random.sample(self.writers, len(self.writers)):
            killed = self.random.random() < 0.5
            while writer in self.writers:
                self.step(writer, killed=killed)
        last = self.start()
        while last in self.writers:
            self.step(last)
        self.take_files()

    def start(self) -> Writer:
        writer = Writer(self.lake, self.random.getrandbits(32), self.arrived)
        self.writers.append(writer)
        writer.start()
        self.arrived.acquire()
        return writer

    def step(self, writer: Writer, *, killed: bool = False) -> None:
        writer.killed = writer.killed or killed
        writer.may_proceed.release()
        self.arrived.acquire()
        if writer.ended:
            writer.join()
            self.writers.remove(writer)
            if writer.failure is not None:
                raise writer.failure

    def take_files(self) -> None:
        """Read and delete all files, as Spark's `cleanSource` does."""
        for name in self.lake.names():
            self.seen.add(name)
            self.lake.delete(name)


def gate(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any, **options: Any) -> Any:
        if isinstance(item := threading.current_thread(), Writer):
            item.gate()
        return real(*values, **options)

    return call


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CALLS:
        monkeypatch.setattr(os, name, gate(getattr(os, name)))
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(object_store.ObjectStore, "max_requests", 1)


@pytest.fixture
def walk_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int, str], Walk]]:
    walks = list[Walk]()

    def start(seed: int, kind: str) -> Walk:
        lake = Lake(tmp_path / str(seed))
        if kind == "objects":
            objects = Objects()
            for name in REQUESTS:
                setattr(objects, name, gate(getattr(objects, name)))
            monkeypatch.setattr(object_store, "obstore", objects)
            monkeypatch.setattr(object_store, "from_url", lambda *_, **__: None)  # from_url is slow
            lake = ObjectLake(objects)
        walks.append(Walk(lake, seed))
        return walks[-1]

    yield start
    for walk in walks:
        for writer in list(walk.writers):
            writer.killed = True
            writer.may_proceed.release()
            writer.join()


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 60, 20)])
@pytest.mark.parametrize("kind", ["files", "objects"])
def test_each_record_is_written_once_in_random_interleavings(
    seeds: range, kind: str, walk_of: Callable[[int, str], Walk]
) -> None:
    for seed in seeds:
        walk = walk_of(seed, kind)
        walk.go(400)
        walk.finish()
        by_place = ranges_of(walk.seen)
        assert by_place.keys() == set(PLACES)
        for place, results in by_place.items():
            assert (min(results)[0], max(results)[1]) == (0, RECORDS), (seed, place)
            assert are_contiguous(sorted(results)), (seed, place, sorted(results))

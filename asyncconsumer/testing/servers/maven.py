"""Server jars: fetched from Maven Central once, kept in the user's cache, checked at each use.

A download goes to a folder of its own and is moved
into the cache only when it is whole, under a lock between processes: the cache never holds half a
jar. What a server needs is written down as a manifest with a SHA-256 for each jar, so that later
starts need no network and notice a damaged jar. For the default versions the manifest is part of
this package (`pins.py`), and jars that differ from it are refused.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import filelock
import platformdirs

from asyncconsumer.testing.servers.errors import DamagedCache, FetchFailed

CACHE_VARIABLE: Final = "ASYNCCONSUMER_CACHE"
ALONE: Final = ":alone"
"""Behind a coordinate: this jar and not what it says it depends on."""

Progress = Callable[[str, int, int], None]
"""Called from a worker thread: what is being fetched, how many jars are here, how many in all."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """For callers that do not show any."""


def cache_folder() -> Path:
    """Where the jars live: `$ASYNCCONSUMER_CACHE`, or the user's cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_path("asyncconsumer"))


async def class_path(
    name: str, coordinates: Sequence[str], progress: Progress = no_progress
) -> list[Path]:
    """The jars that `coordinates` (group:artifact:version) need, from the cache or fetched into it.

    `name` is what people call it ("Kafka 4.3.1"): it stands in messages and names the manifest.
    """
    stopping = threading.Event()

    def report(what: str, done: int, total: int) -> None:
        if stopping.is_set():  # the thread cannot be cancelled, so it is asked
            raise FetchFailed(f"fetching {name} was cancelled")
        progress(what, done, total)

    try:
        return await asyncio.to_thread(
            _class_path, _Store(cache_folder()), name, coordinates, report
        )
    except asyncio.CancelledError:
        stopping.set()
        raise


def _class_path(
    store: "_Store", name: str, coordinates: Sequence[str], progress: Progress
) -> list[Path]:
    from asyncconsumer.testing.servers.pins import pinned_jars

    pinned = pinned_jars(name, coordinates)
    if (jars := store.load(name, coordinates, pinned)) is not None:
        return jars
    with store.locked(progress):
        if (jars := store.load(name, coordinates, pinned)) is not None:
            return jars  # another process fetched it while we waited for the lock
        with tempfile.TemporaryDirectory(dir=store.root, prefix="fetching-") as folder:
            # imported when there is something to fetch: most starts find everything in the cache
            from asyncconsumer.testing.servers import download

            if pinned is None:
                fetched = download.fetch(Path(folder), store.jars, name, coordinates, progress)
            else:
                fetched = download.fetch_pinned(Path(folder), store.jars, name, pinned, progress)
            return store.keep(name, coordinates, Path(folder), fetched)


class _Store:
    """The cache on disk: jars in Maven's layout, and one manifest a server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jars = root / "jars"

    @contextlib.contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Keep other processes out; who waits says so, and can be told to stop."""
        self.root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.root / "fetch.lock")
        while True:
            try:
                lock.acquire(timeout=0.2)
                break
            except filelock.Timeout:
                progress("waiting for another process that fetches", 0, 0)
        try:
            yield
        finally:
            lock.release()

    def load(
        self, name: str, coordinates: Sequence[str], pinned: Mapping[str, str] | None
    ) -> list[Path] | None:
        """The jars that are pinned, or of a manifest, each checked; None if one is not here yet."""
        listed = self._listed(name, coordinates) if pinned is None else pinned
        if listed is None:
            return None
        jars = []
        for relative, expected in listed.items():
            jar = self.jars / relative
            if not jar.exists():
                return None
            if (actual := sha256(jar)) != expected:
                raise DamagedCache(
                    f"{jar.name} in the cache is damaged (its SHA-256 begins with {actual[:12]}, "
                    f"not {expected[:12]}): delete {jar} and start again, it is then fetched anew"
                )
            jars.append(jar)
        return jars

    def _listed(self, name: str, coordinates: Sequence[str]) -> dict[str, str] | None:
        """The jars of the manifest in the cache; None if there is none that we wrote."""
        try:
            manifest = json.loads(manifest_of(self.root, name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        try:
            told, listed = manifest["coordinates"], dict(manifest["jars"].items())
        except (KeyError, TypeError, AttributeError):
            return None
        return listed if told == list(coordinates) else None

    def keep(
        self, name: str, coordinates: Sequence[str], folder: Path, fetched: Sequence[Path]
    ) -> list[Path]:
        """Move what was fetched into the cache, then write the manifest that vouches for it."""
        jars = {}
        for jar in fetched:
            relative = jar.relative_to(folder if jar.is_relative_to(folder) else self.jars)
            kept = self.jars / relative
            if jar != kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(jar, kept)
            jars[relative.as_posix()] = sha256(kept)
        written = folder / "manifest.json"
        manifest = {"coordinates": list(coordinates), "jars": jars}
        written.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.move(written, manifest_of(self.root, name))
        return [self.jars / relative for relative in jars]


def manifest_of(root: Path, name: str) -> Path:
    """The manifest of a server in a cache."""
    return root / f"{name.lower().replace(' ', '-')}.json"


def sha256(path: Path) -> str:
    """Of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

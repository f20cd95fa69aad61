"""A cache of server jars from Maven Central, verified at each use.

A download goes to its own folder. When it is complete, it is moved into the cache, under a lock
between processes. So the cache never has a partial jar. A manifest lists the jars of a server with
their SHA-256, so that later starts need no network and detect a corrupt jar. For the default
versions the manifest is part of this package (`pins.py`), and other jars are rejected.
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
"""The suffix of a coordinate whose jar is downloaded without its dependencies."""

Progress = Callable[[str, int, int], None]
"""A function that is called in a thread during a download.

Its arguments are the name of the current jar, the number of downloaded jars, and their total.
"""


def no_progress(_file: str, _done: int, _total: int) -> None:
    """Ignore the progress of a download."""


def cache_folder() -> Path:
    """Return the folder of cached jars: `$ASYNCCONSUMER_CACHE`, or a folder in the user's cache."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_path("asyncconsumer"))


async def class_path(
    name: str, coordinates: Sequence[str], progress: Progress = no_progress
) -> list[Path]:
    """Return the jars of `coordinates` (group:artifact:version). Download them if necessary.

    `name`, such as "Kafka 4.3.1", is the server's name in messages and that of its manifest.
    """
    stopping = threading.Event()

    def report(file: str, done: int, total: int) -> None:
        if stopping.is_set():  # a thread cannot be cancelled, so a flag stops it
            raise FetchFailed(f"fetching {name} was cancelled")
        progress(file, done, total)

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
            return jars  # another process downloaded it during the wait for the lock
        with tempfile.TemporaryDirectory(dir=store.root, prefix="fetching-") as folder:
            # imported only for a download, because most starts use the cache
            from asyncconsumer.testing.servers import download

            if pinned is None:
                fetched = download.fetch(Path(folder), store.jars, name, coordinates, progress)
            else:
                fetched = download.fetch_pinned(Path(folder), store.jars, name, pinned, progress)
            return store.keep(name, coordinates, Path(folder), fetched)


class _Store:
    """The cache on disk, with jars in the layout of Maven and a manifest for each server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jars = root / "jars"

    @contextlib.contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Return a context manager that holds the cache's lock, which all processes use.

        While another process holds the lock, `progress` is called. It can raise an error to stop
        waiting.
        """
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
        """Return the verified jars of the server `name`, or None if a jar is missing.

        `pinned` lists the jars with their SHA-256. If it is None, use the manifest in the cache.
        Raise DamagedCache if a jar has another SHA-256.
        """
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
                    f"{jar.name} in the cache is corrupt (its SHA-256 begins with {actual[:12]}, "
                    f"not {expected[:12]}): delete {jar} to download it again"
                )
            jars.append(jar)
        return jars

    def _listed(self, name: str, coordinates: Sequence[str]) -> dict[str, str] | None:
        """Return the SHA-256 of each jar in the server's manifest, by the path of the jar.

        Return None if the manifest is missing, malformed, or made for other coordinates.
        """
        try:
            manifest = json.loads(manifest_of(self.root, name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        try:
            expected, listed = manifest["coordinates"], dict(manifest["jars"].items())
        except (KeyError, TypeError, AttributeError):
            return None
        return listed if expected == list(coordinates) else None

    def keep(
        self, name: str, coordinates: Sequence[str], folder: Path, fetched: Sequence[Path]
    ) -> list[Path]:
        """Move the jars in `fetched` from `folder` into the cache, then write the manifest.

        Jars in `fetched` may be in the cache already. Return the paths of all jars in the cache.
        """
        jars = {}
        for jar in fetched:
            relative = jar.relative_to(folder if jar.is_relative_to(folder) else self.jars)
            target = self.jars / relative
            if jar != target:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(jar, target)
            jars[relative.as_posix()] = sha256(target)
        written = folder / "manifest.json"
        manifest = {"coordinates": list(coordinates), "jars": jars}
        written.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.move(written, manifest_of(self.root, name))
        return [self.jars / relative for relative in jars]


def manifest_of(root: Path, name: str) -> Path:
    """Return the path of the manifest of the server `name`."""
    return root / f"{name.lower().replace(' ', '-')}.json"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

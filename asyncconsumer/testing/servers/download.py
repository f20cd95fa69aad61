"""Resolving and downloading jars with jgo, a resolver in pure Python.

So neither Maven itself nor the address of a repository is needed here. A repository of your own is
asked instead if `$ASYNCCONSUMER_MAVEN_REPOSITORY` names one.
"""

import contextlib
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import jgo.maven
import requests

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.errors import FetchFailed, UnknownVersion

REPOSITORY_VARIABLE: Final = "ASYNCCONSUMER_MAVEN_REPOSITORY"
_TRIES: Final = 3


def fetch(
    folder: Path, known_jars: Path, name: str, coordinates: Sequence[str], progress: maven.Progress
) -> list[Path]:
    """Download the jars that `coordinates` need into `folder`, but for those among `known_jars`."""
    repository = os.environ.get(REPOSITORY_VARIABLE)
    context = jgo.maven.MavenContext(
        repo_cache=folder,
        local_repos=[known_jars],
        remote_repos={"central": repository} if repository else None,
        timeout=30,
    )
    for tries_left in reversed(range(_TRIES)):
        try:
            with _checksum_warnings_as_errors():
                return _download(context, coordinates, progress)
        except requests.RequestException as error:
            _empty(folder)  # the next try must not take half a download for a whole one
            if not tries_left:
                raise FetchFailed(
                    f"{name} is not in the cache ({maven.cache_folder()}) and its jars cannot be "
                    f"downloaded ({type(error).__name__}): connect to a network once, or set "
                    f"{REPOSITORY_VARIABLE} to a Maven repository that is reachable"
                ) from error
        except RuntimeError as error:  # jgo's word for "no repository has it"
            missing = str(error).removeprefix("Artifact ").split(" not found")[0]
            raise UnknownVersion(
                f"{name} cannot be had from Maven Central, which has no {missing}: "
                "take another version"
            ) from error
    raise AssertionError("unreachable")


def _download(
    context: jgo.maven.MavenContext, coordinates: Sequence[str], progress: maven.Progress
) -> list[Path]:
    progress("finding out which jars are needed", 0, 0)
    artifacts: dict[tuple[str, str], jgo.maven.Artifact] = {}
    for coordinate in coordinates:
        group, artifact, version = coordinate.removesuffix(maven.ALONE).split(":")
        wanted = context.project(group, artifact).at_version(version).artifact()
        if coordinate.endswith(maven.ALONE):
            artifacts.setdefault((group, artifact), wanted)
            continue
        inputs, transitive = context.resolver.resolve([jgo.maven.Dependency(wanted)])
        for dependency in inputs + transitive:
            artifacts.setdefault((dependency.groupId, dependency.artifactId), dependency.artifact)
    jars = []
    for done, found in enumerate(artifacts.values()):
        progress(found.filename, done, len(artifacts))
        jar = found.resolve()
        if not zipfile.is_zipfile(jar):
            raise FetchFailed(f"{jar.name} arrived damaged: it is not a jar; try again")
        jars.append(jar)
    progress("done", len(jars), len(jars))
    return jars


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        shutil.rmtree(entry)


@contextlib.contextmanager
def _checksum_warnings_as_errors() -> Iterator[None]:
    """Jgo only warns when a download differs from the repository's checksum; that must not pass."""

    class Refuse(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Checksum mismatch" in record.getMessage():
                raise FetchFailed(f"a download arrived damaged: {record.getMessage()}; try again")

    handler = Refuse(level=logging.WARNING)
    logger = logging.getLogger("jgo")
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

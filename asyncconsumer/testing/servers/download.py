"""The resolution and download of jars with jgo, a resolver in pure Python.

Maven need not be installed. `$ASYNCCONSUMER_MAVEN_REPOSITORY` selects another repository than Maven
Central.

Jars of the default versions are pinned: they are not resolved, and each must match its SHA-256.
Other versions are verified by the checksums of the repository, and a log line says so.
"""

import contextlib
import ipaddress
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import jgo.maven
import requests

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.errors import FetchFailed, UnknownVersion

REPOSITORY_VARIABLE: Final = "ASYNCCONSUMER_MAVEN_REPOSITORY"
HTTP_VARIABLE: Final = "ASYNCCONSUMER_MAVEN_ALLOW_HTTP"
_TRIES: Final = 3
_log: Final = logging.getLogger(__name__)


def fetch(
    folder: Path, known_jars: Path, name: str, coordinates: Sequence[str], progress: maven.Progress
) -> list[Path]:
    """Download the jars of `coordinates` and of their dependencies. Return the paths of all jars.

    New jars are stored in `folder`. Jars in the folder `known_jars` are not downloaded again.
    """

    def download(context: jgo.maven.MavenContext) -> list[Path]:
        with _unverified_as_errors():
            progress("finding out which jars are needed", 0, 0)
            return _resolved(_artifacts(context, coordinates), progress)

    jars = _tried(download, folder, known_jars, name)
    _log.warning(
        "%s is not among the versions whose jars this package pins: its %d jars were verified "
        "against checksums of the same repository only",
        name,
        len(jars),
    )
    return jars


def fetch_pinned(
    folder: Path,
    known_jars: Path,
    name: str,
    pinned: Mapping[str, str],
    progress: maven.Progress,
) -> list[Path]:
    """Download the jars in `pinned`, which maps repository paths to SHA-256. Return their paths.

    New jars are stored in `folder`. Jars in the folder `known_jars` are not downloaded again. Raise
    FetchFailed if a jar has another SHA-256.
    """

    def download(context: jgo.maven.MavenContext) -> list[Path]:
        return _resolved([_artifact_at(context, path) for path in pinned], progress)

    jars = _tried(download, folder, known_jars, name)
    for jar, expected in zip(jars, pinned.values(), strict=True):
        if (actual := maven.sha256(jar)) != expected:
            raise FetchFailed(
                f"{jar.name} of {name} is not the jar that this package pins: its SHA-256 begins "
                f"with {actual[:12]}, not {expected[:12]}. The download was changed or is corrupt: "
                f"try again, and check the repository that {REPOSITORY_VARIABLE} names"
            )
    return jars


def _tried(
    download: Callable[[jgo.maven.MavenContext], list[Path]],
    folder: Path,
    known_jars: Path,
    name: str,
) -> list[Path]:
    repository = _repository()
    context = jgo.maven.MavenContext(
        repo_cache=folder,
        local_repos=[known_jars],
        remote_repos={"central": repository} if repository else None,
        timeout=30,
    )
    for tries_left in reversed(range(_TRIES)):
        try:
            return download(context)
        except requests.RequestException as error:
            _empty(folder)  # the next attempt must not accept a partial download
            if not tries_left:
                raise FetchFailed(
                    f"{name} is not in the cache ({maven.cache_folder()}) and its jars cannot be "
                    f"downloaded ({type(error).__name__}): connect to a network once, or set "
                    f"{REPOSITORY_VARIABLE} to a Maven repository that is reachable"
                ) from error
        except RuntimeError as error:  # the message of jgo if no repository has it
            missing = str(error).removeprefix("Artifact ").split(" not found")[0]
            raise UnknownVersion(
                f"{name} cannot be downloaded, because Maven Central does not have {missing}: "
                "use another version"
            ) from error
    raise AssertionError("unreachable")


def _repository() -> str | None:
    """Return the URL of the Maven repository that the user selected, or None.

    Raise FetchFailed for plain http, because others could change the jars in transit.
    """
    repository = os.environ.get(REPOSITORY_VARIABLE)
    if not repository:
        return None
    address = urlsplit(repository)
    allowed = os.environ.get(HTTP_VARIABLE) == "1" or _is_loopback(address.hostname or "")
    if address.scheme != "https" and not (address.scheme == "http" and allowed):
        raise FetchFailed(
            f"{REPOSITORY_VARIABLE} is not an https address: others could change the jars on their "
            f"way, and tests run them. Use https, or set {HTTP_VARIABLE}=1 to allow plain http"
        )
    return repository


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _artifacts(
    context: jgo.maven.MavenContext, coordinates: Sequence[str]
) -> list[jgo.maven.Artifact]:
    """Return the artifacts of the Maven coordinates and of their dependencies, each once."""
    artifacts: dict[tuple[str, str], jgo.maven.Artifact] = {}
    for coordinate in coordinates:
        group, artifact, version = coordinate.removesuffix(maven.ALONE).split(":")
        requested = context.project(group, artifact).at_version(version).artifact()
        if coordinate.endswith(maven.ALONE):
            artifacts.setdefault((group, artifact), requested)
            continue
        inputs, transitive = context.resolver.resolve([jgo.maven.Dependency(requested)])
        for dependency in inputs + transitive:
            artifacts.setdefault((dependency.groupId, dependency.artifactId), dependency.artifact)
    return list(artifacts.values())


def _artifact_at(context: jgo.maven.MavenContext, path: str) -> jgo.maven.Artifact:
    """Return the artifact at a repository path, such as group/artifact/version/file."""
    *group, artifact, version, file = PurePosixPath(path).parts
    classifier = file.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    project = context.project(".".join(group), artifact)
    return project.at_version(version).artifact(classifier=classifier)


def _resolved(artifacts: Sequence[jgo.maven.Artifact], progress: maven.Progress) -> list[Path]:
    jars = []
    for done, artifact in enumerate(artifacts):
        progress(artifact.filename, done, len(artifacts))
        jar = artifact.resolve()
        if not zipfile.is_zipfile(jar):
            raise FetchFailed(f"{jar.name} is not a jar: the download is corrupt. Try again")
        jars.append(jar)
    progress("done", len(jars), len(jars))
    return jars


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        shutil.rmtree(entry)


@contextlib.contextmanager
def _unverified_as_errors() -> Iterator[None]:
    """Return a context manager in which a download without a matching checksum raises an error.

    jgo itself only logs such a download.
    """

    class Refuse(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if "Checksum mismatch" in message:
                raise FetchFailed(f"a download is corrupt: {message}. Try again")
            if "Could not fetch checksum" in message:
                raise requests.ConnectionError(message)  # jgo tries again
            if "No remote checksum" in message:
                raise FetchFailed(
                    f"a download cannot be verified: {message}. Take a repository that has "
                    "checksums, or a default version, whose jars this package pins"
                )

    handler = Refuse(level=logging.DEBUG)
    logger = logging.getLogger("jgo")
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)  # a missing checksum is logged at this level
    logger.propagate = False  # hide these lines from other handlers
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

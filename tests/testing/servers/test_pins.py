"""The pins of the jars of default servers, which no repository can change."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer.testing.servers import (
    DEFAULT_KAFKA,
    DEFAULT_ZOOKEEPER,
    LAST_WITH_ZOOKEEPER,
    DamagedCache,
    FetchFailed,
    Kafka,
    ZooKeeper,
    classic,
    maven,
    pins,
)
from tests.testing.servers.test_maven import COORDINATES, Repository, cached, jar, pom, repository

__all__ = ["repository"]
pytestmark = pytest.mark.fast

SERVER, LIBRARY = (f"org/example/{name}/1.0/{name}-1.0.jar" for name in ("server", "library"))
NATIVE = "org/example/library/1.0/library-1.0-linux-x86_64.jar"


@pytest.fixture
def pinned(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pin the jars of Server 1.0 that the repository has now."""
    files = {path: repository.files[f"/{path}"] for path in (SERVER, LIBRARY)}
    jars = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    pin = {"Server 1.0": {"coordinates": COORDINATES, "jars": jars}}
    monkeypatch.setattr(pins, "_pins", lambda: pin)
    return jars


async def test_the_default_servers_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    async def ask(name: str, coordinates: Any, _: object) -> list[Path]:
        asked[name] = coordinates
        return []

    monkeypatch.setattr(maven, "class_path", ask)
    for kafka in (DEFAULT_KAFKA, LAST_WITH_ZOOKEEPER):
        await Kafka(kafka).fetch()
    await ZooKeeper(DEFAULT_ZOOKEEPER).fetch()
    await classic.fetch()
    assert len(asked) == 4
    for name, coordinates in asked.items():
        jars = pins.pinned_jars(name, coordinates)
        assert jars is not None, name
        assert len(jars) > 10
        assert all(len(digest) == 64 for digest in jars.values())


def test_another_version_is_not_pinned() -> None:
    assert pins.pinned_jars("Kafka 4.0.0", ["org.apache.kafka:kafka_2.13:4.0.0"]) is None
    assert pins.pinned_jars(f"Kafka {DEFAULT_KAFKA}", ["org.example:other:1.0"]) is None


@pytest.mark.usefixtures("pinned")
async def test_pinned_jars_are_fetched_without_reading_dependencies(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.add("server", pom("server", depends_on="malware"), jar("server"))
    jars = await maven.class_path("Server 1.0", COORDINATES)
    assert [path.name for path in jars] == ["server-1.0.jar", "library-1.0.jar"]
    assert not [path for path in repository.served if path.endswith(".pom")]
    assert "repository only" not in caplog.text


async def test_a_pinned_jar_with_a_classifier_is_found(
    repository: Repository, pinned: dict[str, str]
) -> None:
    repository.files[f"/{NATIVE}"] = jar("native")
    pinned[NATIVE] = hashlib.sha256(jar("native")).hexdigest()
    assert len(await maven.class_path("Server 1.0", COORDINATES)) == 3


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize("changed", ["server", "library"])
async def test_a_jar_that_differs_from_its_pin_is_refused(
    repository: Repository, changed: str
) -> None:
    repository.add(changed, pom(changed), jar("malware"))  # with checksums that match it
    with pytest.raises(FetchFailed, match=rf"{changed}-1\.0\.jar of Server 1\.0 is not the jar"):
        await maven.class_path("Server 1.0", COORDINATES)
    assert not list(maven.cache_folder().rglob("*.jar"))


@pytest.mark.usefixtures("pinned")
async def test_a_jar_in_the_cache_is_checked_against_the_pin() -> None:
    await maven.class_path("Server 1.0", COORDINATES)
    changed = cached("library-1.0.jar")
    changed.write_bytes(jar("malware"))
    manifest = maven.manifest_of(maven.cache_folder(), "Server 1.0")
    listed = json.loads(manifest.read_text())
    listed["jars"][LIBRARY] = maven.sha256(changed)  # the cache has matching checksums
    manifest.write_text(json.dumps(listed))
    with pytest.raises(DamagedCache, match=r"library-1\.0\.jar"):
        await maven.class_path("Server 1.0", COORDINATES)


@pytest.mark.usefixtures("repository")
async def test_a_warning_is_logged_for_unpinned_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        await maven.class_path("Server 1.0", COORDINATES)
    assert "Server 1.0 is not among the versions whose jars this package pins" in caplog.text


async def test_other_versions_need_a_checksum(repository: Repository) -> None:
    del repository.files[f"/{SERVER}.sha1"]
    with pytest.raises(FetchFailed, match=r"cannot be verified: .*server-1\.0\.jar"):
        await maven.class_path("Server 1.0", COORDINATES)
    assert not list(maven.cache_folder().rglob("*.jar"))


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    "mirror", ["http://mirror.example/maven", "ftp://mirror.example", "mirror.example", "file:///x"]
)
async def test_a_mirror_without_encryption_is_refused(
    monkeypatch: pytest.MonkeyPatch, mirror: str
) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_MAVEN_REPOSITORY", mirror)
    with pytest.raises(FetchFailed, match=r"is not an https address.*ALLOW_HTTP=1"):
        await maven.class_path("Server 1.0", COORDINATES)


@pytest.mark.usefixtures("repository")
async def test_a_mirror_without_encryption_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_MAVEN_REPOSITORY", "http://mirror.invalid/maven")
    monkeypatch.setenv("ASYNCCONSUMER_MAVEN_ALLOW_HTTP", "1")
    with pytest.raises(
        FetchFailed, match="cannot be downloaded"
    ):  # the mirror was asked and does not exist
        await maven.class_path("Server 1.0", COORDINATES)

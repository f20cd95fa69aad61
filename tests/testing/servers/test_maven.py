"""The cache of jars, against a small local Maven repository."""

import asyncio
import hashlib
import http.server
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncconsumer.testing.servers import DamagedCache, FetchFailed, UnknownVersion, maven

pytestmark = pytest.mark.fast

COORDINATES = ["org.example:server:1.0"]


def pom(artifact: str, depends_on: str = "") -> bytes:
    dependency = (
        f"<dependencies><dependency><groupId>org.example</groupId><artifactId>{depends_on}"
        "</artifactId><version>1.0</version></dependency></dependencies>"
        if depends_on
        else ""
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>org.example</groupId><artifactId>{artifact}</artifactId><version>1.0</version>"
        f"{dependency}</project>"
    ).encode()


def jar(content: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("Main.class", content)
    return written.getvalue()


class Repository:
    """A Maven repository with a server that needs a library, and a list of served files."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.served: list[str] = []
        self.cut_after: int | None = None
        self.add("server", pom("server", depends_on="library"), jar("server"))
        self.add("library", pom("library"), jar("library"))

    def add(self, artifact: str, description: bytes, content: bytes) -> None:
        stem = f"/org/example/{artifact}/1.0/{artifact}-1.0"
        self.files |= {f"{stem}.pom": description, f"{stem}.jar": content}
        for name in (f"{stem}.pom", f"{stem}.jar"):
            self.files[f"{name}.sha1"] = hashlib.sha1(self.files[name]).hexdigest().encode()

    def jars_served(self) -> list[str]:
        return sorted(Path(path).name for path in self.served if path.endswith(".jar"))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    content = Repository()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content.served.append(self.path)
            body = content.files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write((body or b"")[: content.cut_after])

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv(
            "ASYNCCONSUMER_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}"
        )
        monkeypatch.setenv("ASYNCCONSUMER_CACHE", str(tmp_path / "cache"))
        try:
            yield content
        finally:
            server.shutdown()
            thread.join()


def cached(name: str) -> Path:
    (path,) = maven.cache_folder().rglob(name)
    return path


async def test_a_server_is_fetched_once_with_its_dependencies(repository: Repository) -> None:
    seen: list[tuple[int, int]] = []
    jars = await maven.class_path("Server 1.0", COORDINATES, lambda _, *done: seen.append(done))
    assert [path.name for path in jars] == ["server-1.0.jar", "library-1.0.jar"]
    assert all(zipfile.is_zipfile(path) for path in jars)
    assert seen[-1] == (2, 2)

    repository.served.clear()
    assert await maven.class_path("Server 1.0", COORDINATES) == jars
    assert repository.served == []


async def test_jars_of_another_server_are_not_fetched_again(
    repository: Repository,
) -> None:
    await maven.class_path("Library 1.0", ["org.example:library:1.0"])
    await maven.class_path("Server 1.0", COORDINATES)
    assert repository.jars_served() == ["library-1.0.jar", "server-1.0.jar"]


async def test_a_jar_that_was_deleted_is_fetched_again(repository: Repository) -> None:
    await maven.class_path("Server 1.0", COORDINATES)
    cached("library-1.0.jar").unlink()
    await maven.class_path("Server 1.0", COORDINATES)
    assert repository.jars_served() == ["library-1.0.jar", "library-1.0.jar", "server-1.0.jar"]


async def test_a_corrupt_jar_is_reported_with_advice(repository: Repository) -> None:
    await maven.class_path("Server 1.0", COORDINATES)
    corrupt = cached("library-1.0.jar")
    corrupt.write_bytes(corrupt.read_bytes()[:-1] + b"!")
    with pytest.raises(
        DamagedCache, match=rf"library-1\.0\.jar .* delete {corrupt} to download it again"
    ):
        await maven.class_path("Server 1.0", COORDINATES)

    corrupt.unlink()
    assert len(await maven.class_path("Server 1.0", COORDINATES)) == 2


async def test_a_version_that_does_not_exist_is_distinguished(repository: Repository) -> None:
    with pytest.raises(UnknownVersion, match=r"Server 9\.9 .* org\.example:server:pom:9\.9"):
        await maven.class_path("Server 9.9", ["org.example:server:9.9"])


async def test_a_missing_network_is_reported_with_advice(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_MAVEN_REPOSITORY", "http://127.0.0.1:9/nothing-here")
    with pytest.raises(
        FetchFailed, match=r"Server 1\.0 is not in the cache .* connect to a network"
    ):
        await maven.class_path("Server 1.0", COORDINATES)


async def test_a_download_that_differs_from_its_checksum_is_refused(repository: Repository) -> None:
    repository.files["/org/example/server/1.0/server-1.0.jar.sha1"] = b"0" * 40
    with pytest.raises(FetchFailed, match=r"corrupt.*server-1\.0\.jar"):
        await maven.class_path("Server 1.0", COORDINATES)
    assert not list(maven.cache_folder().rglob("*.jar"))


async def test_an_interrupted_download_leaves_no_jar(repository: Repository) -> None:
    repository.cut_after = 60
    with pytest.raises(FetchFailed):
        await maven.class_path("Server 1.0", COORDINATES)
    assert not list(maven.cache_folder().rglob("*.jar"))

    repository.cut_after = None
    assert len(await maven.class_path("Server 1.0", COORDINATES)) == 2


async def test_a_cancelled_fetch_stops_and_leaves_no_jar(repository: Repository) -> None:
    fetching = asyncio.Event()
    loop = asyncio.get_running_loop()
    held = threading.Event()

    def progress(*_: object) -> None:
        loop.call_soon_threadsafe(fetching.set)
        held.wait(10)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(maven.class_path("Server 1.0", COORDINATES, progress))
        await fetching.wait()
        task.cancel()
        while not task.done():
            await asyncio.sleep(0)
        held.set()
    assert task.cancelled()
    await loop.shutdown_default_executor()
    assert not repository.jars_served()


def test_concurrent_processes_download_each_jar_once(repository: Repository) -> None:
    program = (
        "import asyncio; from asyncconsumer.testing.servers import maven; "
        f"print(len(asyncio.run(maven.class_path('Server 1.0', {COORDINATES!r}))))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in running] == ["2", "2", "2"]
    assert repository.jars_served() == ["library-1.0.jar", "server-1.0.jar"]

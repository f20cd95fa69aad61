"""An S3 server for tests: versitygw, which is built from its Go module into the cache of servers.

    python -m tests.support.s3_server    # builds the server, unless it exists

It stores objects as files, and its conditional writes are atomic.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from uuid import uuid4

import filelock
import obstore
import pytest
from obstore.store import S3Store

from asyncconsumer.testing.servers.maven import cache_folder
from asyncconsumer.testing.servers.ports import HOST, Ports
from asyncconsumer.testing.servers.process import ServerProcess

VERSION: Final = "v1.8.0"
_MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
_USER: Final = "tests"
BUCKET: Final = "lake"
T = TypeVar("T")


@dataclass(frozen=True)
class S3:
    """A running server with one bucket."""

    endpoint: str
    root: Path

    @property
    def options(self) -> dict[str, str]:
        """Return the storage options of LandingFolder and DeltaSink."""
        return {
            "aws_access_key_id": _USER,
            "aws_secret_access_key": _USER,
            "aws_region": "us-east-1",
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        """Return the options as environment variables, which have no name for `allow_http`."""
        return {name.upper(): value for name, value in self.options.items() if "http" not in name}

    def folder(self) -> Path:
        """Return a new folder, in which the server keeps the objects of a URL as files."""
        return self.root / BUCKET / uuid4().hex

    def store(self) -> S3Store:
        """Return a client of the bucket, as other programs have one."""
        return S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=_USER,
            secret_access_key=_USER,
            region="us-east-1",
            client_options={"allow_http": True},
        )


def url_of(folder: Path) -> str:
    """Return the URL whose objects are the files in this folder of a server."""
    return f"s3://{BUCKET}/{folder.name}"


def built() -> Path | None:
    """Return the program of the server, or None if it was never built."""
    program = cache_folder() / f"versitygw-{VERSION}"
    return program if program.exists() else None


def build() -> Path:
    """Build the program with Go, and keep it in the cache."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache_folder() / "versitygw.lock"):
        if (program := built()) is not None:
            return program
        if shutil.which("go") is None:
            raise FileNotFoundError("building the S3 server of the tests needs Go 1.25 or newer")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            command = ["go", "install", "-ldflags", "-s -w", f"{_MODULE}@{VERSION}"]
            subprocess.run(command, check=True, env={**os.environ, "GOBIN": folder})
            return (Path(folder) / "versitygw").rename(cache_folder() / f"versitygw-{VERSION}")


@contextmanager
def s3_server(program: Path, folder: Path) -> Iterator[S3]:
    """Run a server until the block ends. Its objects are files below `folder`."""
    ports = Ports()
    address = f"{HOST}:{ports.take()}"
    root = folder / "buckets"
    (root / BUCKET).mkdir(parents=True)
    (folder / "metadata").mkdir()
    command = [str(program), "--access", _USER, "--secret", _USER, "--port", address, "--quiet"]
    command += ["posix", "--sidecar", str(folder / "metadata"), str(root)]
    process = ServerProcess("S3 server", command, folder, folder)
    endpoint = f"http://{address}"
    run_in_thread(process.start(partial(asyncio.to_thread, _answers, endpoint)))
    try:
        yield S3(endpoint, root)
    finally:
        run_in_thread(process.kill())
        ports.close()


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread, because this thread may have a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=1):
            return True
    except HTTPError:
        return True  # the request has no signature
    except (URLError, OSError):
        return False


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    if (program := built()) is None:
        pytest.skip("the S3 server is not built: run `make s3`")
    with s3_server(program, tmp_path_factory.mktemp("s3")) as server:
        list(obstore.list(server.store()))  # starts the threads of obstore
        yield server


if __name__ == "__main__":
    build()

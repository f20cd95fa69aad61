"""`asyncconsumer servers` as a program: output and exit codes."""

import functools
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from asyncconsumer.testing.servers import DEFAULT_KAFKA, Kafka, maven
from tests.support.helpers import consume, produce, until

PROGRAM = [sys.executable, "-c", "from asyncconsumer.cli import main; main()"]


def ran(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | environment,
    )


@pytest.fixture
def empty_repository(tmp_path: Path) -> Iterator[str]:
    """Yield the address of an empty Maven repository."""
    (tmp_path / "empty").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "empty")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Running:
    """A running `servers up`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "servers", "up", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.addresses: dict[str, str] = json.loads(self.process.stdout.readline() or "{}")
        self.servers = psutil.Process(self.process.pid).children(recursive=True)

    async def all_gone(self) -> None:
        await until(lambda: not any(server.is_running() for server in self.servers))

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
async def test_zookeeper_ends_with_the_program_after_each_signal(
    how: signal.Signals, code: int
) -> None:
    running = Running("--zookeeper")
    assert len(running.servers) == 2  # the guard and ZooKeeper
    host, port = running.addresses["zookeeper"].split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"ruok")
        assert connection.recv(4) == b"imok"
    assert running.end(how) == code
    await running.all_gone()


async def test_kafka_in_zookeeper_mode_serves_clients_until_ctrl_c() -> None:
    running = Running("--kafka", "3.9.2", "--zookeeper", "--brokers", "3")
    assert set(running.addresses) == {"zookeeper", "bootstrap servers"}
    servers = running.addresses["bootstrap servers"]
    assert len(servers.split(",")) == 3
    await produce("orders", [b"first"], bootstrap_servers=servers)
    assert await consume("orders", 1, bootstrap_servers=servers) == [b"first"]
    assert running.end(signal.SIGINT) == 130
    await running.all_gone()


async def test_the_addresses_are_printed_as_text() -> None:
    with subprocess.Popen(
        [*PROGRAM, "servers", "up", "--zookeeper"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
    assert re.match(r"\s*zookeeper\s+127\.0\.0\.1:\d+", line)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--kafka", "4"], 1, r"error: '4' is not a Kafka version: give one like [\d.]+\n"),
        (["--brokers", "7"], 2, r"error: brokers=7: a test cluster has 1 to 3 brokers\n"),
        (["--zookeeper", "--nodes", "2"], 2, r"error: nodes=2: an ensemble has 1 or 3 nodes\n"),
        (["--zookeeper", "--acls"], 2, r"error: --secure and --acls apply to Kafka only.*\n"),
    ],
)
def test_wrong_arguments_are_an_error_of_one_line(
    arguments: list[str], code: int, problem: str
) -> None:
    result = ran("servers", "up", *arguments)
    assert re.fullmatch(problem, result.stderr), result.stderr
    assert result.returncode == code


def test_the_error_for_a_missing_version_names_it(empty_repository: str, tmp_path: Path) -> None:
    result = ran(
        "servers",
        "up",
        "--kafka",
        "9.9.9",
        ASYNCCONSUMER_CACHE=str(tmp_path),
        ASYNCCONSUMER_MAVEN_REPOSITORY=empty_repository,
    )
    assert result.returncode == 1
    assert "error: Kafka 9.9.9 cannot be downloaded, because Maven Central" in result.stderr
    assert "use another version" in result.stderr


def test_the_error_without_a_network_has_advice(tmp_path: Path) -> None:
    result = ran(
        "servers",
        "up",
        ASYNCCONSUMER_CACHE=str(tmp_path),
        ASYNCCONSUMER_MAVEN_REPOSITORY="http://127.0.0.1:9",
    )
    assert result.returncode == 1
    assert "is not in the cache" in result.stderr
    assert "connect to a network once" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_error_without_java_names_the_package_to_install(tmp_path: Path) -> None:
    result = ran("servers", "up", PATH=str(tmp_path), JAVA_HOME="")
    assert result.returncode == 1
    assert re.search(r"error: the server needs Java 17 or newer, .* install", result.stderr)


def test_the_error_for_a_port_in_use_names_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ran("servers", "up", "--port", str(port))
    assert result.returncode == 1
    assert f"error: port {port} on 127.0.0.1 is in use" in result.stderr


async def test_the_error_for_a_corrupt_jar_names_the_file(tmp_path: Path) -> None:
    (jar, *_) = await Kafka(DEFAULT_KAFKA).fetch()
    cache = tmp_path / "cache"
    shutil.copytree(maven.cache_folder(), cache)
    corrupt_jar = cache / jar.relative_to(maven.cache_folder())
    corrupt_jar.write_bytes(b"not a jar")
    result = ran("servers", "up", ASYNCCONSUMER_CACHE=str(cache))
    assert result.returncode == 1
    assert f"error: {jar.name} in the cache is corrupt" in result.stderr
    assert str(corrupt_jar) in result.stderr


async def test_fetch_fills_the_cache() -> None:
    result = ran("servers", "fetch", "--kafka", DEFAULT_KAFKA)
    assert result.returncode == 0, result.stderr
    assert re.search(rf"Kafka {DEFAULT_KAFKA}: \d+ jars in ", result.stdout)


@pytest.mark.fast
def test_version_names_the_decoder() -> None:
    assert re.fullmatch(r"asyncconsumer \d.*, (compiled|pure) decoder\n", ran("version").stdout)

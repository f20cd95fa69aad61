"""Real servers as pytest fixtures. The first test that requests a server starts it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio
from rich.console import Console

from asyncconsumer.records import decoding
from asyncconsumer.testing.handles import (
    KafkaCluster,
    KafkaHandle,
    KafkaWithZooKeeper,
    ZooKeeperHandle,
)
from asyncconsumer.testing.progress import fetching
from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import (
    DEFAULT_KAFKA,
    DEFAULT_ZOOKEEPER,
    LAST_WITH_ZOOKEEPER,
    PROXIED,
    JavaConsumers,
    Kafka,
    ScalaConsumers,
    ServerError,
    ZooKeeper,
    maven,
)
from asyncconsumer.testing.servers.ports import HOST

RUNNING_SERVERS: Final = pytest.StashKey[list[Kafka | ZooKeeper]]()

_T = TypeVar("_T")
_Server = TypeVar("_Server", Kafka, ZooKeeper)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the server versions."""
    group = parser.getgroup("asyncconsumer")
    group.addoption("--kafka-version", default=DEFAULT_KAFKA, help="of `kafka` and `kafka_cluster`")
    group.addoption("--kafka-zk-version", default=LAST_WITH_ZOOKEEPER, help="of `kafka_zk`")
    group.addoption("--zookeeper-version", default=DEFAULT_ZOOKEEPER, help="of every ZooKeeper")


def pytest_configure(config: pytest.Config) -> None:
    """Create the list of servers that run in this test run."""
    config.stash[RUNNING_SERVERS] = []


def pytest_report_header(config: pytest.Config) -> str:
    """Report the decoder and the server versions."""
    kafka, zk = config.getoption("--kafka-version"), config.getoption("--kafka-zk-version")
    return (
        f"asyncconsumer {version('asyncconsumer')}: {decoding.name} decoder; "
        f"servers: Kafka {kafka}, "
        f"Kafka {zk} with ZooKeeper {config.getoption('--zookeeper-version')}"
    )


@contextmanager
def _serving(
    request: pytest.FixtureRequest, make: Callable[[maven.Progress], _Server]
) -> Iterator[_Server]:
    """Start the server that `make` returns, yield it, and stop it at the end of the test run.

    The server belongs to no event loop. If it does not start, end the test run.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), fetching(Console(stderr=True)) as progress:
        server = make(progress)
        try:
            _run(server.start())
        except ServerError as error:
            pytest.exit(f"{error}", returncode=3)
    running = request.config.stash[RUNNING_SERVERS]
    running.append(server)
    try:
        yield server
    finally:
        running.remove(server)
        _run(server.stop())


def _run(step: Coroutine[Any, Any, _T]) -> _T:
    with asyncio.Runner() as runner:
        return runner.run(step)


@pytest.fixture(scope="session")
def _zookeeper_server(request: pytest.FixtureRequest) -> Iterator[ZooKeeper]:
    version = request.config.getoption("--zookeeper-version")
    with _serving(request, lambda progress: ZooKeeper(version, progress=progress)) as server:
        yield server


@pytest.fixture(scope="session")
def _kafka_server(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    version = request.config.getoption("--kafka-version")
    with _serving(request, lambda progress: Kafka(version, progress=progress)) as server:
        yield server


@pytest.fixture(scope="session")
def _kafka_zk_server(
    request: pytest.FixtureRequest, _zookeeper_server: ZooKeeper
) -> Iterator[Kafka]:
    version = request.config.getoption("--kafka-zk-version")
    connect = _zookeeper_server.connect
    with _serving(
        request, lambda progress: Kafka(version, zookeeper=connect, progress=progress)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def _kafka_cluster_server(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    version = request.config.getoption("--kafka-version")
    with _serving(
        request,
        lambda progress: Kafka(version, brokers=3, proxied=True, racks=True, progress=progress),
    ) as server:
        yield server


@pytest.fixture
def kafka(_kafka_server: Kafka, request: pytest.FixtureRequest) -> KafkaHandle:
    """A running Kafka broker that all tests share, with topic and group names for this test."""
    return KafkaHandle(_kafka_server, request.node.name)


@pytest.fixture
def kafka_zk(
    _kafka_zk_server: Kafka, _zookeeper_server: ZooKeeper, request: pytest.FixtureRequest
) -> KafkaWithZooKeeper:
    """A running Kafka broker in ZooKeeper mode, and its ZooKeeper, that all tests share.

    The handle creates topic and group names for this test.
    """
    return KafkaWithZooKeeper(_kafka_zk_server, _zookeeper_server, request.node.name)


@pytest.fixture
def zookeeper(_zookeeper_server: ZooKeeper, request: pytest.FixtureRequest) -> ZooKeeperHandle:
    """A running ZooKeeper server that all tests share, with paths and group names for this test."""
    return ZooKeeperHandle(_zookeeper_server, request.node.name)


@pytest_asyncio.fixture
async def kafka_cluster(
    _kafka_cluster_server: Kafka, request: pytest.FixtureRequest
) -> AsyncIterator[KafkaCluster]:
    """Three running brokers in three racks behind TCP proxies, repaired after the test."""
    server = _kafka_cluster_server
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.heal)
        proxies = {}
        for node_id, listener in server.proxy_listeners.items():
            port = server.brokers[node_id].ports[PROXIED.name]
            proxies[node_id] = await stack.enter_async_context(
                TcpProxy(HOST, port, listener=listener)
            )
        yield KafkaCluster(server, proxies, request.node.name)


@pytest_asyncio.fixture
async def java_consumers(kafka: KafkaHandle) -> AsyncIterator[JavaConsumers]:
    """A starter of Java consumers. It stops the consumers that still run after the test."""
    async with JavaConsumers(kafka.bootstrap_servers) as members:
        yield members


@pytest_asyncio.fixture
async def scala_consumers(kafka_zk: KafkaWithZooKeeper) -> AsyncIterator[ScalaConsumers]:
    """A starter of Kafka 1.1's consumers. It stops the consumers that still run after the test."""
    async with ScalaConsumers(kafka_zk.zookeeper_connect) as members:
        yield members

"""Name resolution: the effects of a slow name server."""

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import pytest
import uvloop

from asyncconsumer.aio.name_resolution import RESOLVER
from asyncconsumer.config import ConnectionConfig, ZooKeeperConfig
from asyncconsumer.errors import ConnectFailed, ServerUnusable
from asyncconsumer.net.connect import open_connection
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.transport import ConnectRequest, open_transport
from tests.support.helpers import until
from tests.support.scripted_broker import Line, broker

pytestmark = pytest.mark.fast

REAL = socket.getaddrinfo
Runner = Callable[[Any], Any]


class NameServer:
    """A name server that answers when a test allows it, and counts requests for each name."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers = threading.Event()
        self.begun = threading.Event()
        self.addresses = ["127.0.0.1"]

    def __call__(self, host: str | bytes | None, *rest: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.endswith(".example"):
            return REAL(host, *rest, **named)
        self.asked[name] += 1
        self.begun.set()
        self.answers.wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, rest[0] or 0))
            for address in self.addresses
        ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answers.set()


class Untouched(Executor):
    """The default executor of the application, which must not be used."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the default executor was used")


def config(**options: Any) -> ConnectionConfig:
    return ConnectionConfig(bootstrap_servers="k.example:1", **options)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_program_ends_while_the_name_server_is_silent(server: NameServer, run: Runner) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match="no connection within"):
            await open_connection(Address("k.example", 1), config(connect_timeout_ms=50))

    run(main())  # waits for every thread of the default executor
    assert server.begun.is_set()
    assert not server.answers.is_set()


async def test_the_default_executor_is_left_to_the_application(server: NameServer) -> None:
    asyncio.get_running_loop()._default_executor = Untouched()  # type: ignore[attr-defined]
    server.answers.set()
    async with broker(Line.greet) as (_, port):
        connection = await open_connection(Address("k.example", port), config())
        connection.close()
        await connection.wait_closed()
    async with broker(lambda line: line.reader.read(1)) as (_, port):
        hello = ConnectRequest(0, bytes(16), 1000, 0)
        with pytest.raises(ServerUnusable):
            await open_transport(
                Address("z.example", port), ZooKeeperConfig(zookeeper_connect="z"), hello
            )
    assert server.asked == {"k.example": 1, "z.example": 1}
    asyncio.get_running_loop()._default_executor = None  # type: ignore[attr-defined]


async def test_a_name_is_requested_once_at_a_time(server: NameServer) -> None:
    async with broker(Line.greet) as (_, port), asyncio.TaskGroup() as group:
        places = [Address("k.example", port)] * 20 + [Address("l.example", port)] * 20
        opening = [group.create_task(open_connection(address, config())) for address in places]
        cancelled = opening.pop()
        await until(lambda: sum(server.asked.values()) == 2)
        cancelled.cancel()
        server.answers.set()
        for task in opening:
            connection = await task
            connection.close()
            await connection.wait_closed()
    assert server.asked == {"k.example": 1, "l.example": 1}


async def test_threads_exist_only_while_a_request_is_pending(server: NameServer) -> None:
    before = threading.active_count()
    async with asyncio.TaskGroup() as group:
        opening = [
            group.create_task(open_connection(Address(f"k{n}.example", 1), config()))
            for n in range(100)
        ]
        await until(lambda: threading.active_count() == before + 8)
        for task in opening:
            task.cancel()
    server.answers.set()
    await until(lambda: threading.active_count() == before)
    assert len(server.asked) == 100


async def test_every_address_of_a_name_is_tried(server: NameServer) -> None:
    server.answers.set()
    server.addresses = ["127.0.0.2", "127.0.0.1"]  # the broker listens at the second address
    async with broker(Line.greet) as (_, port):
        connection = await open_connection(Address("k.example", port), config())
        connection.close()
        await connection.wait_closed()
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.2.*127\.0\.0\.1"):
        await open_connection(Address("k.example", port), config())


async def test_a_name_that_does_not_exist_is_reported(server: NameServer) -> None:
    server.answers.set()
    server.addresses = []
    for _ in range(2):  # an error is not remembered
        with pytest.raises(ConnectFailed, match="no such name"):
            await open_connection(Address("k.example", 1), config())
    assert server.asked["k.example"] == 2


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_resolves_with_its_own_threads(server: NameServer) -> None:
    pending = RESOLVER.lookup("k.example")
    server.begun.wait()
    if (child := os.fork()) == 0:
        code = 1
        try:
            server.answers.set()
            code = 0 if RESOLVER.lookup("k.example").result(10) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    server.answers.set()
    assert pending.result(10)

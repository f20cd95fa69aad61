"""The proxy as a whole: it passes on bytes, closes and resets, and leaves no resources."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from asyncconsumer.errors import ClosedError, ConfigError
from asyncconsumer.testing.proxy import Statistics, TcpProxy, Verdict
from tests.support.proxied_sockets import LOCALHOST, LOOPS, Network, Side, network, on_both_loops

pytestmark = pytest.mark.fast


@on_both_loops
async def test_bytes_pass_both_ways_and_are_counted() -> None:
    async with network() as net:
        client, server = await net.connect()
        await client.send(b"question")
        assert await server.receive(8) == b"question"
        await server.send(b"answer")
        assert await client.receive(6) == b"answer"
        assert net.proxy.statistics() == Statistics(
            accepted=1, refused=0, live=1, bytes_up=8, bytes_down=6, held=0
        )
        assert [connection.number for connection in net.proxy.connections] == [0]
        assert net.proxy.address == f"{LOCALHOST}:{net.proxy.port}"


@on_both_loops
async def test_large_data_arrives_unchanged() -> None:
    data = os.urandom(20 * 2**20)
    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()
        group.create_task(client.send(data))
        received = group.create_task(server.receive(len(data)))
        assert await received == data


@on_both_loops
async def test_a_half_close_is_passed_on_as_a_half_close() -> None:
    async with network() as net:
        client, server = await net.connect()
        await client.send(b"the end")
        client.finish()
        assert await server.receive_all() == b"the end"
        await server.send(b"not mine")
        assert await client.receive(8) == b"not mine"
        assert net.proxy.statistics().live == 1
        server.finish()
        assert await client.receive_all() == b""
        await net.proxy.wait_until(lambda now: now.live == 0)


@on_both_loops
async def test_a_half_close_of_the_server_keeps_the_direction_up_open() -> None:
    async with network() as net:
        client, server = await net.connect()
        server.finish()
        assert await client.receive_all() == b""
        await client.send(b"still here")
        client.finish()
        assert await server.receive_all() == b"still here"
        await net.proxy.wait_until(lambda now: now.live == 0)


@on_both_loops
async def test_a_reset_is_passed_on_as_a_reset_both_ways() -> None:
    async with network() as net:
        client, server = await net.connect()
        client.break_off()
        with pytest.raises(ConnectionResetError):
            await server.receive(1)

        client, server = await net.connect()
        server.break_off()
        with pytest.raises(ConnectionResetError):
            await client.receive(1)
        await net.proxy.wait_until(lambda now: now.live == 0)


@on_both_loops
async def test_a_sender_gets_a_reset_from_a_closed_receiver() -> None:
    async with network() as net:
        client, server = await net.connect()
        client.close()
        assert await server.receive_all() == b""  # after a FIN, the peer may still read
        await server.send(b"for nobody")
        await net.proxy.wait_until(lambda now: now.live == 0)
        with pytest.raises(BrokenPipeError):  # the error of a reset after a FIN
            await server.send(b"for nobody")


@on_both_loops
async def test_a_client_is_reset_if_upstream_refuses() -> None:
    async with network() as net:
        net.server.close()
        client = await net.connect_client()
        with pytest.raises(ConnectionResetError):
            await client.receive(1)
        await net.proxy.wait_until(lambda now: now.live == 0)
        assert net.proxy.statistics().refused == 1


@on_both_loops
async def test_upstream_may_be_a_name() -> None:
    with socket.create_server((LOCALHOST, 0)) as server:
        server.settimeout(0)
        async with TcpProxy("localhost", server.getsockname()[1]) as proxy:
            with socket.create_connection((proxy.host, proxy.port)):
                accepted, _ = await asyncio.get_running_loop().sock_accept(server)
                accepted.close()


@on_both_loops
async def test_both_sides_may_be_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener, socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        server.settimeout(0)
        async with TcpProxy("::1", server.getsockname()[1], listener=listener) as proxy:
            assert proxy.address == f"[::1]:{proxy.port}"
            with socket.create_connection((proxy.host, proxy.port)):
                accepted, _ = await asyncio.get_running_loop().sock_accept(server)
                accepted.close()


@pytest_asyncio.fixture
async def fixture_proxy() -> AsyncIterator[TcpProxy]:
    async with TcpProxy(LOCALHOST, 1) as proxy:
        yield proxy


async def test_a_fixture_may_open_and_close_a_proxy_in_different_tasks(
    fixture_proxy: TcpProxy,
) -> None:
    with socket.create_connection((fixture_proxy.host, fixture_proxy.port)):
        await fixture_proxy.wait_until(lambda now: now.refused == 1)


@on_both_loops
async def test_wait_for_connections_waits_for_the_number_of_connections() -> None:
    async with network() as net, asyncio.TaskGroup() as group:
        waiting = group.create_task(net.proxy.wait_for_connections(2))
        await net.connect()
        await net.proxy.wait_for_connections(1)
        assert not waiting.done()
        await net.connect()
        await waiting
        assert len(net.proxy.connections) == 2


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@on_both_loops
async def test_the_end_closes_all_connections_in_a_black_hole() -> None:
    with socket.create_server((LOCALHOST, 0)) as server:
        server.settimeout(0)
        tasks, descriptors = asyncio.all_tasks(), open_descriptors()
        async with TcpProxy(LOCALHOST, server.getsockname()[1]) as proxy:
            net = Network(proxy, server)
            sides = [*await net.connect(), *await net.connect()]
            proxy.black_hole()
            sides.append(await net.connect_client())  # never reaches the server
            for side in sides:
                await side.send(b"lost")
            await proxy.wait_until(lambda now: now.held == 4 * len(sides))
        assert asyncio.all_tasks() == tasks
        assert [await side.receive_all() for side in sides] == [b""] * len(sides)
        for side in sides:
            side.close()
        assert open_descriptors() == descriptors


@on_both_loops
async def test_an_unused_proxy_leaves_no_task_and_no_descriptor() -> None:
    tasks, descriptors = asyncio.all_tasks(), open_descriptors()
    async with TcpProxy(LOCALHOST, 1):
        pass
    assert asyncio.all_tasks() == tasks
    assert open_descriptors() == descriptors


@on_both_loops
async def test_an_error_of_the_block_is_raised_unchanged() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with TcpProxy(LOCALHOST, 1):
            raise LookupError("mine")


@pytest.mark.parametrize("second", LOOPS)
def test_a_listener_serves_proxies_on_several_loops(second: str) -> None:
    async def one_connection(listener: socket.socket, server: socket.socket) -> int:
        async with TcpProxy(LOCALHOST, server.getsockname()[1], listener=listener) as proxy:
            with socket.create_connection((proxy.host, proxy.port)) as client:
                accepted = Side((await asyncio.get_running_loop().sock_accept(server))[0])
                client.sendall(b"hello")
                assert await accepted.receive(5) == b"hello"
                accepted.close()
            return proxy.port

    with (
        socket.create_server((LOCALHOST, 0)) as listener,
        socket.create_server((LOCALHOST, 0)) as server,
    ):
        server.settimeout(0)
        for loop in ("asyncio", second):
            with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                port = runner.run(one_connection(listener, server))
            assert port == listener.getsockname()[1]


INVALID_FAULTS: dict[str, Callable[[TcpProxy], object]] = {
    "delay must be 0 or more seconds": lambda proxy: proxy.delay(-1),
    "delay must be 0 or more seconds, and finite, got nan": lambda p: p.delay(float("nan")),
    "jitter must be 0 or more seconds": lambda proxy: proxy.delay(1, jitter=-1),
    "pause must be 0 or more seconds": lambda proxy: proxy.slice(1, pause=-1),
    "bytes_per_second must be more than 0": lambda proxy: proxy.throttle(0),
    "max_bytes must be 1 or more": lambda proxy: proxy.slice(0),
    "after must be 0 or more": lambda proxy: proxy.truncate(after=-1),
    "direction must be one of up, down, both, got 'left'": lambda proxy: proxy.black_hole(
        direction="left"  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("message", INVALID_FAULTS)
async def test_an_invalid_fault_is_refused_and_has_no_effect(message: str) -> None:
    async with network() as net:
        with pytest.raises(ConfigError, match=message):
            INVALID_FAULTS[message](net.proxy)
        client, server = await net.connect()
        await client.send(b"fine")
        assert await server.receive(4) == b"fine"


@pytest.mark.parametrize(("host", "port"), [("", 1), (LOCALHOST, 0), (LOCALHOST, 65536)])
def test_an_invalid_upstream_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="upstream_"):
        TcpProxy(host, port)


async def test_a_listener_that_does_not_listen_is_refused() -> None:
    with socket.socket() as idle, pytest.raises(ConfigError, match="bound and listens"):
        async with TcpProxy(LOCALHOST, 1, listener=idle):
            pass
    with pytest.raises(ConfigError, match="bound and listens"):  # the socket is closed
        async with TcpProxy(LOCALHOST, 1, listener=idle):
            pass


FAULTS: dict[str, Callable[[TcpProxy], object]] = {
    "cut": TcpProxy.cut,
    "reset": TcpProxy.reset,
    "refuse": TcpProxy.refuse,
    "black_hole": TcpProxy.black_hole,
    "delay": lambda proxy: proxy.delay(1),
    "throttle": lambda proxy: proxy.throttle(1),
    "slice": lambda proxy: proxy.slice(1),
    "truncate": lambda proxy: proxy.truncate(after=1),
    "on_frame": lambda proxy: proxy.on_frame("up", lambda _: Verdict.PASS),
    "heal": TcpProxy.heal,
}


@pytest.mark.parametrize("verb", FAULTS)
async def test_faults_are_refused_before_and_after_the_block(verb: str) -> None:
    proxy = TcpProxy(LOCALHOST, 1)
    with pytest.raises(ClosedError, match="not open yet"):
        FAULTS[verb](proxy)
    async with proxy:
        FAULTS[verb](proxy)
    with pytest.raises(ClosedError, match="closed"):
        FAULTS[verb](proxy)


async def test_address_and_statistics_are_known_after_the_start() -> None:
    proxy = TcpProxy(LOCALHOST, 1)
    with pytest.raises(ClosedError, match="not open yet"):
        proxy.address  # noqa: B018 - reading it is the test
    with pytest.raises(ClosedError, match="not open yet"):
        proxy.statistics()
    async with proxy:
        address = proxy.address
    assert proxy.address == address
    assert proxy.statistics().accepted == 0


async def test_a_proxy_cannot_be_opened_twice() -> None:
    async with TcpProxy(LOCALHOST, 1) as proxy:
        with pytest.raises(ClosedError, match="used only once"):
            await proxy.__aenter__()


async def test_a_wait_for_a_closed_proxy_raises() -> None:
    async with asyncio.TaskGroup() as group, TcpProxy(LOCALHOST, 1) as proxy:
        group.create_task(raises_closed(proxy.wait_for_connections(1)))
        await asyncio.sleep(0)


async def raises_closed(waiting: Awaitable[None]) -> None:
    with pytest.raises(ClosedError, match="closed"):
        await waiting

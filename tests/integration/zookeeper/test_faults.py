"""A session on a bad network: the faults on which a session of aiozk fails, and more."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import uvloop

from asyncconsumer.errors import ClosedError, ConnectionLoss, SessionExpired, ZooKeeperUnavailable
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.proxy import Frame, TcpProxy, Verdict, zookeeper_opcode
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.support.helpers import until
from tests.support.zookeeper_sessions import LONG, proxied, session

CREATE, GET, SET_WATCHES, SET_WATCHES_2 = 1, 4, 101, 105

Break = Callable[[TcpProxy], None]
BREAKS = pytest.mark.parametrize("end", [TcpProxy.cut, TcpProxy.reset], ids=["fin", "rst"])


def counting(opcode: int, counts: list[int], verdict: Verdict) -> Callable[[Frame], Verdict]:
    """Return a hook that counts the requests of an operation and returns `verdict` for them."""

    def hook(frame: Frame) -> Verdict:
        if zookeeper_opcode(frame) != opcode:
            return Verdict.PASS
        counts.append(frame.connection)
        return verdict

    return hook


async def lost(zk: ZooKeeperSession) -> None:
    await until(lambda: not zk.connected.is_set())


# --- 1: frozen servers -------------------------------------------------------------------------


async def test_opening_fails_after_connection_timeout_ms_on_a_frozen_server(
    zookeeper: ZooKeeperHandle,
) -> None:
    async with TcpProxy(HOST, zookeeper.server.nodes[0].port) as proxy:
        proxy.black_hole()
        with pytest.raises(
            ZooKeeperUnavailable, match=r"within 1\.2 s: .* no answer to the connect request within"
        ):
            async with session(
                proxy.address, session_timeout_ms=1_500, connection_timeout_ms=1_200
            ):
                pytest.fail("opened")


async def test_a_session_opens_though_one_of_two_servers_is_frozen(
    zookeeper: ZooKeeperHandle,
) -> None:
    port = zookeeper.server.nodes[0].port
    async with TcpProxy(HOST, port) as frozen, TcpProxy(HOST, port) as sound:
        frozen.black_hole()
        both = f"{frozen.address},{sound.address}"
        for _ in range(4):
            async with session(both, session_timeout_ms=1_500) as zk:
                assert await zk.exists("/none") is None


# --- 2: the connection dies while watches are set again -----------------------------------------


async def test_watches_recover_though_connections_break_while_they_are_read(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        await zk.create(path)
        watches = [zk.watch_data(path) for _ in range(20)]
        for watch in watches:
            await watch.read()
        forbidden: list[int] = []
        reads = 0

        def hook(frame: Frame) -> Verdict:
            nonlocal reads
            opcode = zookeeper_opcode(frame)
            if opcode in (SET_WATCHES, SET_WATCHES_2):
                forbidden.append(opcode)
            reads += opcode == GET
            return Verdict.CUT if opcode == GET and reads % 8 == 0 else Verdict.PASS

        proxy.on_frame("up", hook)
        proxy.cut()
        for watch in watches:
            await watch.changed.wait()
            assert await watch.read()
        assert reads > 20
        assert forbidden == []


# --- 3 and 4: broken connections, idle and with calls in flight ----------------------------------


@BREAKS
async def test_the_session_survives_a_broken_idle_connection(
    zookeeper: ZooKeeperHandle, end: Break
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        await zk.create(path, ephemeral=True)
        before = zk.session_id
        end(proxy)
        await lost(zk)
        await zk.connected.wait()
        assert (zk.session_id, zk.epoch) == (before, 1)
        stat = await zk.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == before


@BREAKS
async def test_a_break_fails_writes_in_flight_and_repeats_only_reads(
    zookeeper: ZooKeeperHandle, end: Break
) -> None:
    path = zookeeper.path()
    sent: list[int] = []
    async with proxied(zookeeper) as (proxy, zk):
        proxy.on_frame("up", counting(CREATE, sent, Verdict.PASS))
        proxy.black_hole(direction="down")
        async with asyncio.TaskGroup() as group:
            write = group.create_task(_outcome(zk.create(path, b"once")))
            read = group.create_task(zk.exists("/"))
            await until(lambda: len(sent) == 1)
            await proxy.wait_until(lambda now: now.held > 0)  # the response: the write was applied
            end(proxy)
            error = await write
            assert isinstance(error, ConnectionLoss)
            assert error.maybe_applied
            proxy.heal()
            assert await read is not None  # a read is sent again
        assert (await zk.get(path)).data == b"once"
        assert len(sent) == 1


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except ConnectionLoss as error:
        return error


async def test_a_call_waits_for_a_connection_until_connection_timeout_ms(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper, connection_timeout_ms=2_000) as (proxy, zk):
        proxy.refuse()
        proxy.cut()
        await lost(zk)
        with pytest.raises(ConnectionLoss, match=r"no connection .* within 2 s") as caught:
            await zk.create(path)
        assert not caught.value.maybe_applied
        async with asyncio.TaskGroup() as group:
            task = group.create_task(zk.create(path))
            await asyncio.sleep(0)
            proxy.heal()
        assert task.result() == path


# --- 6: a connect response that arrives too late -------------------------------------------------


async def test_a_late_connect_response_does_not_replace_the_session(
    zookeeper: ZooKeeperHandle,
) -> None:
    async with proxied(zookeeper, timeout_ms=6_000) as (proxy, zk):
        before = zk.session_id
        proxy.black_hole(direction="down")
        proxy.cut()
        await proxy.wait_until(lambda now: now.accepted == 3)  # one attempt timed out
        proxy.heal()
        await zk.connected.wait()
        assert (zk.session_id, zk.epoch) == (before, 1)


# --- 7 and 8: expiry -----------------------------------------------------------------------------


async def test_expiry_is_reported_at_once_and_fences_writes_of_its_epoch(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (_, zk):
        await zk.create(path)
        first, epoch = zk.session_id, zk.epoch
        with zk.watch_exists(path) as watch:
            await watch.read()
            await zookeeper.server.expire_session(first, zk.password)
            await zk.wait_expired(epoch)
            assert not zk.holds(epoch)
            assert zk.former_ids == {first}
            await watch.changed.wait()
        await zk.connected.wait()
        assert zk.epoch == epoch + 1
        assert zk.session_id != first
        for write in (
            zk.create(f"{path}/x", epoch=epoch),
            zk.set(path, b"x", epoch=epoch),
            zk.delete(path, epoch=epoch),
            zk.multi([], epoch=epoch),
        ):
            with pytest.raises(SessionExpired, match=f"epoch {epoch} is over"):
                await write
        assert await zk.create(f"{path}/x", epoch=zk.epoch)


async def test_a_write_that_waits_for_a_connection_fails_if_the_session_expires(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        proxy.refuse()
        proxy.cut()
        await lost(zk)
        await zookeeper.server.expire_session(zk.session_id, zk.password)
        async with asyncio.TaskGroup() as group:
            write = group.create_task(_expired(zk.create(path, epoch=zk.epoch)))
            await asyncio.sleep(0)
            proxy.heal()
        assert write.result()
        assert await zk.exists(path) is None


async def _expired(call: Awaitable[object]) -> bool:
    with pytest.raises(SessionExpired):
        await call
    return True


# --- 9: back-off ---------------------------------------------------------------------------------


async def test_the_session_reconnects_after_refused_connections(zookeeper: ZooKeeperHandle) -> None:
    async with proxied(zookeeper) as (proxy, zk):
        before = zk.session_id
        proxy.refuse()
        proxy.cut()
        await proxy.wait_until(lambda now: now.refused >= 4)
        assert not zk.connected.is_set()
        proxy.heal()
        await zk.connected.wait()
        assert zk.session_id == before


# --- 10: close while there is no connection ------------------------------------------------------


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refused"])
async def test_close_ends_on_a_silent_or_refusing_network(
    zookeeper: ZooKeeperHandle, silent: bool
) -> None:
    async with TcpProxy(HOST, zookeeper.server.nodes[0].port) as proxy, asyncio.timeout(20):
        async with session(
            proxy.address, session_timeout_ms=LONG, connection_timeout_ms=LONG
        ) as zk:
            async with asyncio.TaskGroup() as group:
                if silent:
                    proxy.black_hole()
                else:
                    proxy.refuse()
                    proxy.cut()
                    await lost(zk)
                task = group.create_task(_closed(zk))
                await asyncio.sleep(0)
                await zk.__aexit__(None, None, None)  # and a second time at the end of the block
            assert task.result()
        proxy.heal()


async def _closed(zk: ZooKeeperSession) -> bool:
    with pytest.raises(ClosedError):
        await zk.get("/")
    return True


# --- 11 and 12: invalid bytes --------------------------------------------------------------------


async def test_a_truncated_response_closes_the_connection(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        before = zk.session_id
        proxy.truncate(after=10)
        with pytest.raises(ConnectionLoss):
            await zk.create(path)
        proxy.heal()
        await zk.connected.wait()
        assert zk.session_id == before


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", r"answers in text \('HTTP'\)"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "answers in TLS"),
        (struct.pack(">i", 2**30), "1073741824 bytes"),
        (struct.pack(">iq", 8, 0), "does not speak ZooKeeper's protocol"),
        (struct.pack(">iiiqi16s", 36, 0, 0, 0, 16, bytes(16)), "invalid session"),
        (struct.pack(">iiiqi16s", 36, 0, -5, 7, 16, bytes(16)), "invalid session"),
        (b"", "closed the connection"),
    ],
    ids=["text", "tls", "huge", "short", "no session", "no timeout", "nothing"],
)
async def test_the_error_names_a_server_with_another_protocol(answer: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ZooKeeperUnavailable, match=words):
            async with session(f"{HOST}:{port}", connection_timeout_ms=300):
                pytest.fail("opened")


async def test_the_session_reconnects_if_servers_close_after_connecting() -> None:
    met = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        await reader.read(1)
        writer.write(struct.pack(">iiiqi16s", 36, 0, LONG, 7, 16, bytes(16)))
        if met > 3:
            await reader.read()  # until the client disconnects
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, HOST, 0) as server, asyncio.timeout(15):
        port = server.sockets[0].getsockname()[1]
        async with session(f"{HOST}:{port}", session_timeout_ms=LONG) as zk:
            await until(lambda: met > 3 and zk.connected.is_set())
            assert (zk.session_id, zk.epoch) == (7, 1)


async def test_a_response_above_max_frame_bytes_fails_its_call(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect, max_frame_bytes=2_000, connection_timeout_ms=2_000) as zk:
        await zk.create(path, bytes(3_000))
        with pytest.raises(ConnectionLoss, match="is larger than `max_frame_bytes`"):
            await zk.get(path)
        await zk.delete(path)


async def test_a_write_that_is_too_large_for_the_server_keeps_the_session(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect, session_timeout_ms=LONG) as zk:
        before = zk.session_id
        with pytest.raises(ConnectionLoss):
            await zk.create(path, bytes(1_200_000))
        assert await zk.exists(path) is None
        assert zk.session_id == before


def test_the_session_runs_on_uvloop(zookeeper: ZooKeeperHandle) -> None:
    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, zk):
            before = zk.session_id
            for end in (proxy.cut, proxy.reset):
                end()
                await lost(zk)
                assert await zk.exists("/none") is None
            assert zk.session_id == before

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


# --- all faults together -------------------------------------------------------------------------


async def test_watches_see_the_last_value_after_many_broken_connections(
    zookeeper: ZooKeeperHandle,
) -> None:
    path, randomness = zookeeper.path(), Random(1)
    seen: list[bytes | None] = []
    async with (
        session(zookeeper.connect) as writer,
        proxied(zookeeper) as (proxy, zk),
        asyncio.TaskGroup() as group,
    ):

        async def watch_data() -> None:
            with zk.watch_data(path) as watch:
                while seen[-1:] != [b"299"]:
                    await watch.changed.wait()
                    node = await watch.read()
                    seen.append(node and node.data)

        async def watch_children() -> None:
            with zk.watch_children(path) as watch:
                while len(await watch.read() or ()) < 300:
                    await watch.changed.wait()

        group.create_task(watch_data())
        group.create_task(watch_children())
        await until(lambda: seen == [None])
        await writer.create(path)
        for number in range(300):
            await writer.set(path, b"%d" % number)
            await writer.create(f"{path}/{number}")
            if randomness.random() < 0.2:
                randomness.choice([proxy.cut, proxy.reset])()
    assert seen[-1] == b"299"

"""Each fault of the proxy, and its effect on both sides."""

import asyncio
import os
import socket

import pytest

from asyncconsumer.testing.proxy import Statistics, TcpProxy
from asyncconsumer.testing.proxy.faults import CHUNK, Faults
from asyncconsumer.testing.proxy.pipe import WINDOW
from tests.support.proxied_sockets import network, on_both_loops, run_proxy, taken

pytestmark = pytest.mark.fast

FOREVER = 3600.0


@on_both_loops
async def test_both_sides_of_a_cut_connection_read_eof() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.cut()
        assert net.proxy.connections == ()
        assert await client.receive_all() == b""
        assert await server.receive_all() == b""
        client, server = await net.connect()  # the next connection works
        await client.send(b"again")
        assert await server.receive(5) == b"again"


@on_both_loops
async def test_both_sides_of_a_cut_read_eof_with_bytes_in_flight() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.black_hole()
        for side in (client, server):
            await side.send(bytes(WINDOW + CHUNK))
        await net.proxy.wait_until(lambda now: now.held >= 2 * WINDOW)
        # unread bytes are in the kernel of the proxy, which would answer a plain close with RST
        net.proxy.cut()
        await net.proxy.wait_until(lambda now: now.held == 0)
        for side in (client, server):
            assert side.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert await side.receive_all() == b""


@on_both_loops
async def test_both_sides_of_a_reset_connection_get_a_reset() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.reset()
        assert net.proxy.connections == ()
        for side in (client, server):
            with pytest.raises(ConnectionResetError):
                await side.receive(1)


@on_both_loops
async def test_a_single_connection_can_be_ended() -> None:
    async with network() as net:
        sides = [await net.connect() for _ in range(3)]
        first, second, _ = net.proxy.connections
        first.cut()
        second.reset()
        assert [connection.number for connection in net.proxy.connections] == [2]
        assert await sides[0][0].receive_all() == b""
        with pytest.raises(ConnectionResetError):
            await sides[1][0].receive(1)
        await sides[2][0].send(b"alive")
        assert await sides[2][1].receive(5) == b"alive"


@on_both_loops
async def test_bytes_held_by_a_black_hole_arrive_after_heal() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.black_hole()
        await client.send(b"up 1 ")
        await server.send(b"down 1 ")
        await net.proxy.wait_until(lambda now: now.held == 12)
        await client.send(b"up 2")
        await server.send(b"down 2")
        await net.proxy.wait_until(lambda now: now.held == 22)
        await run_proxy()
        assert client.has_no_data()
        assert server.has_no_data()
        net.proxy.heal()
        assert await server.receive(9) == b"up 1 up 2"
        assert await client.receive(13) == b"down 1 down 2"
        assert net.proxy.statistics().held == 0


@on_both_loops
async def test_a_black_hole_may_be_in_one_direction_only() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.black_hole(direction="down")
        await client.send(b"question")
        assert await server.receive(8) == b"question"
        await server.send(b"answer")
        await net.proxy.wait_until(lambda now: now.held == 6)
        await run_proxy()
        assert client.has_no_data()
        net.proxy.heal()
        assert await client.receive(6) == b"answer"


@on_both_loops
async def test_a_connection_opened_in_a_black_hole_arrives_after_heal() -> None:
    async with network() as net:
        net.proxy.black_hole()
        client = await net.connect_client()
        await client.send(b"hello?")
        await net.proxy.wait_until(lambda now: now.live == 1 and now.held == 6)
        await run_proxy()
        assert net.has_no_connection()
        net.proxy.heal()
        server = await net.accept()
        assert await server.receive(6) == b"hello?"


@on_both_loops
async def test_a_black_hole_hides_closed_and_reset_peers() -> None:
    async with network() as net:
        (closing, of_closing), (breaking, of_breaking) = await net.connect(), await net.connect()
        net.proxy.black_hole()
        closing.close()
        breaking.break_off()
        await run_proxy()
        assert of_closing.has_no_data()
        assert of_breaking.has_no_data()
        net.proxy.heal()
        assert await of_closing.receive_all() == b""
        with pytest.raises(ConnectionResetError):
            await of_breaking.receive(1)


@on_both_loops
async def test_a_black_hole_upwards_hides_a_reset_for_bytes_downwards() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.black_hole(direction="up")
        client.break_off()
        await server.send(b"for nobody")
        await run_proxy()
        assert server.has_no_data()
        net.proxy.heal()
        with pytest.raises(ConnectionResetError):
            await server.receive(1)


@on_both_loops
async def test_a_black_hole_holds_a_limited_number_of_bytes() -> None:
    data = os.urandom(50 * 10**6)
    peak = 0

    def seen(now: Statistics) -> int:
        nonlocal peak
        peak = max(peak, now.held)
        return now.held

    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()
        net.proxy.black_hole()
        sending = group.create_task(client.send(data))
        await net.proxy.wait_until(lambda now: seen(now) >= WINDOW)
        await run_proxy()
        assert not sending.done()
        assert seen(net.proxy.statistics()) < WINDOW + CHUNK
        net.proxy.heal()
        received = group.create_task(server.receive(len(data)))
        await net.proxy.wait_until(lambda now: seen(now) == 0 and now.bytes_up == len(data))
        assert await received == data
        assert peak < WINDOW + CHUNK


@on_both_loops
async def test_only_new_connections_are_refused_until_heal() -> None:
    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()
        net.proxy.refuse()
        counted = group.create_task(net.proxy.wait_until(lambda now: now.refused == 1))
        await asyncio.sleep(0)
        refused = await net.connect_client()
        with pytest.raises(ConnectionResetError):
            await refused.receive(1)
        await counted
        await client.send(b"alive")
        assert await server.receive(5) == b"alive"
        net.proxy.heal()
        await net.connect()
        assert net.proxy.statistics().accepted == 3
        assert net.proxy.statistics().refused == 1


@on_both_loops
async def test_delayed_bytes_arrive_together_after_heal() -> None:
    async with network() as net:
        net.proxy.delay(FOREVER, direction="up")
        client, server = await net.connect()
        await client.send(b"one ")
        await net.proxy.wait_until(lambda now: now.held == 4)
        await client.send(b"two")
        await net.proxy.wait_until(lambda now: now.held == 7)
        await server.send(b"not delayed")
        assert await client.receive(11) == b"not delayed"
        assert server.has_no_data()
        net.proxy.heal()
        assert await server.receive(7) == b"one two"


@on_both_loops
async def test_a_fin_is_delayed_like_bytes() -> None:
    async with network() as net:
        net.proxy.delay(FOREVER)
        client, server = await net.connect()
        client.finish()
        await run_proxy()
        assert server.has_no_data()
        net.proxy.heal()
        assert await server.receive_all() == b""


@on_both_loops
async def test_the_order_is_kept_under_jitter() -> None:
    messages = [b"%03d" % number for number in range(100)]
    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()
        net.proxy.delay(0.001, jitter=0.02)
        received = group.create_task(server.receive(300))
        for count, message in enumerate(messages, 1):
            await client.send(message)
            # each message is read separately, with its own latency
            await net.proxy.wait_until(taken(3 * count))
        assert await received == b"".join(messages)


def test_jitter_is_added_to_the_delay() -> None:
    faults = Faults(delay=1.0, jitter=0.5)
    assert [faults.latency(luck) for luck in (0.0, 0.5, 1.0)] == [1.0, 1.25, 1.5]


def test_the_same_seed_gives_the_same_jitter() -> None:
    def draw(seed: int) -> list[float]:
        proxy = TcpProxy("localhost", 1, seed=seed)
        return [proxy._up.luck() for _ in range(5)]

    assert draw(1) == draw(1) != draw(2)


@on_both_loops
async def test_a_throttled_connection_waits_between_pieces() -> None:
    async with network() as net:
        net.proxy.throttle(1 / FOREVER)
        client, server = await net.connect()
        await client.send(b"slow")
        assert await server.receive(1) == b"s"
        await run_proxy()
        assert net.proxy.statistics().bytes_up == 1
        net.proxy.heal()
        assert await server.receive(3) == b"low"


def test_a_throttle_moves_its_rate_in_small_steps() -> None:
    faults = Faults(bytes_per_second=100_000)
    assert faults.piece == 5_000
    assert faults.gap(faults.piece) == pytest.approx(0.05)
    assert Faults(bytes_per_second=10**9).piece == CHUNK


@on_both_loops
async def test_faults_combine() -> None:
    async with network() as net:
        net.proxy.delay(FOREVER)
        net.proxy.throttle(1 / FOREVER)
        net.proxy.truncate(after=3, direction="up")
        client, server = await net.connect()
        await client.send(b"combined")
        await net.proxy.wait_until(lambda now: now.held == 8)
        await run_proxy()
        assert server.has_no_data()
        net.proxy.delay(0)
        assert await server.receive(1) == b"c"
        await run_proxy()
        assert server.has_no_data()
        net.proxy.throttle(10**6)
        assert await server.receive_all() == b"om"


async def test_sliced_bytes_arrive_in_pieces_of_the_given_size() -> None:
    # only on asyncio's loop, which always reads sent bytes before a timer fires
    pieces: list[bytes] = []
    async with network() as net:
        client, server = await net.connect()
        net.proxy.slice(7)
        await client.send(b"x" * 100)
        while sum(map(len, pieces)) < 100:
            pieces.append(await asyncio.get_running_loop().sock_recv(server.socket, 1000))
    assert [len(piece) for piece in pieces] == [7] * 14 + [2]


@on_both_loops
async def test_a_truncated_response_ends_at_the_exact_byte() -> None:
    async with network() as net:
        client, server = await net.connect()
        await server.send(b"before")
        assert await client.receive(6) == b"before"
        net.proxy.truncate(after=1000)
        live, later = (client, server), await net.connect()
        for to, of in (live, later):
            await to.send(b"up is not touched")
            assert await of.receive(17) == b"up is not touched"
            await of.send(bytes(range(100)) * 20)
            assert await to.receive_all() == bytes(range(100)) * 10
            assert await of.receive_all() == b""


@on_both_loops
async def test_a_truncated_response_ends_after_its_last_byte() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.truncate(after=5)
        await server.send(b"exact")
        assert await client.receive_all() == b"exact"


@on_both_loops
async def test_a_truncation_may_end_with_a_reset() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.truncate(after=3, direction="up", reset=True)
        await client.send(b"abcdef")
        assert await server.receive(3) == b"abc"
        for side in (client, server):
            with pytest.raises(ConnectionResetError):
                await side.receive(1)


@on_both_loops
async def test_a_truncation_after_0_bytes_ends_at_the_first_byte() -> None:
    async with network() as net:
        net.proxy.truncate(after=0)
        client, server = await net.connect()
        await client.send(b"question")
        assert await server.receive(8) == b"question"
        await server.send(b"answer")
        assert await client.receive_all() == b""


@on_both_loops
async def test_each_truncation_starts_a_new_count() -> None:
    async with network() as net:
        client, server = await net.connect()
        for _ in range(2):
            net.proxy.truncate(after=5)
            await server.send(b"1234")
            assert await client.receive(4) == b"1234"
        await server.send(b"5678")
        assert await client.receive_all() == b"5"

"""Callbacks of the proxy that decide about frames."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from aiokafka.protocol.metadata import MetadataRequest_v1
from aiozk.protocol import ConnectRequest, ExistsRequest, PingRequest, SetWatchesRequest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.proxy import (
    ZOOKEEPER_CONNECT,
    Frame,
    Verdict,
    kafka_api_key,
    zookeeper_opcode,
)
from asyncconsumer.testing.proxy.frames import HEAD, FrameFinder
from tests.support.proxied_sockets import framed, network, on_both_loops, run_proxy, taken

pytestmark = pytest.mark.fast


def verdict_for(body: bytes, verdict: Verdict) -> Callable[[Frame], Verdict]:
    """Return a filter with this verdict for the frame of this body. Other frames pass."""
    return lambda frame: verdict if frame.body == body else Verdict.PASS


@on_both_loops
async def test_a_callback_gets_each_frame_for_any_split_of_packets() -> None:
    seen: list[Frame] = []

    def look(frame: Frame) -> Verdict:
        seen.append(frame)
        return Verdict.PASS

    async with network() as net:
        net.proxy.on_frame("up", look)
        (client, server), (other, _) = await net.connect(), await net.connect()
        data = framed(b"first", b"", b"third")
        for offset in range(len(data)):
            await client.send(data[offset : offset + 1])
            await net.proxy.wait_until(taken(offset + 1))
        assert await server.receive(len(data)) == data
        await client.send(framed(b"several", b"at once") * 2)
        await server.receive(len(framed(b"several", b"at once") * 2))
        await server.send(framed(b"down is not asked for"))
        await client.receive(25)
        await other.send(framed(b"other"))
        await net.proxy.wait_until(lambda _: len(seen) == 8)
    bodies = [b"first", b"", b"third", b"several", b"at once", b"several", b"at once"]
    assert seen == [
        *(Frame(0, index, body) for index, body in enumerate(bodies)),
        Frame(1, 0, b"other"),
    ]


@on_both_loops
async def test_only_the_dropped_frame_is_missing() -> None:
    async with network() as net:
        net.proxy.on_frame("down", verdict_for(b"two", Verdict.DROP))
        client, server = await net.connect()
        await server.send(framed(b"one", b"two", b"three"))
        server.finish()
        assert await client.receive_all() == framed(b"one", b"three")
        assert net.proxy.statistics().held == 0


@on_both_loops
async def test_a_long_frame_is_dropped_to_its_last_byte_even_after_heal() -> None:
    long = bytes(3 * HEAD)
    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()

        def drop_once(frame: Frame) -> Verdict:
            assert frame.body == long[:HEAD]
            net.proxy.heal()
            return Verdict.DROP

        net.proxy.on_frame("up", drop_once)
        group.create_task(client.send(framed(long, b"next")))
        assert await server.receive(8) == framed(b"next")
        assert net.proxy.statistics().held == 0


@on_both_loops
async def test_a_long_frame_after_a_dropped_frame_passes_completely() -> None:
    data = framed(bytes(HEAD + 10))
    async with network() as net, asyncio.TaskGroup() as group:
        client, server = await net.connect()
        net.proxy.on_frame("up", verdict_for(b"drop", Verdict.DROP))
        group.create_task(client.send(framed(b"drop") + data))
        assert await server.receive(len(data)) == data


@on_both_loops
async def test_a_frame_can_cut_the_connection_after_earlier_frames() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.on_frame("up", verdict_for(b"bad", Verdict.CUT))
        await client.send(framed(b"good", b"bad", b"late"))
        assert await server.receive_all() == framed(b"good")
        assert await client.receive_all() == b""


@on_both_loops
async def test_a_frame_can_reset_the_connection() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.on_frame("up", verdict_for(b"bad", Verdict.RESET))
        await client.send(framed(b"bad"))
        for side in (client, server):
            with pytest.raises(ConnectionResetError):
                await side.receive(1)


@on_both_loops
async def test_a_held_frame_stalls_its_connection_and_direction_until_heal() -> None:
    asked: list[bytes] = []

    def hold(frame: Frame) -> Verdict:
        asked.append(frame.body)
        return Verdict.HOLD if frame.body == b"hold" else Verdict.PASS

    async with network() as net:
        net.proxy.on_frame("down", hold)
        (client, server), (other, of_other) = await net.connect(), await net.connect()
        await server.send(framed(b"one", b"hold", b"two"))
        assert await client.receive(7) == framed(b"one")
        await net.proxy.wait_until(lambda now: now.held == 15)
        await client.send(framed(b"up goes on"))
        assert await server.receive(14) == framed(b"up goes on")
        await of_other.send(framed(b"fine"))
        assert await other.receive(8) == framed(b"fine")
        net.proxy.delay(0)  # another fault does not release the frame
        await run_proxy()
        assert client.has_no_data()
        assert asked == [b"one", b"hold", b"fine"]
        net.proxy.heal()
        assert await client.receive(15) == framed(b"hold", b"two")


@on_both_loops
async def test_a_new_callback_decides_about_a_held_frame() -> None:
    async with network() as net:
        client, server = await net.connect()
        net.proxy.on_frame("up", verdict_for(b"held", Verdict.HOLD))
        await client.send(framed(b"held", b"next"))
        await net.proxy.wait_until(lambda now: now.held == 16)
        net.proxy.on_frame("up", verdict_for(b"held", Verdict.DROP))
        assert await server.receive(8) == framed(b"next")


@on_both_loops
async def test_a_callback_may_inject_faults() -> None:
    async with network() as net:
        client, server = await net.connect()

        def cut_in_the_middle(frame: Frame) -> Verdict:
            if frame.index == 1:
                net.proxy.truncate(after=6)
            return Verdict.PASS

        net.proxy.on_frame("down", cut_in_the_middle)
        await server.send(framed(b"whole", b"half of it"))
        assert await client.receive_all() == framed(b"whole") + framed(b"half of it")[:6]


@on_both_loops
async def test_a_callback_set_in_the_middle_of_a_frame_starts_with_the_next_one() -> None:
    data = framed(framed(b"looks like one", b"and another"), b"next")
    for split in range(1, 30):
        async with network() as net:
            client, server = await net.connect()
            await client.send(data[:split])
            assert await server.receive(split) == data[:split]
            seen: list[Frame] = []

            def look(frame: Frame, seen: list[Frame] = seen) -> Verdict:
                seen.append(frame)
                return Verdict.PASS

            net.proxy.on_frame("up", look)
            await client.send(data[split:])
            assert await server.receive(len(data) - split) == data[split:]
        assert seen == [Frame(0, 1, b"next")]


@on_both_loops
async def test_an_incomplete_frame_is_passed_on_at_the_end() -> None:
    async with network() as net:
        net.proxy.on_frame("up", lambda _: Verdict.DROP)
        client, server = await net.connect()
        await client.send(framed(b"never complete")[:9])
        client.finish()
        assert await server.receive_all() == framed(b"never complete")[:9]


@pytest.mark.parametrize("data", [b"srvr", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01"])
async def test_bytes_that_are_no_frame_pass_without_a_callback(data: bytes) -> None:
    async with network() as net:
        net.proxy.on_frame("up", lambda _: Verdict.DROP)
        client, server = await net.connect()
        await client.send(data)
        assert await server.receive(len(data)) == data


async def test_a_callback_that_fails_ends_the_proxy_with_its_error() -> None:
    def fail(_: Frame) -> Verdict:
        raise LookupError("mine")

    with pytest.RaisesGroup(pytest.RaisesExc(LookupError, match="mine"), flatten_subgroups=True):
        async with network() as net:
            net.proxy.on_frame("up", fail)
            client, server = await net.connect()
            await client.send(framed(b"x"))
            await server.receive(1)


async def test_a_callback_without_a_verdict_is_an_error() -> None:
    error = pytest.RaisesExc(ConfigError, match="must return a Verdict, got None")
    with pytest.RaisesGroup(error, flatten_subgroups=True):
        async with network() as net:
            net.proxy.on_frame("up", lambda _: None)  # type: ignore[arg-type,return-value]
            client, server = await net.connect()
            await client.send(framed(b"x"))
            await server.receive(1)


def test_zookeeper_opcode_returns_the_opcode_of_a_request() -> None:
    connect = ConnectRequest(
        protocol_version=0,
        last_seen_zxid=7,
        timeout=4000,
        session_id=0,
        password=b"\0",
        read_only=False,
    )
    watches = SetWatchesRequest(
        relative_zxid=0, data_watches=["/a"], exist_watches=[], child_watches=["/b"]
    )
    requests = [
        (connect.serialize(), ZOOKEEPER_CONNECT),
        (ExistsRequest(path="/brokers", watch=True).serialize(1), 3),
        (ExistsRequest(path="/brokers/topics/orders", watch=True).serialize(0), 3),
        (PingRequest().serialize(-2), 11),
        (watches.serialize(-8), 101),
    ]
    assert [zookeeper_opcode(Frame(0, 0, bytes(body))) for body, _ in requests] == [
        opcode for _, opcode in requests
    ]
    assert zookeeper_opcode(Frame(0, 0, b"short")) is None


def test_kafka_api_key_returns_the_key_of_a_request() -> None:
    request = MetadataRequest_v1([])
    header = request.build_request_header(correlation_id=5, client_id="me")
    assert kafka_api_key(Frame(0, 0, header.encode() + request.encode())) == 3
    assert kafka_api_key(Frame(0, 0, b"short")) is None


@given(
    bodies=st.lists(st.binary(max_size=20), max_size=20),
    cuts=st.lists(st.integers(0, 400)),
    whole=st.lists(st.booleans(), min_size=1),
)
def test_frames_are_found_in_pieces_of_any_size(
    bodies: list[bytes], cuts: list[int], whole: list[bool]
) -> None:
    """Whole frames may be requested at some times only. No byte is lost and no frame invented."""
    data = framed(*bodies)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    finder, passed, result = FrameFinder(), b"", {}
    for turn, (start, end) in enumerate(itertools.pairwise(edges)):
        finder.feed(data[start:end])
        while piece := finder.take(whole=whole[turn % len(whole)]):
            passed += piece.data
            if piece.body is not None:
                result[piece.index] = piece.body
    assert passed + finder.leftover() == data
    assert result.items() <= dict(enumerate(bodies)).items()
    if all(whole):
        assert len(result) == len(bodies)

"""A connection: order, ends, cancellation, and invalid responses of a broker."""

import asyncio
import os
import struct
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    FrameTooLarge,
    MalformedResponse,
    NotTls,
    RequestTimedOut,
    UnsupportedBroker,
)
from asyncconsumer.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
)
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_connections import Wire
from tests.support.helpers import until
from tests.support.scripted_broker import Line, connected

pytestmark = pytest.mark.fast

FETCH = FetchRequest(
    {FetchTopic("t"): [FetchPartition(0, 0, 100)]}, max_wait_ms=0, min_bytes=0, max_bytes=100
)
METADATA = MetadataRequest([])
# throttle time, no brokers, cluster id, controller, no topics, no authorized operations
NOTHING = struct.pack(">iihiii", 0, 0, -1, 1, 0, 0)


async def test_responses_are_matched_to_their_requests() -> None:
    async def play(line: Line) -> None:
        asked = [
            await line.asked() for _ in range(3)
        ]  # no request is answered before all have arrived
        for number, request in enumerate(asked):
            line.answer(request, b"answer %d" % number)
        await line.until_closed()

    async with connected(play) as connection:
        waiting = [connection.send_raw(FETCH) for _ in range(3)]
        answers = [await future for future in waiting]
    assert [bytes(answer.body) for answer in answers] == [b"answer 0", b"answer 1", b"answer 2"]
    assert {answer.version for answer in answers} == {11}


@pytest.mark.parametrize(
    "request_",
    [MetadataRequest(["\ud800"]), ListOffsetsRequest({"t": [ListedOffset(0, 2**63)]})],
)
async def test_an_unencodable_request_does_not_end_the_connection(request_: Any) -> None:
    async def play(line: Line) -> None:
        line.answer(await line.asked(), NOTHING)
        await line.until_closed()

    async with connected(play) as connection:
        connection.versions[2] = 1, 3
        with pytest.raises(ConfigError, match="cannot be encoded"):
            await connection.request(request_)
        assert not (await connection.request(METADATA)).topics


async def test_large_responses_arrive_intact() -> None:
    bodies = [bytes(range(256)) * size for size in (40_000, 1, 7_000)]

    async def play(line: Line) -> None:
        for body in bodies:
            line.answer(await line.asked(), body)
        await line.until_closed()

    async with connected(play) as connection:
        answers = [await connection.send_raw(FETCH) for _ in bodies]
    assert [answer.body.tobytes() for answer in answers] == bodies


def sent_whole(line: Line, data: bytes) -> None:
    """Write all data at once, in a turn of the event loop in which no task reads."""
    number: int = line.writer.get_extra_info("socket").fileno()
    assert os.write(number, data) == len(data)


async def test_receive_reads_a_response_without_a_turn_of_the_loop() -> None:
    body, sent = bytes(range(256)) * 200, asyncio.Event()

    async def play(line: Line) -> None:
        asked = [await line.asked() for _ in range(2)]
        heads = [struct.pack(">ii", len(body) + 4, asked.correlation) for asked in asked]
        sent_whole(line, b"".join(head + body for head in heads))
        sent.set()
        await line.until_closed()

    async with connected(play) as connection:
        first, second = connection.send_raw(FETCH), connection.send_raw(FETCH)
        await sent.wait()
        if isinstance(asyncio.get_running_loop(), uvloop.Loop):
            pytest.skip("uvloop reads sockets before it runs what is ready")
        assert not first.done()
        connection.receive(first)
        assert first.result().body.tobytes() == body
        connection.receive(second)
        assert second.result().body.tobytes() == body
        connection.receive(second)  # already received


@pytest.mark.parametrize("piece", [b"", b"\0\0", struct.pack(">ii", 20, 2) + b"begun"])
async def test_an_incomplete_response_is_completed_by_the_loop(piece: bytes) -> None:
    may, sent = asyncio.Event(), asyncio.Event()

    async def play(line: Line) -> None:
        asked = await line.asked()
        whole = struct.pack(">ii", 20, asked.correlation) + b"begun, and ended"
        assert whole.startswith(piece)
        sent_whole(line, piece)
        sent.set()
        await may.wait()
        line.send(whole[len(piece) :])
        await line.until_closed()

    async with connected(play) as connection:
        answer = connection.send_raw(FETCH)
        await sent.wait()
        connection.receive(answer)
        assert not answer.done()
        may.set()
        assert bytes((await answer).body) == b"begun, and ended"


async def test_receive_leaves_a_lost_connection_to_the_loop() -> None:
    gone = asyncio.Event()

    async def play(line: Line) -> None:
        await line.asked()
        line.writer.transport.abort()
        gone.set()

    async with connected(play) as connection:
        answer = connection.send_raw(FETCH)
        await gone.wait()
        connection.receive(answer)
        with pytest.raises(ConnectionLost):
            await answer
        connection.receive(answer)


async def test_a_control_response_is_decoded() -> None:
    async def play(line: Line) -> None:
        line.answer(await line.asked(), NOTHING)
        await line.until_closed()

    async with connected(play) as connection:
        answer = await connection.request(METADATA)
        assert (answer.controller_id, answer.brokers) == (1, [])
        assert connection.usable


Step = Callable[[Line], Awaitable[Any]]


async def reset(line: Line) -> None:
    line.writer.transport.abort()


async def close(line: Line) -> None:
    line.writer.close()


async def cut_in_the_length(line: Line) -> None:
    line.send(b"\x00\x00")


async def cut_in_the_body(line: Line) -> None:
    line.send(struct.pack(">ii", 1000, 2) + b"begun")


async def answer_with_wrong_correlation(line: Line) -> None:
    line.answer(99, NOTHING)
    await line.until_closed()


async def answer_too_large(line: Line) -> None:
    line.send(struct.pack(">i", 2**31 - 1) + b"x" * 1000)
    await line.until_closed()


async def answer_negative(line: Line) -> None:
    line.send(struct.pack(">i", -5))
    await line.until_closed()


async def answer_in_http(line: Line) -> None:
    line.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await line.until_closed()


async def answer_in_tls(line: Line) -> None:
    line.send(bytes.fromhex("15030300020246"))
    await line.until_closed()


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        (reset, ConnectionLost, "on the first request; it may require a login"),
        (close, ConnectionLost, "the broker closed the connection"),
        (cut_in_the_length, ConnectionLost, "the broker closed the connection"),
        (cut_in_the_body, ConnectionLost, "the broker closed the connection"),
        (answer_with_wrong_correlation, MalformedResponse, "correlation id 99 instead of 2"),
        (answer_too_large, FrameTooLarge, "2147483647 bytes; 4 to 134217728 are allowed"),
        (answer_negative, FrameTooLarge, "a response of -5 bytes"),
        (answer_in_http, FrameTooLarge, "responds with text, 'HTTP'"),
        (answer_in_tls, NotTls, "responds with TLS"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_the_end_of_a_connection_fails_all_requests_immediately(
    step: Step, kind: type[ConsumerError], words: str
) -> None:
    async def play(line: Line) -> None:
        for _ in range(3):
            await line.asked()
        await step(line)

    async with connected(play) as connection:
        waiting = [connection.send_raw(FETCH) for _ in range(3)]
        at_once: list[bool] = []
        waiting[0].add_done_callback(lambda _: at_once.extend(future.done() for future in waiting))
        errors = []
        for future in waiting:
            with pytest.raises(kind, match=words) as caught:
                await future
            errors.append(caught.value)
        assert at_once == [True, True, True]
        assert len({id(error) for error in errors}) == 3
        assert all(str(connection.address) in str(error) for error in errors)
        assert not connection.usable
        with pytest.raises(ConnectionLost, match="closed before the request"):
            connection.send_raw(FETCH)


async def test_no_memory_is_allocated_for_a_frame_that_is_too_large() -> None:
    async def play(line: Line) -> None:
        await line.asked()
        await answer_too_large(line)

    async with connected(play) as connection:
        waiting = connection.send_raw(FETCH)
        tracemalloc.start()
        try:
            with pytest.raises(FrameTooLarge):
                await waiting
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


async def test_an_unexpected_response_ends_the_connection() -> None:
    async def play(line: Line) -> None:
        line.answer(7, b"hello")
        await line.until_closed()

    async with connected(play) as connection:
        await until(lambda: not connection.usable)
        assert "correlation id 7 instead of None" in str(connection.ending)


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    first_came, answer_now = asyncio.Event(), asyncio.Event()

    async def play(line: Line) -> None:
        first = await line.asked()
        first_came.set()
        await answer_now.wait()
        line.answer(first, b"late")
        line.answer(await line.asked(), NOTHING)
        await line.until_closed()

    async with connected(play) as connection:
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(connection.request(METADATA))
            await first_came.wait()
            given_up.cancel()
        answer_now.set()
        assert (await connection.request(METADATA)).controller_id == 1
        assert connection.usable


async def test_dropped_responses_log_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def play(line: Line) -> None:
        await line.asked()
        await reset(line)

    async with connected(play) as connection:
        dropped = [connection.send_raw(FETCH) for _ in range(2)]
        await until(lambda: not connection.usable)
        del dropped
    assert not caplog.records


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "convert value: b''"),
        (NOTHING[:10], "convert value"),
        (struct.pack(">ii", 0, 2**31 - 1), "convert value"),
        (struct.pack(">iiih", 0, 1, 1, 30_000) + b"short", "Buffer underrun"),
        (struct.pack(">iiih", 0, 1, 1, 2) + b"\xff\xfe", "can't decode"),
    ],
)
async def test_a_malformed_response_ends_the_connection(body: bytes, reason: str) -> None:
    async def play(line: Line) -> None:
        line.answer(await line.asked(), body)
        await line.until_closed()

    async with connected(play) as connection:
        with pytest.raises(MalformedResponse, match=f"Metadata .*version 8.*{reason}"):
            await connection.request(METADATA)
        assert isinstance(connection.ending, MalformedResponse)


async def test_a_control_response_above_the_limit_is_not_decoded() -> None:
    async def play(line: Line) -> None:
        line.answer(await line.asked(), bytes(17 * 2**20))
        await line.until_closed()

    async with connected(play) as connection:
        with pytest.raises(FrameTooLarge, match="a response to Metadata of 17825792 bytes"):
            await connection.request(METADATA)


async def test_a_request_that_the_broker_does_not_support_is_refused() -> None:
    async with connected(Line.until_closed) as connection:
        listing = ListOffsetsRequest({"t": [ListedOffset(0, 1)]})
        with pytest.raises(UnsupportedBroker, match="ListOffsets is needed in version 1 to 9"):
            await connection.request(listing)
        assert connection.usable


# --- without sockets, on virtual time ----------------------------------------------------------


@simulated(seeds=range(20))
async def test_a_request_that_times_out_closes_the_connection() -> None:
    wire = Wire(request_timeout_ms=30_000)
    waiting = wire.connection.send_raw(FETCH)
    timed_out = wire.connection.send_raw(FETCH, timeout=5)
    with pytest.raises(RequestTimedOut, match="k:9092: no response to Fetch within 5 s"):
        await timed_out
    assert waiting.done()
    assert asyncio.get_running_loop().time() == 5
    with pytest.raises(ConnectionLost, match="closed because there was no response to Fetch"):
        await waiting
    assert wire.sent[-1] == b"abort"


@simulated(seeds=range(20))
async def test_a_timely_response_cancels_the_timeout_of_its_request() -> None:
    wire = Wire(connections_max_idle_ms=3_600_000)
    answer = wire.connection.send_raw(FETCH, timeout=5)
    wire.receive(1, b"body")
    assert bytes((await answer).body) == b"body"
    await asyncio.sleep(3_000)
    assert wire.connection.usable


@simulated(seeds=range(20))
async def test_a_cancelled_request_still_detects_a_dead_connection() -> None:
    wire = Wire(connections_max_idle_ms=3_600_000)
    wire.connection.send_raw(FETCH, timeout=5).cancel()
    await asyncio.sleep(6)
    assert isinstance(wire.connection.ending, ConnectionLost)


@simulated(seeds=range(20))
async def test_only_an_idle_connection_is_closed() -> None:
    wire = Wire(connections_max_idle_ms=60_000)
    await asyncio.sleep(50)
    answer = wire.connection.send_raw(FETCH, timeout=3_600)
    await asyncio.sleep(3_000)
    assert wire.connection.usable
    wire.receive(1, b"body")
    await answer
    answered = asyncio.get_running_loop().time()
    await wire.connection.wait_closed()
    assert isinstance(wire.connection.ending, ClosedError)
    assert "idle" in str(wire.connection.ending)
    assert 60 <= asyncio.get_running_loop().time() - answered <= 120


@simulated(seeds=range(3))
async def test_an_idle_connection_is_closed_despite_rounding_of_the_clock() -> None:
    await asyncio.sleep(
        1000.1
    )  # the sum with 60 is rounded down, and small amounts are rounded off
    wire = Wire(connections_max_idle_ms=60_000)
    loop, timers_set = asyncio.get_running_loop(), 0
    call_later = loop.call_later

    def count(delay: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        nonlocal timers_set
        timers_set += 1
        assert timers_set < 10, "the timer is set again and again without progress"
        return call_later(delay, *args, **options)

    with patch.object(loop, "call_later", count):
        await wire.connection.wait_closed()
    assert isinstance(wire.connection.ending, ClosedError)


@simulated(seeds=range(20))
async def test_a_retired_connection_completes_requests_in_flight() -> None:
    wire = Wire()
    answer = wire.connection.send_raw(FETCH)
    wire.connection.retire()
    with pytest.raises(ConnectionLost):
        wire.connection.send_raw(FETCH)
    assert wire.sent[-1] != b"abort"
    wire.receive(1, b"body")
    assert wire.sent[-1] == b"abort"
    assert bytes((await answer).body) == b"body"
    await wire.connection.wait_closed()


@simulated(seeds=range(20))
async def test_a_connection_without_requests_retires_immediately() -> None:
    wire = Wire()
    wire.connection.retire()
    assert wire.sent == [b"abort"]
    await wire.connection.wait_closed()


@simulated(seeds=range(20))
async def test_a_connection_is_not_used_after_its_login_expires() -> None:
    wire = Wire()
    wire.connection.expires = 60
    usable = []
    for _ in range(2):
        await asyncio.sleep(59)
        usable.append(wire.connection.usable)
    assert usable == [True, False]
    assert wire.connection.ending is None


@simulated(seeds=range(20))
async def test_close_fails_pending_requests_with_the_reason() -> None:
    wire = Wire()
    answer = wire.connection.send_raw(FETCH)
    assert "open, 1 requests" in repr(wire.connection)
    wire.connection.close()
    with pytest.raises(ClosedError, match="k:9092 was closed"):
        await answer
    assert "ended (the connection to k:9092 was closed)" in repr(wire.connection)
    loop: Any = asyncio.get_running_loop()
    timers = [timer for *_, timer in loop._timers._heap if not timer.cancelled()]
    assert timers == [], "a closed connection keeps no timer"


@simulated(seeds=range(20))
async def test_tagged_fields_of_a_header_are_skipped() -> None:
    wire = Wire()
    body = bytes.fromhex("000000000100000000070100")  # Metadata 12, empty
    for tags in (b"\x00", b"\x01\x09\x02ab", b"\x02\x00\x00\x05\x01z"):
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(wire.connection.request(METADATA))
            await asyncio.sleep(0)
            wire.receive(len(wire.sent), tags + body)
        assert answer.result().controller_id == 7


@pytest.mark.parametrize("tags", [b"", b"\xff\xff\xff\xff\xff\xff", b"\x02\x05\x00\x04\x00"])
def test_invalid_tagged_fields_end_the_connection(tags: bytes) -> None:
    @simulated(seeds=range(20))
    async def check() -> None:
        wire = Wire()
        answer = wire.connection.send_raw(METADATA)
        wire.receive(1, tags)
        with pytest.raises(MalformedResponse, match="Metadata"):
            await answer

    check()


FULL = bytes.fromhex(
    "00000000" "02" "00000001" "02" "6b" "00002384" "00" "00" "0263" "00000001"
    "02" "0000" "0274" "000102030405060708090a0b0c0d0e0f" "00"
    "02" "0000" "00000000" "00000001" "00000005" "0200000001" "0200000001" "01" "00"
    "80000000" "00" "00"
)  # fmt: skip


@simulated(seeds=range(20))
async def test_the_response_that_is_mutated_below_is_valid() -> None:
    wire = Wire()
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(wire.connection.request(METADATA))
        await asyncio.sleep(0)
        wire.receive(1, b"\x00" + FULL)
    [topic] = answer.result().to_object()["topics"]
    assert (topic["name"], topic["partitions"][0]["leader_epoch"]) == ("t", 5)


@given(start=st.integers(0, len(FULL) - 1), put=st.binary(max_size=6), cut=st.integers(0, 9))
def test_mutated_responses_are_decoded_or_refused(start: int, put: bytes, cut: int) -> None:
    @simulated(seeds=range(20))
    async def check() -> None:
        wire = Wire()
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(decode_or_refuse(wire))
            await asyncio.sleep(0)
            wire.receive(1, b"\x00" + FULL[:start] + put + FULL[start + cut :])
        await answer

    async def decode_or_refuse(wire: Wire) -> None:
        try:
            await wire.connection.request(METADATA)
        except MalformedResponse:
            assert not wire.connection.usable

    check()

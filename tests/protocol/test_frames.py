"""The split of received bytes into frames, for any sizes of the pieces."""

import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asyncconsumer.protocol.frames import BadLength, Frames

pytestmark = pytest.mark.fast

LENGTHS = st.integers(4, 40) | st.integers(4080, 4110) | st.integers(8000, 9000)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(frames: Frames, data: bytes, pieces: list[int]) -> list[bytes]:
    """Return the frames of bytes in pieces of these sizes. The last size repeats."""
    results, offset, sizes = [], 0, iter(pieces)
    size = 1
    while offset < len(data):
        size = next(sizes, size)
        room = frames.room()
        piece = data[offset : offset + min(size, len(room))]
        room[: len(piece)] = piece
        results += [bytes(frame) for frame in frames.received(len(piece))]
        offset += len(piece)
    return results


def feed_kept(frames: Frames, data: bytes) -> list[memoryview]:
    """Return the frames themselves."""
    results: list[memoryview] = []
    while data:
        room = frames.room()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        results += frames.received(len(piece))
    return results


@given(lengths=st.lists(LENGTHS, max_size=6), pieces=st.lists(st.integers(1, 9000), max_size=9))
@example(lengths=[4, 8000], pieces=[11])  # a piece that ends in the middle of a length
def test_frames_are_returned_complete_and_in_order(lengths: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number % 256]) * length for number, length in enumerate(lengths, 1)]
    assert feed(Frames(9000), b"".join(map(framed, bodies)), pieces) == bodies


def test_a_returned_frame_is_not_overwritten() -> None:
    frames, retained = Frames(100), []
    for number in range(50):
        data = framed(bytes([number]) * 10)
        frames.room()[: len(data)] = data
        retained += frames.received(len(data))
    assert [bytes(frame) for frame in retained] == [bytes([number]) * 10 for number in range(50)]


def test_a_large_frame_in_use_is_not_overwritten() -> None:
    frames, retained = Frames(200_000), []
    for number in range(20):
        (body,) = feed_kept(frames, framed(bytes([number]) * (100_000 + number)))
        if number % 3 == 0:
            retained.append((number, body))
        del body  # the next frames may reuse its memory
    assert all(bytes(body) == bytes([n]) * (100_000 + n) for n, body in retained)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 101, 2**31 - 1])
def test_an_invalid_length_allocates_no_memory(length: int) -> None:
    frames = Frames(100)
    tracemalloc.start()
    try:
        with pytest.raises(BadLength) as caught:
            feed(frames, framed(b"good") + struct.pack(">i", length) + b"more", [50])
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert caught.value.length == length

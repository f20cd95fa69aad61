import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

import pytest
from aiokafka.protocol import fetch
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncconsumer.errors import MalformedResponse
from tests.records.test_decoder_agreement import TWINS
from tests.support.record_encoder import batch, rows, unsigned_varint

if TYPE_CHECKING:
    from asyncconsumer.records._pure import FetchAnswer

pytestmark = pytest.mark.fast

VERSIONS = range(4, 18)
TOPIC_ID = bytes(range(16))
RECORDS = batch(rows(2))


class Writer:
    """A writer of the fields of a response in one version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= 12
        self.out = b""

    def add(self, form: str, *values: int) -> None:
        self.out += struct.pack(">" + form, *values)

    def length(self, value: int, form: str = "i") -> None:
        self.out += unsigned_varint(value + 1) if self.flexible else struct.pack(">" + form, value)

    def text(self, value: str | None) -> None:
        data = None if value is None else value.encode()
        self.length(-1 if data is None else len(data), "h")
        self.out += data or b""

    def tags(self, tags: Mapping[int, bytes] = MappingProxyType({})) -> None:
        if self.flexible:
            self.out += unsigned_varint(len(tags))
            for number, data in tags.items():
                self.out += unsigned_varint(number) + unsigned_varint(len(data)) + data

    def topic(self, name: str = "orders") -> None:
        if self.version >= 13:
            self.out += TOPIC_ID
        else:
            self.text(name)

    def partition(
        self,
        number: int,
        *,
        aborted: list[tuple[int, int]] | None = None,
        records: bytes | None = RECORDS,
        error: int = 0,
        tags: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        self.add("ihqq", number, error, 100, 90)
        if self.version >= 5:
            self.add("q", 7)
        self.length(-1 if aborted is None else len(aborted))
        for pair in aborted or []:
            self.add("qq", *pair)
            self.tags()
        if self.version >= 11:
            self.add("i", 3)
        self.length(-1 if records is None else len(records))
        self.out += records or b""
        self.tags(tags)


def started(version: int, topics: int) -> Writer:
    writer = Writer(version)
    writer.add("i", 25)
    if version >= 7:
        writer.add("hi", 71, 4711)
    writer.length(topics)
    return writer


def full(version: int) -> bytes:
    """Return a response with two topics, three partitions and all fields of the version."""
    writer = started(version, 2)
    writer.topic()
    writer.length(2)
    writer.partition(0, aborted=[(9, 1), (8, 2)])
    leader = struct.pack(">ii", 5, 6) + b"\0"
    diverging = struct.pack(">iq", 2, 55) + b"\1\x09\2ab"
    tags = {0: diverging, 1: leader, 2: b"snapshot", 77: b"?"}
    writer.partition(1, records=None, error=6, tags=tags)
    writer.tags()
    writer.topic("payments")
    writer.length(1)
    writer.partition(4, aborted=[], records=b"")
    writer.tags({5: b"unknown"})
    endpoints = Writer(version)
    endpoints.length(1)
    endpoints.add("i", 5)
    endpoints.text("host")
    endpoints.add("i", 9092)
    endpoints.text(None)
    endpoints.tags()
    writer.tags({0: endpoints.out})
    return writer.out


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_of_every_version_is_decoded(decoder: ModuleType, version: int) -> None:
    frame = full(version)
    answer: FetchAnswer = decoder.fetch_answer(frame, version)
    session = (71, 4711) if version >= 7 else (0, 0)
    assert (answer.throttle_ms, answer.error_code, answer.session_id) == (25, *session)
    partition_answer, two, three = answer.partitions
    topics = (TOPIC_ID, TOPIC_ID) if version >= 13 else ("orders", "payments")
    assert (partition_answer.topic, two.topic, three.topic) == (topics[0], topics[0], topics[1])
    assert (partition_answer.partition, two.partition, three.partition) == (0, 1, 4)
    assert (partition_answer.error_code, two.error_code) == (0, 6)
    assert (partition_answer.high_watermark, partition_answer.last_stable_offset) == (100, 90)
    assert partition_answer.log_start_offset == (7 if version >= 5 else -1)
    assert partition_answer.preferred_read_replica == (3 if version >= 11 else -1)
    assert (partition_answer.aborted, two.aborted, three.aborted) == ([(9, 1), (8, 2)], None, [])
    assert frame[partition_answer.start : partition_answer.end] == RECORDS
    assert two.start == two.end
    assert three.start == three.end
    assert (partition_answer.current_leader, partition_answer.diverging_epoch) == (None, None)
    flexible = version >= 12
    assert two.current_leader == ((5, 6) if flexible else None)
    assert two.diverging_epoch == ((2, 55) if flexible else None)
    assert answer.node_endpoints == ([(5, "host", 9092, None)] if flexible else [])


@pytest.mark.parametrize("version", [4, 5, 7, 11])
def test_responses_encoded_by_aiokafka_are_decoded(decoder: ModuleType, version: int) -> None:
    partition: tuple[object, ...] = (3, 0, 100, 90)
    if version >= 5:
        partition += (7,)
    partition += ([(9, 1)],)
    if version >= 11:
        partition += (2,)
    body = [("orders", [(*partition, RECORDS)])]
    session = (0, 12) if version >= 7 else ()
    frame = getattr(fetch, f"FetchResponse_v{version}")(25, *session, body).encode()
    answer: FetchAnswer = decoder.fetch_answer(frame, version)
    (partition_answer,) = answer.partitions
    assert (partition_answer.topic, partition_answer.partition, partition_answer.aborted) == (
        "orders",
        3,
        [(9, 1)],
    )
    assert frame[partition_answer.start : partition_answer.end] == RECORDS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_frame_is_malformed_at_its_end(decoder: ModuleType, version: int) -> None:
    frame = full(version)
    for cut in range(len(frame)):
        with pytest.raises(MalformedResponse) as caught:
            decoder.fetch_answer(frame[:cut], version)
        assert 0 <= caught.value.position <= cut
        assert (caught.value.api, caught.value.version) == ("Fetch", version)


def topics(version: int, count: bytes) -> bytes:
    return started(version, 0).out[: -1 if version >= 12 else -4] + count


HUGE, MINUS_TWO, MINUS_ONE = (struct.pack(">i", n) for n in (2**31 - 1, -2, -1))


def named(name: bytes) -> bytes:
    return topics(11, struct.pack(">ih", 1, len(name)) + name + b"\0" * 9)


def tagged(tags: Mapping[int, bytes]) -> bytes:
    writer = started(16, 1)
    writer.topic()
    writer.length(1)
    writer.partition(0, tags=tags)
    writer.tags()
    writer.tags()
    return writer.out


BAD = {
    "array of 2^31-1": (11, topics(11, HUGE), "beyond the end", 10),
    "array of -2": (11, topics(11, MINUS_TWO), "a negative length", 10),
    "null array": (11, topics(11, MINUS_ONE), "an array that is null", 10),
    "null array, compact": (12, topics(12, b"\0"), "an array that is null", 10),
    "compact array of 2^32-2": (12, topics(12, b"\xff" * 4 + b"\x0f"), "beyond the end", 10),
    "compact array of ten ff": (12, topics(12, b"\xff" * 10), "a varint longer", 10),
    "name not UTF-8": (11, named(b"\xff\xfe"), "not UTF-8", 14),
    "name null": (11, topics(11, b"\0\0\0\1\xff\xff\0\0\0\0"), "a topic without a name", 14),
    "bytes after the end": (11, full(11) + b"x", "bytes after its end", len(full(11))),
    "bytes after the end, flexible": (17, full(17) + b"x", "bytes after its end", len(full(17))),
    "leader too short": (16, tagged({1: b"\0\0\0\1"}), "a field that is cut off", None),
    "leader too long": (16, tagged({1: b"\0" * 20}), "longer than its content", None),
    "many tags": (16, tagged({})[:-1] + b"\x7f", "beyond the end", len(tagged({})) - 1),
    "HTTP": (11, b"HTTP/1.1 400 Bad Request\r\n\r\n", "beyond the end", 10),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_frame_is_a_typed_error_with_its_position(
    decoder: ModuleType, name: str
) -> None:
    version, frame, reason, position = BAD[name]
    with pytest.raises(MalformedResponse, match=reason) as caught:
        decoder.fetch_answer(frame, version)
    assert position in (caught.value.position, None)
    assert "Close the connection" in str(caught.value)


@pytest.mark.parametrize("version", [-1, 0, 3, 18])
def test_other_versions_are_refused(decoder: ModuleType, version: int) -> None:
    with pytest.raises(ValueError, match="4 to 17"):
        decoder.fetch_answer(b"", version)


def outcome(decoder: ModuleType, frame: bytes, version: int) -> object:
    try:
        return tuple(decoder.fetch_answer(frame, version))
    except MalformedResponse as error:
        return error.position, error.reason


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.integers(0, 40),
)
def test_decoders_agree_on_mutated_frames(
    version: int, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(full(version))
    for offset, byte in changes:
        data[offset % len(data)] = byte
    frame = bytes(data[: len(data) - cut])
    first, *others = (outcome(twin, frame, version) for twin in TWINS)
    assert all(other == first for other in others)


def many_partitions() -> bytes:
    count = 600_000
    writer = started(4, 1)
    writer.topic()
    writer.length(count)
    thread = Writer(4)
    thread.partition(0, records=b"")
    return writer.out + thread.out * count


def many_aborted() -> bytes:
    count = 2**20 + 1
    writer = started(4, 1)
    writer.topic()
    writer.length(1)
    writer.add("ihqqi", 0, 0, 100, 90, count)
    return writer.out + bytes(16) * count + struct.pack(">i", 0)


def many_endpoints() -> bytes:
    writer = started(16, 0)
    return writer.out + b"\x01\x00" + unsigned_varint(2**24) + bytes(2**24)


@pytest.mark.parametrize("made", [many_partitions, many_aborted, many_endpoints])
def test_too_many_bytes_outside_of_records_are_refused(
    decoder: ModuleType, made: Callable[[], bytes]
) -> None:
    """A few bytes become an object, so a frame could take ten times its size."""
    with pytest.raises(
        MalformedResponse, match="too many bytes outside of its record sets"
    ) as caught:
        decoder.fetch_answer(made(), 16 if made is many_endpoints else 4)
    assert caught.value.position <= (2**24 + 100 if made is many_endpoints else 2**23)


def test_records_of_any_size_are_accepted(decoder: ModuleType) -> None:
    for version in (4, 17):
        writer = started(version, 1)
        writer.topic()
        writer.length(2)
        for number in (0, 1):
            writer.partition(number, records=bytes(10**7))
        writer.tags()
        writer.tags()
        assert len(decoder.fetch_answer(writer.out, version).partitions) == 2


def test_the_limit_of_aborted_transactions_depends_on_the_records(decoder: ModuleType) -> None:
    count = 300_000  # 4.6 MiB, more than the limit of a small response
    for size, taken in ((2**24, True), (100, False)):
        writer = started(4, 1)
        writer.topic()
        writer.length(1)
        writer.add("ihqqi", 0, 0, 100, 90, count)
        frame = writer.out + bytes(16) * count + struct.pack(">i", size) + bytes(size)
        if taken:
            (part,) = decoder.fetch_answer(frame, 4).partitions
            assert len(part.aborted) == count
        else:
            with pytest.raises(
                MalformedResponse, match="too many bytes outside of its record sets"
            ):
                decoder.fetch_answer(frame, 4)

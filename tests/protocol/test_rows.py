"""Packed arrays: the same bytes and values as the arrays of aiokafka."""

import struct
from io import BytesIO
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.types import Int8, Int16, Int32, Int64, Schema, String

from asyncconsumer.errors import MalformedResponse
from asyncconsumer.protocol.messages import LIST_OFFSETS
from asyncconsumer.protocol.offset_commit import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Commit,
    OffsetCommitRequest,
    committed_rows,
    fetched_rows,
)
from asyncconsumer.protocol.rows import PackedNumbers, PackedRows, TextRows, plain_array
from asyncconsumer.protocol.schema import Api

pytestmark = pytest.mark.fast
TEXTS = ["", None, "x", "é" * 40, "y" * 126, "y" * 127, "z" * 300, "z" * 20_000]
TYPES: dict[type, Api] = {PackedRows: LIST_OFFSETS, TextRows: OFFSET_FETCH}
BROKEN = (ValueError, struct.error)


def rows_of(api: Api, version: int) -> Any:
    """Return the type of the partitions in a response."""
    structs = {struct.API_VERSION: struct for struct in api.structs()}
    schema = structs[version].RESPONSE_TYPE.SCHEMA
    topic = schema.fields[schema.names.index("topics")].array_of
    return topic.fields[topic.names.index("partitions")]


EVERY_VERSION = [
    pytest.param(kind, api, version, id=f"{api.name}-{version}")
    for kind, api in TYPES.items()
    for version in api.versions
]


def some_rows(names: list[str], randomness: Random, number: int) -> list[tuple[Any, ...]]:
    def value(name: str) -> Any:
        if name == "tags":
            return {3: b"abc", 5: b""} if randomness.random() < 0.1 else {}
        if name == "metadata":
            return randomness.choice(TEXTS) if randomness.random() < 0.3 else ""
        return randomness.randrange(-100, 100)

    return [tuple(map(value, names)) for _ in range(number)]


@pytest.mark.parametrize(("kind", "api", "version"), EVERY_VERSION)
@pytest.mark.parametrize("number", [0, 1, 2, 130])
def test_rows_are_decoded_as_by_aiokafka(kind: type, api: Api, version: int, number: int) -> None:
    packed = rows_of(api, version)
    assert type(packed).__name__ == kind.__name__
    flexible = version >= api.flexible_since
    plain = plain_array(packed.array_of, flexible=flexible)
    for seed in range(10):
        reported = some_rows(packed.array_of.names, Random(seed), number)
        data = BytesIO(plain.encode(reported) + b"more")
        assert packed.decode(data) == reported
        assert data.read() == b"more"


@pytest.mark.parametrize(("kind", "api", "version"), EVERY_VERSION)
def test_rows_are_encoded_as_by_aiokafka(kind: type, api: Api, version: int) -> None:
    packed = rows_of(api, version)
    names = packed.array_of.names
    plain = plain_array(packed.array_of, flexible=version >= api.flexible_since)
    for text in TEXTS:
        values: dict[str, Any] = dict.fromkeys(names, 7) | {"metadata": text, "tags": {}}
        row = SimpleNamespace(**values)
        assert packed.encode([row] * 3) == plain.encode([[values[name] for name in names]] * 3)


@pytest.mark.parametrize(("kind", "api", "version"), EVERY_VERSION)
def test_truncated_or_too_many_rows_are_refused(kind: type, api: Api, version: int) -> None:
    packed = rows_of(api, version)
    flexible = version >= api.flexible_since
    plain = plain_array(packed.array_of, flexible=flexible)
    encoded = plain.encode(some_rows(packed.array_of.names, Random(1), 12))
    ends = {*range(min(200, len(encoded))), *range(0, len(encoded), len(encoded) // 200 or 1)}
    for end in ends:
        with pytest.raises(BROKEN):
            packed.decode(BytesIO(encoded[:end]))
    null = b"\0" if flexible else struct.pack(">i", -1)
    assert packed.decode(BytesIO(null)) is None
    enormous = [b"\xff\xff\xff\xff\x0f"] if flexible else [struct.pack(">i", 2**31 - 1)]
    if not flexible:
        enormous.append(struct.pack(">i", -2))
    for count in enormous:
        with pytest.raises(ValueError, match="an array of"):
            packed.decode(BytesIO(count + bytes(1000)))


@pytest.mark.parametrize("version", OFFSET_FETCH.versions)
def test_a_truncated_text_or_invalid_utf_8_is_refused(version: int) -> None:
    packed = rows_of(OFFSET_FETCH, version)
    values: dict[str, Any] = dict.fromkeys(packed.array_of.names, 1) | {"metadata": "abc"}
    encoded = packed.encode([SimpleNamespace(**values)])
    offset = encoded.index(b"abc")
    longer = bytearray(encoded)
    longer[offset - 1] = 0x7F
    with pytest.raises(BROKEN):
        packed.decode(BytesIO(bytes(longer)))
    with pytest.raises(UnicodeDecodeError):
        packed.decode(BytesIO(encoded.replace(b"abc", b"\xff\xff\xff")))


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("of", [Int8, Int16, Int32, Int64])
def test_numbers_are_encoded_and_decoded_as_by_aiokafka(of: Any, *, flexible: bool) -> None:
    packed, plain = PackedNumbers(of, flexible=flexible), plain_array(of, flexible=flexible)
    for numbers in (None, [], [1], [-1, 5, 127] * 100):
        encoded = packed.encode(numbers)
        assert encoded == plain.encode(numbers)
        data = BytesIO(encoded + b"more")
        assert packed.decode(data) == numbers
        assert data.read() == b"more"
    encoded = packed.encode([1, 2, 3])
    for end in range(len(encoded)):
        with pytest.raises(BROKEN):
            packed.decode(BytesIO(encoded[:end]))


def test_text_rows_need_numbers_around_exactly_one_text() -> None:
    number, text = ("n", Int32), ("t", String("utf-8"))
    assert TextRows.fits(Schema(number, text, ("m", Int16)))
    assert not TextRows.fits(Schema(number, ("m", Int16)))
    assert not TextRows.fits(Schema(number, text))
    assert not TextRows.fits(Schema(number, ("m", Int16), text, ("u", String("utf-8"))))


# --- offsets --------------------------------------------------------------------------------------


def answer(api: Api, version: int, rows: list[dict[str, Any]] | None) -> Any:
    """Return a decoded response with two topics."""
    structs = {struct.API_VERSION: struct for struct in api.structs()}
    response = structs[version].RESPONSE_TYPE
    names = rows_of(api, version).array_of.names
    reported = None if rows is None else [tuple(row[name] for name in names) for row in rows]
    tags: tuple[Any, ...] = ({},) if version >= api.flexible_since else ()
    values: dict[str, Any] = {
        "throttle_time_ms": 0,
        "topics": [("t", reported, *tags), ("u", reported, *tags)],
        "error_code": 0,
        "tags": {},
    }
    return response(*(values[name] for name in response.SCHEMA.names))


ROW = {
    "partition": 3,
    "offset": 70,
    "leader_epoch": 4,
    "metadata": "m",
    "error_code": 5,
    "tags": {},
}


@pytest.mark.parametrize("version", OFFSET_FETCH.versions)
def test_fetched_offsets_are_equal_in_every_version(version: int) -> None:
    epoch = 4 if version >= 5 else -1
    rows = [ROW, ROW | {"metadata": None}]
    reported = list(fetched_rows(answer(OFFSET_FETCH, version, rows)))
    each = [(3, 70, epoch, "m", 5), (3, 70, epoch, "", 5)]
    assert reported == [(topic, *row) for topic in "tu" for row in each]
    with pytest.raises(MalformedResponse, match="null"):
        list(fetched_rows(answer(OFFSET_FETCH, version, None)))


@pytest.mark.parametrize("version", OFFSET_COMMIT.versions)
def test_codes_of_a_commit_are_equal_in_every_version(version: int) -> None:
    assert list(committed_rows(answer(OFFSET_COMMIT, version, [ROW]))) == [("t", 3, 5), ("u", 3, 5)]
    with pytest.raises(MalformedResponse, match="null"):
        list(committed_rows(answer(OFFSET_COMMIT, version, None)))


@pytest.mark.parametrize("version", OFFSET_COMMIT.versions)
@pytest.mark.parametrize("text", ["", "beside", "é" * 200])
def test_a_commit_is_encoded_as_by_aiokafka(version: int, text: str) -> None:
    request = OffsetCommitRequest("g", {"t": [Commit(1, 2**40, 3, text), Commit(2, 5)]})
    made = request.prepare({8: (version, version)})
    topics = made.SCHEMA.fields[made.SCHEMA.names.index("topics")]
    rows = topics.array_of.fields[topics.array_of.names.index("partitions")]
    assert isinstance(rows, TextRows)
    plain = plain_array(rows.array_of, flexible=version >= OFFSET_COMMIT.flexible_since)
    values = [
        [{} if name == "tags" else getattr(row, name) for name in rows.array_of.names]
        for row in made.topics[0]["partitions"]
    ]
    assert bytes(plain.encode(values)) in made.encode()

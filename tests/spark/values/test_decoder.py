"""Values as columns, without a Spark: valid and invalid JSON and Avro."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from asyncconsumer.errors import BadValue, ConfigError
from asyncconsumer.records import decoding
from asyncconsumer.spark.values.avro import AvroDecoder
from asyncconsumer.spark.values.decoder import TypedColumns, Undecodable
from asyncconsumer.spark.values.factory import check_typed
from asyncconsumer.spark.values.json import JsonDecoder
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

KIND = pa.struct([("id", pa.int64()), ("name", pa.string())])
SCHEMA = pa.schema([("offset", pa.int64()), ("value", KIND), ("_corrupt_record", pa.string())])
GOOD = [b'{"id": 1, "name": "one"}', None, b'{"name": "two", "more": [1]}', b"null"]


def column(*values: bytes) -> Any:
    return pa.array(values, pa.binary())


def typed(values: list[bytes | None], mode: str = "PERMISSIVE") -> list[dict[str, Any]]:
    data = batch([Row(number, value) for number, value in enumerate(values)])
    records = decoding.Records(data, topic="t", partition=3)
    columns = TypedColumns(SCHEMA, JsonDecoder(KIND), "json", mode)
    results: list[dict[str, Any]] = []
    while (rows := columns.next_batch(records)) is not None:
        assert rows.schema.equals(SCHEMA)
        results += rows.to_pylist()
    return results


def test_good_values_become_columns() -> None:
    for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        rows = typed(GOOD, mode)
        assert [row["value"] for row in rows] == [
            {"id": 1, "name": "one"},
            None,  # a record without a value
            {"id": None, "name": "two"},
            None,
        ]
        assert [row["offset"] for row in rows] == [0, 1, 2, 3]
        assert all(row["_corrupt_record"] is None for row in rows)


BAD = [
    b"",
    b"{",
    b'{"id": "x"}',
    b"3",
    b"{} {}",
    b'{"id": 1}}\n{"v":{}',
    b'{"name": "\xff"}',
    b'{"id": 1}, "junk": 3',
    b'null, "junk": 3',
    b'{"id": 1}, {"id": 2}',
    b'{"id": 1}], "junk": [3',
    b'{"id": 1}], "v": {"id": 2}}\n{"w": [{"id": 3}',
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_is_kept_dropped_or_raised_by_mode(bad: bytes) -> None:
    values = [*GOOD, bad, None, GOOD[0]]
    rows = typed(values)
    assert [row["offset"] for row in rows] == list(range(7))
    assert rows[4]["value"] is None
    assert rows[4]["_corrupt_record"] == bad.decode(errors="replace")
    assert [row["_corrupt_record"] for row in rows].count(None) == 6
    assert rows[6]["value"] == {"id": 1, "name": "one"}
    retained = typed(values, "DROPMALFORMED")
    assert [row["offset"] for row in retained] == [0, 1, 2, 3, 5, 6]
    assert retained[5]["value"] == {"id": 1, "name": "one"}
    with pytest.raises(BadValue, match=r"the value of t\[3\]@4 is not the json"):
        typed(values, "FAILFAST")


def test_bad_values_between_good_ones_are_found() -> None:
    values = [b"bad %d" % n if n % 7 == 0 else b'{"id": %d}' % n for n in range(500)]
    rows = typed(list(values))
    for number, row in enumerate(rows):
        if number % 7 == 0:
            assert (row["value"], row["_corrupt_record"]) == (None, f"bad {number}")
        else:
            assert row["value"]["id"] == number
    assert typed([b"x", b"y"], "DROPMALFORMED") == []


def test_values_that_only_arrow_refuses_are_found() -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
    schema = pa.schema([("value", kind), ("_corrupt_record", pa.string())])
    columns = TypedColumns(schema, JsonDecoder(kind), "json", "PERMISSIVE")
    values = [b'{"name": %d}' % number for number in range(1200)]
    for place in (3, 600, 700, 1199):
        values[place - 1] = b"{"
        values[place] = (
            b'{"at": "20240101", "name": %d}' % place
        )  # valid in ISO 8601, and not in Arrow
    data = batch([Row(number, value) for number, value in enumerate(values)])
    rows = columns.next_batch(decoding.Records(data, topic="t", partition=3))
    assert rows is not None
    for number, (row, value) in enumerate(zip(rows.to_pylist(), values, strict=True)):
        if value == b"{" or b"at" in value:
            assert row == {"value": None, "_corrupt_record": value.decode()}
        else:
            assert row == {"value": {"at": None, "name": str(number)}, "_corrupt_record": None}


EVERY = pa.struct(
    [
        *KIND,
        ("at", pa.timestamp("us", "UTC")),
        ("few", pa.int8()),
        ("float", pa.float64()),
        ("is", pa.bool_()),
        ("sum", pa.decimal128(5, 2)),
        ("list", pa.list_(pa.struct([("x", pa.float32()), ("sum", pa.decimal128(5, 2))]))),
    ]
)
WRONG = [
    *(data for data in BAD if data != b"{} {}"),
    b'{"id": 1.5}',
    b'{"id": true}',
    b'{"id": 99999999999999999999}',
    b'{"few": 128}',
    b'{"name": 1, "id": 1.5}',
    b'{"sum": 1000}',
    b'{"list": [{}, {"sum": 1000}]}',
    b'{"sum": 999.995}',
    b'{"sum": true}',
    b'{"at": "yesterday"}',
    b'{"at": 5}',
    b'{"is": 1}',
    b'{"list": {}}',
    b'{"list": [{"x": "y"}]}',
    b'{"float": .5}',
    b'{"float": "1"}',
    b"[]",
]


def counting(monkeypatch: pytest.MonkeyPatch) -> tuple[JsonDecoder, list[int]]:
    """Return a decoder and a list of the number of values of each call."""
    decoder, calls = JsonDecoder(EVERY), list[int]()
    decode = decoder.decode

    def counted(values: Any) -> Any:
        calls.append(len(values))
        return decode(values)

    monkeypatch.setattr(decoder, "decode", counted)
    return decoder, calls


@pytest.mark.parametrize("bad", WRONG)
def test_many_bad_values_are_found_with_few_decoder_calls(
    bad: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, calls = counting(monkeypatch)
    columns = TypedColumns(pa.schema([("value", EVERY)]), decoder, "json", "DROPMALFORMED")
    values = [bad if number % 3 else b'{"id": %d}' % number for number in range(1500)]
    data = batch([Row(number, value) for number, value in enumerate(values)])
    rows = columns.next_batch(decoding.Records(data, topic="t", partition=3))
    assert rows is not None
    assert [row["value"]["id"] for row in rows.to_pylist()] == list(range(0, 1500, 3))
    assert len(calls) < 20  # a call costs as much as some hundred values


def test_values_of_other_types_are_coerced_with_few_decoder_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, calls = counting(monkeypatch)
    columns = TypedColumns(pa.schema([("value", EVERY)]), decoder, "json", "FAILFAST")
    values = [b'{"id": %d, "name": %d, "sum": 1.235}' % (n, n) for n in range(1500)]
    data = batch([Row(number, value) for number, value in enumerate(values)])
    rows = columns.next_batch(decoding.Records(data, topic="t", partition=3))
    assert rows is not None
    results = [(row["value"]["id"], row["value"]["name"]) for row in rows.to_pylist()]
    assert results == [(number, str(number)) for number in range(1500)]
    assert set(rows.column("value").field("sum").to_pylist()) == {Decimal("1.24")}
    assert len(calls) < 10


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"name": 5, "id": "x"}', r"value\.id is not int64"),
        (b'{"name": 5, "id": 1', r"the value is not JSON: Expecting ',' delimiter"),
        (b'{"name": "\xff"}', "the value is not UTF-8"),
        (b"[]", "value is not an object"),
    ],
)
def test_the_error_has_the_reason_that_prevents_coercion(bad: bytes, reason: str) -> None:
    with pytest.raises(BadValue, match=rf"t\[3\]@1 .*{reason}"):
        typed([b'{"name": 5}', bad, b"{"], "FAILFAST")


@pytest.mark.parametrize(
    "good",
    [
        b"null",
        b' {"id": -9223372036854775808}\n',
        b'{"few": -128, "few more": 1e5}',
        b'{"float": NaN, "list": [{"x": -Infinity}, null, {"x": 1}]}',
        b'{"sum": 1.23}',
        b'{"sum": "1.23", "is": false}',
        b'{"at": "2024-01-01"}',
        b'{"at": "2024-01-01 05:06:07.123456"}',
        b'{"at": "2024-01-01T05:06+01:00"}',
        b'{"at": "2024-01-01T05:06:07.1234567Z"}',
        b'{"more": %s}' % (b"9" * 5000),
        b'{"more": %s%s}' % (b"[" * 3000, b"]" * 3000),
        b'{"more": 1, "more": {}, "name": "\\u0000"}',
    ],
)
def test_valid_values_are_never_counted_as_bad(good: bytes) -> None:
    decoder = JsonDecoder(EVERY)
    assert len(decoder.decode(column(good))) == 1
    coerced, bad = decoder.coerce(column(good))
    assert not bad
    assert str(decoder.decode(coerced).to_pylist()) == str(decoder.decode(column(good)).to_pylist())


def test_a_time_without_a_zone_is_utc_or_has_none() -> None:
    value = column(b'{"at": "2024-01-01T05:06:07"}')
    for zone in (UTC, None):
        kind = pa.struct([("at", pa.timestamp("us", zone and "UTC"))])
        (result,) = JsonDecoder(kind).decode(value).to_pylist()
        assert result == {"at": datetime(2024, 1, 1, 5, 6, 7, tzinfo=zone)}


def test_times_are_truncated_to_microseconds_as_by_spark() -> None:
    moment = pa.timestamp("us", "UTC")
    decoder = JsonDecoder(pa.struct([("at", moment), ("all", pa.list_(moment))]))
    texts = b'"2024-01-01T05:06:07.123456789Z", "2024-01-01T05:06:07.1Z", "1969-01-01T00:00:00Z"'
    result = decoder.decode(column(b'{"at": %s, "all": [%s]}' % (texts[:32], texts)))
    cut = datetime(2024, 1, 1, 5, 6, 7, 123456, UTC)
    others = [cut.replace(microsecond=100_000), datetime(1969, 1, 1, tzinfo=UTC)]
    assert result.type == pa.struct([("at", moment), ("all", pa.list_(moment))])
    assert result.to_pylist() == [{"at": cut, "all": [cut, *others]}]


def test_a_value_with_json_syntax_around_is_not_two_values() -> None:
    decoder = JsonDecoder(KIND)
    with pytest.raises(Undecodable):
        decoder.decode(column(b'{"id": 1}}{"v":{"id": 2}', b'{"id": 3}'))
    with pytest.raises(Undecodable):
        decoder.decode(column(b'{"id": 1}, "junk": 3', b'{"id": 3}'))
    with pytest.raises(Undecodable):
        decoder.decode(column(b'{"name": "', b'"}'))


def test_types_that_json_cannot_have_are_reported_in_advance() -> None:
    for kind in (
        pa.date32(),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.date32()),
        pa.binary(),  # base64 in Spark's reader
    ):
        with pytest.raises(ConfigError, match=r"JSON field value\.when"):
            JsonDecoder(pa.struct([("when", kind)]))
    with pytest.raises(ConfigError, match="needs a schema with a struct for the value"):
        check_typed([("value", "binary")], "json")
    with pytest.raises(ConfigError, match="column _corrupt_record is string"):
        check_typed([("value", "struct<a:int>"), ("_corrupt_record", "int")], "json")


AVRO = """{"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"}, {"name": "more", "type": "double", "default": 0},
    {"name": "name", "type": ["null", "string"]}]}"""


def encoded(**fields: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(AVRO)), fields)
    return data.getvalue()


def test_avro_values_become_columns() -> None:
    data, two = encoded(id=1, name="one"), encoded(id=2, name=None)
    decoder = AvroDecoder(KIND, AVRO)
    expected = [{"id": 1, "name": "one"}, {"id": 2, "name": None}]
    assert decoder.decode(column(data, two)).to_pylist() == expected
    for bad in (b"", data[:-1], data + b"x", b"\xff" * 12):
        with pytest.raises(Undecodable):
            decoder.decode(column(data, bad))


UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize("kind", [UUID, ["null", UUID], {"type": "array", "items": UUID}])
def test_an_avro_uuid_becomes_a_string_as_in_spark(kind: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": kind}]}
    many = isinstance(kind, dict) and kind["type"] == "array"
    name = "c0ffee00-0000-4000-8000-000000000000"
    value: Any = [name] if many else name
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"id": value})
    requested = pa.struct([("id", pa.list_(pa.string()) if many else pa.string())])
    result = AvroDecoder(requested, json.dumps(schema)).decode(column(data.getvalue()))
    assert result.to_pylist() == [{"id": value}]


AT = {"type": "long", "logicalType": "timestamp-millis"}
INNER = {"type": "record", "name": "q", "fields": [{"name": "x", "type": "long"}]}
LIST = {"type": "array", "items": INNER}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}


@pytest.mark.parametrize(
    ("avro", "fits", "not_this"),
    [
        ("long", (pa.int64(), pa.int32(), pa.float64()), (pa.string(), pa.bool_())),
        ("double", (pa.float64(), pa.float32()), (pa.string(), pa.decimal128(5, 2))),
        ("string", (pa.string(), pa.binary()), (pa.int64(), pa.timestamp("us", "UTC"))),
        (["null", "string"], (pa.string(),), (pa.int64(),)),
        (["null", "string", "long"], (pa.string(), pa.int64()), ()),  # possible for some values
        ("bytes", (pa.binary(),), (pa.int64(),)),
        (AT, (pa.timestamp("us", "UTC"),), (pa.int64(), pa.string())),
        (MONEY, (pa.decimal128(5, 2), pa.decimal128(9, 3)), (pa.string(),)),
        (INNER, (pa.struct([("x", pa.int64())]),), (pa.struct([("x", pa.string())]), pa.int64())),
        (LIST, (pa.list_(pa.struct([("x", pa.int64())])),), (pa.list_(pa.int64()),)),
        ({"type": "map", "values": "long"}, (pa.map_(pa.string(), pa.int64()),), (pa.string(),)),
        (["null", "r"], (pa.struct([("f", pa.struct([]))]),), ()),  # a recursive type
    ],
)
def test_types_that_avro_cannot_have_are_reported_in_advance(
    avro: Any, fits: tuple[Any, ...], not_this: tuple[Any, ...]
) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": avro}]}
    for kind in fits:
        AvroDecoder(pa.struct([("f", kind)]), json.dumps(schema))
    for kind in not_this:
        with pytest.raises(
            ConfigError, match=r"value\.f has the type .*, which does not fit `valueSchema`: "
        ):
            AvroDecoder(pa.struct([("f", kind)]), json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "needs `valueSchema`"),
        ("{", "is no Avro schema"),
        ('{"type": "nothing"}', "is no Avro schema"),
        ('"long"', "must be a record"),
        ('{"type": "record", "name": "r", "fields": []}', "does not have: id, name"),
    ],
)
def test_an_invalid_avro_schema_is_refused(schema: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AvroDecoder(KIND, schema)

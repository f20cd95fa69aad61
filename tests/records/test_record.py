import copy
import pickle
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.errors import ConfigError
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

FIELDS: dict[str, Any] = {
    "topic": "orders",
    "partition": 3,
    "offset": 2**40,
    "timestamp": 1_700_000_000_123,
    "timestamp_type": 1,
    "key": b"k",
    "value": b"v",
    "headers": (("trace", b"1"), ("empty", None)),
}


def fields_of(record: object) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS}


def test_all_fields_have_the_given_values(decoder: ModuleType) -> None:
    assert fields_of(decoder.Record(**FIELDS)) == FIELDS


def test_omitted_fields_have_defaults(decoder: ModuleType) -> None:
    record = decoder.Record("t", 0, 7)
    assert (record.timestamp, record.timestamp_type) == (-1, 0)
    assert (record.key, record.value, record.headers) == (None, None, ())


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_can_be_set_or_deleted(decoder: ModuleType, name: str) -> None:
    record = decoder.Record(**FIELDS)
    with pytest.raises(AttributeError):
        setattr(record, name, FIELDS[name])
    with pytest.raises((AttributeError, TypeError)):
        delattr(record, name)
    with pytest.raises(AttributeError):
        record.colour = "red"
    assert fields_of(record) == FIELDS


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("topic", "t"),
        ("partition", 4),
        ("offset", 1),
        ("timestamp", 1),
        ("timestamp_type", 0),
        ("key", None),
        ("value", b""),
        ("headers", ()),
    ],
)
def test_records_are_equal_only_when_every_field_is(
    decoder: ModuleType, name: str, other: object
) -> None:
    record = decoder.Record(**FIELDS)
    assert record == decoder.Record(**FIELDS)
    assert hash(record) == hash(decoder.Record(**FIELDS))
    assert record != decoder.Record(**{**FIELDS, name: other})
    assert record != "orders"


def test_a_record_matches_by_position(decoder: ModuleType) -> None:
    match decoder.Record(**FIELDS):
        case decoder.Record(topic, partition, offset):
            assert (topic, partition, offset) == ("orders", 3, 2**40)
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("key", "text"),
        ("value", bytearray(b"x")),
        ("headers", (("a",),)),
        ("headers", ((b"a", b""),)),
        ("headers", (("a", "text"),)),
        ("topic", b"orders"),
        ("offset", "1"),
    ],
)
def test_a_field_of_another_type_is_refused(decoder: ModuleType, field: str, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        decoder.Record(**{**FIELDS, field: wrong})


def test_an_unknown_timestamp_type_is_refused(decoder: ModuleType) -> None:
    with pytest.raises(ValueError, match="timestamp_type"):
        decoder.Record(**{**FIELDS, "timestamp_type": 2})


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_record_is_restored_completely(decoder: ModuleType, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(decoder.Record(**FIELDS), protocol))  # noqa: TID251 - the package's own
    assert fields_of(again) == FIELDS
    assert fields_of(copy.deepcopy(decoder.Record(**FIELDS))) == FIELDS


def test_the_repr_names_all_fields_and_is_limited(decoder: ModuleType) -> None:
    assert repr(decoder.Record(**FIELDS)) == (
        "Record(topic='orders', partition=3, offset=1099511627776, timestamp=1700000000123, "
        "timestamp_type=1, key=b'k', value=b'v', headers=(('trace', b'1'), ('empty', None)))"
    )
    long = repr(
        decoder.Record("t", 0, 0, value=b"x" * 10_000, headers=[("h" * 99, b"y" * 99)] * 20)
    )
    assert "(10000 bytes)" in long
    assert "12 more" in long
    assert len(long) < 2_000


def test_a_record_has_the_attributes_of_a_message_and_refuses_commit(
    decoder: ModuleType,
) -> None:
    record = decoder.Record("t", 1, 5)
    assert record.record is record
    with pytest.raises(ConfigError, match=r"t\[1\]@5 .* `commit_policy='manual'`"):
        record.commit()
    with pytest.raises(AttributeError):
        record.record = record


LARGE_AND_SMALL = (
    -1,
    0,
    256,
    257,
    2**30 - 1,
    2**30,
    2**45,
    2**60 - 1,
    2**60,
    2**62,
    255,
    2**31,
    300,
)


def of_one_length(decoder: ModuleType) -> Any:
    """Return records that could reuse the parts of each other."""
    many = [Row(i + 500, b"value%03d" % i, b"k%d" % (i % 10), 2**41 + i) for i in range(100)]
    return decoder.Records(batch(many), topic="t", partition=0)


def test_fields_of_a_record_are_kept_after_the_next_record(decoder: ModuleType) -> None:
    retained = [
        (record.offset, record.timestamp, record.key, record.value)
        for record in of_one_length(decoder)
    ]
    expected = [(i + 500, 2**41 + i, b"k%d" % (i % 10), b"value%03d" % i) for i in range(100)]
    assert retained == expected


def test_each_value_has_its_own_hash(decoder: ModuleType) -> None:
    for record in of_one_length(decoder):
        assert hash(record.value) == hash(bytes(bytearray(record.value)))
        assert {record.value: 1}.get(bytes(bytearray(record.value))) == 1


def test_numbers_of_any_size_may_alternate(decoder: ModuleType) -> None:
    for before in LARGE_AND_SMALL:
        for number in LARGE_AND_SMALL:
            decoder.Record("t", 0, before, before)
            record = decoder.Record("t", 0, number, number)
            assert (record.offset, record.timestamp) == (number, number)
            assert str(record.offset) == str(number)


def test_values_of_the_user_are_not_overwritten(decoder: ModuleType) -> None:
    value = bytes(bytearray(b"valueXYZ"))
    decoder.Record("t", 0, 1, value=value)
    for _ in of_one_length(decoder):
        pass
    assert value == b"valueXYZ"

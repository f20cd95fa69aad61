"""Timestamps of records that Spark's timestamps cannot express."""

from types import ModuleType

import pyarrow as pa
import pytest

from asyncconsumer.errors import MalformedTimestamp
from asyncconsumer.records import decoding
from asyncconsumer.spark.values.columns import Columns
from tests.support.record_encoder import Row, batch

MOST_MS = (2**63 - 1) // 1000
TIMESTAMP = pa.field("timestamp", pa.timestamp("us", "UTC"))
OFFSET = pa.field("offset", pa.int64())


@pytest.fixture(params=decoding.available())
def decoder(request: pytest.FixtureRequest) -> ModuleType:
    _, module = decoding.load(request.param)
    return module


def read(decoder: ModuleType, rows: list[Row], *fields: "pa.Field") -> list[dict[str, object]]:
    records = decoder.Records(batch(rows), topic="t", partition=3)
    columns, values = Columns(pa.schema(fields)), []
    while (part := columns.next_batch(records)) is not None:
        values += part.cast(
            pa.schema([(name, pa.int64()) for name in part.schema.names])
        ).to_pylist()
    return values


@pytest.mark.parametrize("wrong", [MOST_MS + 1, -MOST_MS - 1, 1_700_000_000_000 * 10**6, 2**62])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_timestamp_beyond_microseconds_is_an_error(
    decoder: ModuleType, wrong: int, place: int
) -> None:
    times = [1_700_000_000_000] * 3
    times[place] = wrong
    rows = [Row(40 + i, timestamp=time) for i, time in enumerate(times)]
    with pytest.raises(MalformedTimestamp, match=rf"timestamp of t\[3\] offset {40 + place} does"):
        read(decoder, rows, OFFSET, TIMESTAMP)
    with pytest.raises(MalformedTimestamp, match=r"timestamp of a record of t\[3\] does"):
        read(decoder, rows, TIMESTAMP)
    assert read(decoder, rows, OFFSET) == [{"offset": 40 + i} for i in range(3)]


def test_the_largest_and_smallest_timestamps_are_read(decoder: ModuleType) -> None:
    times = [MOST_MS, -MOST_MS, -1, 0]
    rows = [Row(i, timestamp=time) for i, time in enumerate(times)]
    assert read(decoder, rows, TIMESTAMP) == [{"timestamp": time * 1000} for time in times]


def test_the_bytes_of_two_timestamps_are_not_read_as_an_invalid_one(decoder: ModuleType) -> None:
    # seven bytes of the first and one of the second equal those of -(2**63)
    rows = [Row(0, timestamp=0), Row(1, timestamp=16)]
    assert read(decoder, rows, TIMESTAMP) == [{"timestamp": 0}, {"timestamp": 16_000}]

import gc
import sys
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings

from asyncconsumer.errors import ConfigError, CorruptRecords
from asyncconsumer.records import arrow
from asyncconsumer.records.arrow import COLUMNS, schema_of, to_arrow
from asyncconsumer.records.decoding import IMPLEMENTATIONS
from tests.records.test_buffers import is_held
from tests.records.test_decoder_agreement import ROWS, TWINS
from tests.records.test_record_set import read
from tests.support.record_encoder import Row, batch, compress, message, rows, wrapper

pytestmark = pytest.mark.fast

MIXED = [
    Row(5, b"short", b"k" * 30, 1000, (("a", b"1"), ("ü", None))),
    Row(6, None, None, 2000),
    Row(8, b"a value that is longer than twelve bytes", b"", 3000, (("b", b""),)),
    Row(9, b"", b"exactly 12 b", 4000),
]


def as_rows(table: pa.RecordBatch) -> list[Row]:
    return [
        Row(
            row["offset"],
            row["value"],
            row["key"],
            row["timestamp"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
        )
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("codec", range(5))
def test_every_field_of_every_record_is_in_its_column(
    decoder: ModuleType, codec: int, copy: bool
) -> None:
    records = read(decoder, batch(MIXED, codec=codec) + batch(rows(3, 10), codec=codec))
    table = to_arrow(records, copy=copy)
    assert table is not None
    table.validate(full=True)
    assert table.schema == schema_of(copy=copy)
    assert as_rows(table) == MIXED + rows(3, 10)
    assert table["topic"].to_pylist() == ["t"] * 7
    assert table["partition"].to_pylist() == [1] * 7
    assert records.next_offset == 13
    assert to_arrow(records, copy=copy) is None


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_columns_have_the_written_values(written: list[Row]) -> None:
    for twin in TWINS:
        for copy in (True, False):
            table = to_arrow(twin.Records(batch(written), topic="t", partition=0), copy=copy)
            assert table is not None
            table.validate(full=True)
            assert as_rows(table) == written


def test_columns_have_the_types_of_spark(decoder: ModuleType) -> None:
    table = to_arrow(read(decoder, batch(MIXED)), timestamps="us")
    assert table is not None
    assert [str(field.type) for field in table.schema] == [
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
        "binary",
        "binary",
        "list<item: struct<key: string, value: binary>>",
    ]
    assert [t.value for t in table["timestamp"]] == [1_000_000, 2_000_000, 3_000_000, 4_000_000]


def test_timestamps_in_milliseconds_and_out_of_range_in_microseconds(decoder: ModuleType) -> None:
    data = batch([Row(0, timestamp=5), Row(1, timestamp=2**62), Row(2, timestamp=-(2**62))])
    milli = to_arrow(read(decoder, data), timestamps="ms")
    assert milli is not None
    assert str(milli.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    micro = to_arrow(read(decoder, data), timestamps="us")
    assert micro is not None
    assert [t.value for t in micro["timestamp"]] == [5000, 2**63 - 1, -(2**63)]


def test_old_messages_have_columns(decoder: ModuleType) -> None:
    data = message(0, magic=0) + message(1, attributes=8, timestamp=7)
    data += wrapper(message(0) + message(1), 3, codec=2)
    for copy in (True, False):
        table = to_arrow(read(decoder, data), copy=copy)
        assert table is not None
        table.validate(full=True)
        assert table["offset"].to_pylist() == [0, 1, 2, 3]
        assert table["timestamp_type"].to_pylist() == [-1, 1, 0, 0]
        assert table["value"].to_pylist() == [b"value"] * 4


def test_only_requested_columns_are_returned_in_the_requested_order(decoder: ModuleType) -> None:
    table = to_arrow(read(decoder, batch(MIXED)), columns=("value", "offset"))
    assert table is not None
    assert table.to_pydict() == {
        "value": [row.value for row in MIXED],
        "offset": [row.offset for row in MIXED],
    }


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("codec", [0, 4])
def test_tables_have_at_most_max_rows(decoder: ModuleType, codec: int, copy: bool) -> None:
    records = read(decoder, batch(rows(10), codec=codec) + batch(rows(10, 10), codec=codec))
    seen, places, tables = [], [], []
    while (table := to_arrow(records, max_rows=3, copy=copy)) is not None:
        tables.append(table)
        places.append(records.next_offset)
    for table in tables:  # only at the end, because their buffers must not have changed
        table.validate(full=True)
        seen.extend(as_rows(table))
    assert seen == rows(10) + rows(10, 10)
    assert places == [3, 6, 9, 12, 15, 18, 20]


def test_columns_and_records_may_be_read_alternately(decoder: ModuleType) -> None:
    for codec in (0, 4):
        records = read(decoder, batch(rows(6), codec=codec) + batch(rows(3, 6), codec=codec))
        assert next(records).offset == 0
        table = to_arrow(records, max_rows=2, copy=False)
        assert next(records).offset == 3
        rest = to_arrow(records, copy=False)
        assert table is not None
        assert rest is not None
        assert as_rows(table) + as_rows(rest) == rows(6)[1:3] + rows(6)[4:] + rows(3, 6)


def test_a_batch_ends_before_its_offsets_overflow(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(10, size=100), delta=20))
    first = to_arrow(records, max_bytes=350)
    assert first is not None
    assert first["offset"].to_pylist() == [0, 1, 2]
    assert records.next_offset == 3
    second = to_arrow(records, max_bytes=350)
    assert second is not None
    assert second["offset"].to_pylist() == [3, 4, 5]
    assert next(records).offset == 6
    rest = to_arrow(records, max_bytes=10**9)
    assert rest is not None
    assert rest["offset"].to_pylist() == [7, 8, 9]
    assert records.next_offset == 21


def test_a_row_above_the_limit_is_a_table_of_its_own(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(2, size=100)))
    for offset in (0, 1):
        table = to_arrow(records, max_bytes=10)
        assert table is not None
        assert table["offset"].to_pylist() == [offset]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_large_decompressed_bodies_are_not_in_memory_together(
    decoder: ModuleType, codec: int, copy: bool
) -> None:
    many = b"".join(batch([Row(i, b"-" * 60_000, None)], codec=codec) for i in range(9))
    records, cap, tables = read(decoder, many, max_decompressed_bytes=100_000), 100_000, []
    while (table := to_arrow(records, copy=copy)) is not None:
        assert table["value"].get_total_buffer_size() < 2 * cap + 30_000
        tables.append(table)
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == list(range(9))
    assert {value for table in tables for value in table["value"].to_pylist()} == {b"-" * 60_000}


def test_a_table_has_no_more_rows_than_its_columns_can_have(
    decoder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "MOST_ROWS", 4)
    for max_rows in (None, 5, 10**9):
        records, sizes = read(decoder, batch(rows(10))), []
        while (table := to_arrow(records, max_rows=max_rows)) is not None:
            sizes.append(table.num_rows)
        assert sizes == [4, 4, 2]
    assert arrow._repeated("t" * 249, arrow.MOST_ROWS).validate(full=True) is None


@pytest.mark.parametrize("copy", [True, False])
def test_a_body_that_decompresses_to_nothing_is_corrupt(decoder: ModuleType, copy: bool) -> None:
    data = batch(rows(1)) + wrapper(b"", 1, codec=1)
    data += b"".join(
        batch(compress(codec, b""), base=1 + codec, codec=codec, count=1) for codec in (1, 2, 3, 4)
    )
    records = read(decoder, data)
    assert to_arrow(records, copy=copy) is not None
    for offset in range(1, 6):
        with pytest.raises(CorruptRecords) as caught:
            to_arrow(records, copy=copy)
        assert caught.value.offset == offset
        records.skip_corrupt()
    assert to_arrow(records, copy=copy) is None


def test_rows_before_a_corrupt_batch_precede_its_error(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(3)) + batch(rows(2, 3), crc=1) + batch(rows(2, 5)))
    table = to_arrow(records)
    assert table is not None
    assert table["offset"].to_pylist() == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptRecords):
            to_arrow(records)
    records.skip_corrupt()
    rest = to_arrow(records)
    assert rest is not None
    assert rest["offset"].to_pylist() == [5, 6]


def test_views_keep_the_buffers_alive_and_copies_do_not(decoder: ModuleType) -> None:
    data = bytearray(batch(rows(3)))
    copied = to_arrow(read(decoder, data))
    assert copied is not None
    assert not is_held(data)
    viewed = to_arrow(read(decoder, data), copy=False)
    assert is_held(data) == (
        decoder.__name__ == IMPLEMENTATIONS["compiled"]
    )  # the pure decoder copies
    assert viewed is not None
    assert viewed["value"].to_pylist() == [row.value for row in rows(3)]
    del viewed
    gc.collect()
    assert not is_held(data)


def test_conversions_to_arrow_leak_no_memory(decoder: ModuleType) -> None:
    def work() -> None:
        records = read(decoder, batch(MIXED, codec=4) + batch(rows(9, 10), codec=1))
        for copy in (True, False):
            to_arrow(records, copy=copy, max_rows=5)
        bad = read(decoder, batch(MIXED) + batch(rows(1, 10), crc=1))
        to_arrow(bad)
        with pytest.raises(CorruptRecords):
            to_arrow(bad, copy=False)

    growth: list[int] = []
    for _ in range(4):  # the interpreter allocates in the first rounds
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(200):
            work()
        gc.collect()
        growth.append(sys.getallocatedblocks() - before)
    assert min(growth) < 200  # a leak would have thousands of blocks in every round


def test_invalid_columns_timestamps_and_limits_are_refused(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(1)))
    with pytest.raises(ConfigError, match="no such column: colour"):
        to_arrow(records, columns=("colour",))
    with pytest.raises(ConfigError, match="timestamps='days'"):
        to_arrow(records, timestamps="days")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_rows=0"):
        to_arrow(records, max_rows=0)


def test_a_missing_pyarrow_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow._pyarrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"asyncconsumer\[arrow\]"):
        arrow._pyarrow()
    monkeypatch.undo()
    arrow._pyarrow.cache_clear()
    assert arrow._pyarrow() is pa


def test_the_columns_are_the_fields_of_a_record(decoder: ModuleType) -> None:
    assert decoder.Record.__match_args__ == COLUMNS

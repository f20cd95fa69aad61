from array import array
from collections.abc import Callable
from functools import partial
from types import ModuleType

import pytest

from asyncconsumer.records._pure import Records
from tests.support.record_encoder import CODECS, Row, batch, control, record, rows, xerial

pytestmark = pytest.mark.fast


def read(decoder: ModuleType, data: object, **options: object) -> Records:
    records: Records = decoder.Records(data, **{"topic": "t", "partition": 1, **options})
    return records


def offsets(decoder: ModuleType, data: object, **options: object) -> list[int]:
    return [record.offset for record in read(decoder, data, **options)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_decoded_as_written(decoder: ModuleType, codec: str) -> None:
    expected = [
        Row(5, b"v" * 300, b"k", 1_700_000_000_000, (("a", b"1"), ("ü", None), ("", b""))),
        Row(6, None, b"", 1_600_000_000_000),
        Row(9, b"", None, 1_800_000_000_000),
    ]
    results = list(read(decoder, batch(expected, codec=CODECS[codec])))
    assert [(f.offset, f.value, f.key, f.timestamp, f.headers) for f in results] == expected
    assert {(f.topic, f.partition, f.timestamp_type) for f in results} == {("t", 1, 0)}


def test_snappy_in_the_framing_of_java_clients_is_read(decoder: ModuleType) -> None:
    body = xerial(b"".join(record(row) for row in rows(2000)))
    data = batch(body, codec=2, delta=1999, count=2000)
    assert offsets(decoder, data) == list(range(2000))


def test_the_append_time_of_a_batch_applies_to_its_records(decoder: ModuleType) -> None:
    data = batch(rows(3), attributes=8, max_timestamp=77)
    assert {(f.timestamp, f.timestamp_type) for f in read(decoder, data)} == {(77, 1)}


def test_topic_and_empty_headers_are_shared(decoder: ModuleType) -> None:
    record, two = read(decoder, batch(rows(2)))
    assert record.topic is two.topic
    assert record.headers is two.headers


def test_offsets_below_the_requested_offset_are_skipped(decoder: ModuleType) -> None:
    data = batch(rows(10)) + batch(rows(10, 10))
    assert offsets(decoder, data, offset=7) == list(range(7, 20))
    assert offsets(decoder, data, offset=13) == list(range(13, 20))


def test_next_offset_follows_the_delivered_records(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(2, 5)) + batch(rows(1, 10)), offset=3)
    assert records.next_offset == 3
    assert [records.next_offset for _ in records] == [6, 7, 11]


def test_next_offset_passes_a_compacted_end(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(2), delta=99))
    next(records)
    assert records.next_offset == 1
    next(records)
    assert records.next_offset == 100
    assert list(records) == []


def test_a_start_inside_a_compacted_end_reads_no_record(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(2), delta=99), offset=50)
    assert list(records) == []
    assert records.next_offset == 100


def test_next_offset_passes_control_and_empty_batches(decoder: ModuleType) -> None:
    data = batch(rows(2)) + control(2, 9, 1) + batch([], base=3, delta=4)
    records = read(decoder, data)
    assert [f.offset for f in records] == [0, 1]
    assert records.next_offset == 8


def test_a_start_after_the_data_reads_no_record(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(3)), offset=1000)
    assert list(records) == []
    assert records.next_offset == 1000


def test_batches_that_repeat_offsets_are_not_delivered_twice(decoder: ModuleType) -> None:
    data = batch(rows(10)) * 2 + batch(rows(10, 5))
    assert offsets(decoder, data) == list(range(15))


def test_a_truncated_last_batch_ends_the_iteration(decoder: ModuleType) -> None:
    whole, part = batch(rows(3)), batch(rows(3, 3))
    for cut in range(len(part)):
        records = read(decoder, whole + part[:cut])
        assert [f.offset for f in records] == [0, 1, 2]
        assert (records.next_offset, records.incomplete) == (3, 0)


def test_a_truncated_first_batch_reports_its_size(decoder: ModuleType) -> None:
    part = batch(rows(3))
    for cut in range(1, len(part)):
        records = read(decoder, part[:cut], offset=1)
        assert list(records) == []
        assert records.incomplete == (len(part) if cut >= 12 else 61)
        assert records.next_offset == 1


def test_an_empty_record_set_has_no_records(decoder: ModuleType) -> None:
    records = read(decoder, b"")
    assert list(records) == []
    assert (records.incomplete, records.size, records.next_offset, records.leader_epoch) == (
        0,
        0,
        0,
        -1,
    )


def test_the_leader_epoch_is_that_of_the_last_batch(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(1), epoch=4) + batch(rows(1, 1), epoch=6))
    next(records)
    assert records.leader_epoch == 4
    next(records)
    assert records.leader_epoch == 6


def test_an_ended_iteration_stays_ended(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(1)))
    assert len(list(records)) == 1
    assert list(records) == []
    assert "finished" in repr(records)
    assert records.skip_corrupt() == 1


def test_close_ends_the_iteration_and_keeps_the_position(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(5)))
    next(records)
    records.close()
    records.close()
    assert list(records) == []
    assert (records.next_offset, records.size) == (1, len(batch(rows(5))))


def test_the_checksum_can_be_ignored(decoder: ModuleType) -> None:
    assert offsets(decoder, batch(rows(2), crc=1), check_crc=False) == [0, 1]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, partial(array, "B")])
def test_any_bytes_like_object_is_decoded(
    decoder: ModuleType, kind: Callable[[bytes], object]
) -> None:
    assert offsets(decoder, kind(batch(rows(2)))) == [0, 1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"offset": -1}, ValueError),
        ({"max_decompressed_bytes": -1}, ValueError),
        ({"max_batch": -1}, ValueError),
        ({"aborted": [1]}, TypeError),
        ({"aborted": 7}, TypeError),
        ({"topic": b"t"}, TypeError),
    ],
)
def test_an_invalid_option_is_refused(
    decoder: ModuleType, options: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(decoder, b"", **options)


def test_topic_and_partition_are_required(decoder: ModuleType) -> None:
    with pytest.raises(TypeError):
        decoder.Records(b"")
    with pytest.raises(TypeError):
        decoder.Records("text", topic="t", partition=0)

"""Records that were written by other clients."""

from types import ModuleType

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.records.test_record_set import offsets, read
from tests.support.record_encoder import batch, rows

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("codec", range(5))
def test_batches_written_by_aiokafka_are_read(decoder: ModuleType, codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i in range(50):
        builder.append(i, 1000 + i, b"k%d" % i, b"v" * i, [("h", b"%d" % i), ("none", None)])
    results = list(read(decoder, builder.build()))
    assert [f.offset for f in results] == list(range(50))
    last = results[-1]
    assert (last.key, last.value, last.timestamp) == (b"k49", b"v" * 49, 1049)
    assert last.headers == (("h", b"49"), ("none", None))


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
)
def test_message_sets_written_by_aiokafka_are_read(
    decoder: ModuleType, magic: int, codec: int
) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for i in range(20):
        builder.append(i, 1000 + i, b"k%d" % i, b"v" * i)
    data = bytearray(builder.build())
    if codec:  # the broker writes the offset of the last message into the wrapper
        data[0:8] = (19).to_bytes(8, "big")
    results = list(read(decoder, data))
    assert [(f.offset, f.key, f.value) for f in results] == [
        (i, b"k%d" % i, b"v" * i) for i in range(20)
    ]
    assert results[3].timestamp == (1003 if magic else -1)


@pytest.mark.parametrize("codec", [0, 1])  # the other codecs need further packages
def test_batches_written_by_kafka_python_are_read(decoder: ModuleType, codec: int) -> None:
    records = pytest.importorskip("kafka.record.default_records")
    builder = records.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for i in range(50):
        builder.append(i, 1000 + i, b"k%d" % i, b"v" * i, [("h", b"x")])
    assert offsets(decoder, builder.build()) == list(range(50))


def test_batches_of_the_test_encoder_are_read_by_aiokafka() -> None:
    from aiokafka.record.memory_records import MemoryRecords

    result = MemoryRecords(batch(rows(5))).next_batch()
    assert result.validate_crc()
    assert [(record.offset, record.key) for record in result] == [
        (r.offset, r.key) for r in rows(5)
    ]

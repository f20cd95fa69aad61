"""The encoders of records and batches: both agree, and every decoder reads the batches back."""

from types import ModuleType
from typing import Any, get_args

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncconsumer.config.choices import CompressionType
from asyncconsumer.records import _pure, decoding
from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch

pytestmark = pytest.mark.fast

_PARTS = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=3)
_RECORDS = st.lists(st.tuples(st.integers(0, 2**62), _PARTS, _PARTS, _HEADERS), max_size=8)
CODECS = get_args(CompressionType)


def encoded(module: ModuleType, records: list[Any]) -> Any:
    encoder = module.RecordEncoder()
    for record in records:
        assert encoder.append(*record) == encoder.size
    return encoder


@settings(deadline=None)
@given(_RECORDS)
def test_both_encoders_write_the_same_bytes(records: list[Any]) -> None:
    pure, chosen = encoded(_pure, records), encoded(decoding.decoder, records)
    assert chosen.body() == pure.body()
    for name in ("count", "size", "first_timestamp", "max_timestamp"):
        assert getattr(chosen, name) == getattr(pure, name)


@pytest.mark.parametrize("codec", CODECS)
def test_an_encoded_batch_is_decoded_unchanged(decoder: ModuleType, codec: CompressionType) -> None:
    records: list[Any] = [
        (1_000, b"k", bytes(range(256)) * 400, [("a", b"1"), ("ä", None)]),
        (900, None, None, ()),
        (2_000, b"", b"x", ()),
    ]
    batch = encode_batch(encoded(decoder, records), BatchProducer(7, 2, 40), compression=codec)
    read = list(decoder.Records(batch, topic="t", partition=0))
    assert [record.offset for record in read] == [0, 1, 2]
    assert [
        (record.timestamp, record.key, record.value, list(record.headers)) for record in read
    ] == [(*record[:3], list(record[3])) for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_an_encoded_batch_is_decoded_by_aiokafka(codec: CompressionType) -> None:
    records: list[Any] = [(5, b"k", b"v" * 100_000, [("h", b"1")]), (4, None, b"w", ())]
    batch = encode_batch(
        encoded(decoding.decoder, records),
        BatchProducer(2**40, 3, 5),
        compression=codec,
        transactional=True,
    )
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (2**40, 3, 5)
    assert (theirs.is_transactional, theirs.first_timestamp, theirs.max_timestamp) == (True, 5, 5)
    read = [(record.timestamp, record.key, record.value, record.headers) for record in theirs]
    assert read == [(5, b"k", b"v" * 100_000, [("h", b"1")]), (4, None, b"w", [])]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((0, "k", None, ()), "key must be bytes or None, not str"),
        ((0, None, bytearray(1), ()), "value must be bytes or None, not bytearray"),
        ((0, None, None, {"a": b"1"}), "headers must be a tuple or a list, not dict"),
        ((0, None, None, [("a",)]), "a header must be a tuple of a name and bytes or None"),
        ((0, None, None, [(b"a", b"1")]), "a header must be a tuple of a name and bytes or None"),
        ((0, None, None, [("a", "1")]), "the value of a header must be bytes or None, not str"),
        ((-1, None, None, ()), "timestamp_ms must not be negative, got -1"),
        (("0", None, None, ()), "'str' object cannot be interpreted as an integer"),
    ],
)
def test_a_refused_record_leaves_the_encoder_unchanged(
    decoder: ModuleType, record: tuple[Any, ...], message: str
) -> None:
    encoder = encoded(decoder, [(1, b"k", b"v", ())])
    before = encoder.body()
    with pytest.raises((TypeError, ValueError)) as info:
        encoder.append(*record)
    assert str(info.value) == message
    assert (encoder.body(), encoder.count) == (before, 1)


def test_a_header_name_must_be_encodable(decoder: ModuleType) -> None:
    encoder = decoder.RecordEncoder()
    with pytest.raises(UnicodeEncodeError):
        encoder.append(0, None, None, [("\ud800", None)])
    assert encoder.count == 0


@given(st.binary(max_size=40))
def test_keys_hash_as_in_other_clients(key: bytes) -> None:
    hashed = murmur2_of_aiokafka(key) & 0xFFFFFFFF
    assert decoding.murmur2(key) == _pure.murmur2(key) == hashed


def test_the_hash_of_a_known_key(decoder: ModuleType) -> None:
    assert decoder.murmur2(b"21") == -973932308 & 0xFFFFFFFF  # from Kafka's own tests
    with pytest.raises(TypeError):
        decoder.murmur2("text")

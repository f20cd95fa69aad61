"""Decompressed bodies that are evicted between any two records, without other effects."""

import gc
import random
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.buffer import body_cache
from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.errors import CorruptRecords
from tests.support.record_encoder import batch, compress, control, message, record, rows, wrapper

pytestmark = pytest.mark.fast

EVERYTHING, AS_VIEWS = 63, 64


def old_set(magic: int, codec: int, count: int = 40) -> bytes:
    inner = b"".join(
        message(i, b"value %d" % i * (i % 7), magic=magic, timestamp=1000 + i) for i in range(count)
    )
    plain = message(count, magic=magic) + message(count + 1, magic=magic)
    return wrapper(inner, count - 1, codec=codec, magic=magic) + plain


def aborted_set() -> bytes:
    return b"".join(
        (
            batch(rows(20), codec=1, producer=7, attributes=0x10),
            batch(rows(20, 20), codec=2, producer=8, attributes=0x10),
            control(40, 7, 0),
            batch(rows(20, 41), codec=4, producer=7, attributes=0x10),
            control(61, 8, 1),
            control(62, 7, 1),
        )
    )


SETS: dict[str, tuple[bytes, dict[str, Any]]] = {
    **{
        f"batches of codec {codec}": (
            batch(rows(60), codec=codec) + batch(rows(9, 60)) + batch(rows(30, 70), codec=codec),
            {},
        )
        for codec in (1, 2, 3, 4)
    },
    **{
        f"messages of magic {magic}, codec {codec}": (old_set(magic, codec), {})
        for magic in (0, 1)
        for codec in (1, 2, 3)
        if (magic, codec) != (0, 3)  # a writer of today does not write that
    },
    "aborted transactions": (aborted_set(), {"aborted": [(7, 0)]}),
    "from the middle to before the end": (
        batch(rows(60), codec=1) + batch(rows(60, 60), codec=4),
        {"offset": 31, "end": 97},
    ),
    "a batch that compaction thinned": (
        batch([*rows(5), *rows(5, 20)], codec=1, delta=99) + batch(rows(5, 100), codec=1),
        {},
    ),
}


def seen(result: Any) -> tuple[object, ...]:
    return result.offset, result.timestamp, result.timestamp_type, result.key, result.value


@pytest.mark.parametrize("window", [1, 700, 10**6])
@pytest.mark.parametrize("name", SETS)
def test_eviction_at_every_record_changes_no_result(
    decoder: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, window: int
) -> None:
    monkeypatch.setattr(body_cache, "_MIN_PART", window)
    data, options = SETS[name]
    expected = list(map(seen, decoder.Records(data, topic="t", partition=0, **options)))
    cache = BodyCache(1)
    busy = [
        decoder.Records(data, topic="t", partition=0, bodies=cache, **options) for _ in range(2)
    ]
    positions: list[int] = []
    got: list[object] = []
    # alternately, so that each decompressed body evicts that of the other reader
    for reader, other in zip(*busy, strict=True):
        assert seen(reader) == seen(other)
        got.append(seen(reader))
        assert busy[0].next_offset == busy[1].next_offset
        positions.append(busy[0].next_offset)
    assert got == expected
    whole = decoder.Records(data, topic="t", partition=0, **options)
    assert positions == [whole.next_offset for _ in whole]
    assert busy[0].next_offset == whole.next_offset
    assert cache.size == 0


@pytest.mark.parametrize("seed", range(10))
def test_eviction_during_reads_of_rows_and_records_loses_none(
    decoder: ModuleType, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(body_cache, "_MIN_PART", chance.choice([1, 500, 5000]))
    data = batch(rows(60), codec=1) + batch(rows(60, 60), codec=4)
    cache = BodyCache(chance.choice([1, 3000, 10**6]))
    readers = [decoder.Records(data, topic="t", partition=0, bodies=cache) for _ in range(3)]
    counts = [0, 0, 0]
    retained = []
    while any(count < 120 for count in counts):
        number = chance.randrange(3)
        reader = readers[number]
        if chance.random() < 0.3:
            readers[chance.randrange(3)].evict()
        kind = chance.choice([0, EVERYTHING, EVERYTHING | AS_VIEWS])
        if kind:
            table = reader.take_columns(kind, chance.randint(1, 9), 10**6, 1)
            counts[number] += table[0] if table else 0
            retained.append(table)
        elif (result := next(reader, None)) is not None:
            assert result.offset == counts[number]
            counts[number] += 1
        assert reader.next_offset == counts[number]
    assert counts == [120, 120, 120]


def test_eviction_keeps_the_error_for_bytes_after_the_last_record(decoder: ModuleType) -> None:
    body = b"".join(record(row, 0, row.timestamp) for row in rows(3))
    data = batch(compress(1, body + b"rest"), codec=1, count=3, delta=2)
    result = decoder.Records(data, topic="t", partition=0, bodies=BodyCache(1))
    for _ in range(3):
        next(result)
        assert result.evict()
    for _ in range(2):
        with pytest.raises(CorruptRecords, match="4 bytes after its last record"):
            next(result)
    assert result.skip_corrupt() == 3


def test_corruption_inside_an_evicted_body_is_raised_unchanged(decoder: ModuleType) -> None:
    body = b"".join(record(row, 0, row.timestamp) for row in rows(3)) + b"\x02\x00"
    data = batch(compress(1, body), codec=1, count=4, delta=3)
    result = decoder.Records(data, topic="t", partition=0)
    want = []
    for evicted in (False, True):
        result = decoder.Records(data, topic="t", partition=0)
        for _ in range(3):
            next(result)
            assert not evicted or result.evict()
        with pytest.raises(CorruptRecords) as caught:
            next(result)
        want.append((caught.value.reason, caught.value.offset, caught.value.resume))
    assert want[0] == want[1]


def test_records_without_a_body_cannot_be_evicted(decoder: ModuleType) -> None:
    plain = decoder.Records(batch(rows(3)), topic="t", partition=0)
    assert not plain.evict()
    next(plain)
    assert not plain.evict()
    packed = decoder.Records(batch(rows(3), codec=1), topic="t", partition=0)
    assert not packed.evict()
    next(packed)
    assert packed.evict()
    assert not packed.evict()
    packed.close()
    assert not packed.evict()


def test_a_body_is_charged_while_it_is_held(decoder: ModuleType) -> None:
    cache = BodyCache(10**6)
    size = len(b"".join(record(row, 0, rows(1)[0].timestamp) for row in rows(50)))
    data = batch(rows(50), codec=1)
    ended, closed, died = (
        decoder.Records(data, topic="t", partition=0, bodies=cache) for _ in range(3)
    )
    for reader in (ended, closed, died):
        next(reader)
    assert cache.size == 3 * size
    assert len(list(ended)) == 49
    assert cache.size == 2 * size
    closed.close()
    assert cache.size == size
    del died, reader
    gc.collect()
    assert cache.size == 0


def test_a_body_is_freed_before_the_next_one_is_created(decoder: ModuleType) -> None:
    """No two bodies are in memory if there is room for one only."""
    data = batch(rows(50), codec=1)
    sizes = []

    class Watched(BodyCache):
        def make_room(self, reader: Any) -> None:
            super().make_room(reader)
            sizes.append(self.size)

    cache = Watched(1)
    readers = [decoder.Records(data, topic="t", partition=0, bodies=cache) for _ in range(5)]
    for reader in readers:
        next(reader)
    assert sizes == [0] * 5
    assert [reader.evict() for reader in readers] == [False, False, False, False, True]


def test_views_keep_their_body(decoder: ModuleType) -> None:
    if not decoder.__name__.endswith("_records"):
        pytest.skip("the pure decoder copies")
    cache = BodyCache(1)
    first = decoder.Records(batch(rows(50), codec=1), topic="t", partition=0, bodies=cache)
    table = first.take_columns(EVERYTHING | AS_VIEWS, 10, 10**6, 1)
    assert not first.evict()
    second = decoder.Records(batch(rows(50), codec=1), topic="t", partition=0, bodies=cache)
    next(second)
    again = first.take_columns(EVERYTHING | AS_VIEWS, 40, 10**6, 1)
    assert table[-1][1] is again[-1][1]  # the same body, exported again


def test_control_batches_may_not_be_large(decoder: ModuleType) -> None:
    """Control batches have no records, so that no callback runs between them."""
    bomb = batch(compress(1, bytes(10**6)), codec=1, attributes=0x30, producer=1, count=1)
    result = decoder.Records(bomb, topic="t", partition=0, aborted=[(1, 0)])
    with pytest.raises(CorruptRecords, match=r"more than `max_decompressed_bytes` \(65536\)"):
        next(result)

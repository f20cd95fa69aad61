"""The CPU time of the record decoders, compared with those of aiokafka and kafka-python.

    python -m benchmarks.decode [--quick] [--json] [--all]

The record size, the codec and the number of records in a batch are varied one at a time, starting
from values of 100 bytes, uncompressed, 1000 in a batch. With `--all` they are combined. Each
decoder verifies checksums and creates the objects that its user gets. "touched" also reads the key,
value, offset, timestamp and partition of each record.
"""

import asyncio
import importlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from asyncconsumer.records.arrow import to_arrow
from benchmarks._harness import Row, arguments, measure, note, ratios, show
from tests.support import record_encoder as encoder

SIZES, PER_BATCH = (10, 100, 1000), (1, 10, 1000)
BYTES_OF_A_SET = 512 * 1024  # a usual size of one partition in a fetch response

AGAINST = [
    ("compiled, async for", "aiokafka"),
    ("compiled, async for", "kafka-python"),
    ("compiled, touched", "aiokafka, touched"),
    ("compiled", "pure"),
    ("pure", "kafka-python"),
    ("pure, no checksum", "kafka-python, no checksum"),
]


class Case(NamedTuple):
    """The size of the values, the codec and the records in each batch of a record set."""

    size: int
    codec: str
    per_batch: int

    def __str__(self) -> str:
        return f"{self.size} B, {self.codec}, {self.per_batch} a batch"

    @property
    def records(self) -> int:
        """The number of records in the record set, which has only full batches."""
        return -(-BYTES_OF_A_SET // (self.size + 20) // self.per_batch) * self.per_batch

    def record_set(self) -> bytes:
        codec = encoder.CODECS[self.codec]
        return b"".join(
            encoder.batch(text_rows(self.per_batch, first, self.size), codec=codec)
            for first in range(0, self.records, self.per_batch)
        )


def text_rows(count: int, first: int, size: int) -> list[encoder.Row]:
    """Return rows with values that look like JSON, so that they compress as real values do."""
    results = []
    for offset in range(first, first + count):
        noise = f"{offset * 2654435761 % 2**32:08x}"
        text = f'{{"id":{offset},"user":"{noise}","amount":{offset % 997}.{offset % 89:02}}}'
        value = (text * (size // len(text) + 1))[:size].encode()
        results.append(encoder.Row(offset, value, b"key-%06d" % (offset % 10**6), offset))
    return results


def cases(*, crossed: bool) -> Iterator[Case]:
    if crossed:
        yield from itertools.starmap(Case, itertools.product(SIZES, encoder.CODECS, PER_BATCH))
        return
    yield from (Case(size, "none", 1000) for size in (100, 10, 1000))
    yield from (Case(100, codec, 1000) for codec in encoder.CODECS if codec != "none")
    yield from (Case(100, "none", per_batch) for per_batch in (1, 10))


Source = Callable[[], Any]
Contenders = dict[str, Callable[[], None]]


def iterated(source: Source) -> None:
    """Iterate over all records without counting them, which would take a quarter of the time."""
    for _ in source():
        pass


def touched(source: Source) -> None:
    for record in source():
        record.key, record.value, record.offset, record.timestamp, record.partition


def awaited(decoder: ModuleType, source: Source, runner: asyncio.Runner) -> None:
    async def read() -> None:
        sets = [None, source()]

        async def refill() -> object:
            return sets.pop()

        async for _ in decoder.AsyncRecords(refill):
            pass

    runner.run(read())


def as_arrow(source: Source, *, copy: bool) -> None:
    to_arrow(source(), copy=copy)


def of_asyncconsumer(data: bytes, runner: asyncio.Runner) -> Contenders:
    compiled = importlib.import_module("asyncconsumer.records._records")
    pure = importlib.import_module("asyncconsumer.records._pure")
    where = {"topic": "orders", "partition": 3}
    fast, slow = partial(compiled.Records, data, **where), partial(pure.Records, data, **where)
    return {
        "compiled": partial(iterated, fast),
        "compiled, touched": partial(touched, fast),
        "compiled, async for": partial(awaited, compiled, fast, runner),
        "compiled, Arrow copied": partial(as_arrow, fast, copy=True),
        "compiled, Arrow views": partial(as_arrow, fast, copy=False),
        "pure": partial(iterated, slow),
        "pure, no checksum": partial(iterated, partial(slow, check_crc=False)),
    }


def of_aiokafka(data: bytes) -> Contenders:
    fetcher = importlib.import_module("aiokafka.consumer.fetcher")
    memory = importlib.import_module("aiokafka.record.memory_records")
    structs = importlib.import_module("aiokafka.structs")
    where = structs.TopicPartition("orders", 3)

    def source() -> object:
        records = memory.MemoryRecords(data)
        return fetcher.PartitionRecords(
            tp=where,
            records=records,
            aborted_transactions=[],
            fetch_offset=0,
            key_deserializer=None,
            value_deserializer=None,
            check_crcs=True,
            isolation_level=0,
        )

    return {"aiokafka": partial(iterated, source), "aiokafka, touched": partial(touched, source)}


def of_kafka_python(data: bytes, codec: str) -> Contenders:
    try:
        fetcher = importlib.import_module("kafka.consumer.fetcher")
        memory = importlib.import_module("kafka.record.memory_records")
        structs = importlib.import_module("kafka.structs")
        codecs = importlib.import_module("kafka.codec")
    except ImportError:
        note("kafka-python is not installed: pip install 'asyncconsumer[bench]'")
        return {}
    if codec != "none" and not getattr(codecs, f"has_{codec}")():
        return {}  # it needs a package of its own for each
    where = structs.TopicPartition("orders", 3)

    def source(*, check_crcs: bool) -> object:
        records = memory.MemoryRecords(data)
        retained = fetcher.Fetcher.PartitionRecords(0, where, records, check_crcs=check_crcs)
        return retained.record_iterator

    return {
        "kafka-python": partial(iterated, partial(source, check_crcs=True)),
        "kafka-python, no checksum": partial(iterated, partial(source, check_crcs=False)),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="every size with every codec and batch")
    options = parser.parse_args()
    rows: list[Row] = []
    with asyncio.Runner() as runner:
        for case in cases(crossed=options.all):
            data = case.record_set()
            contenders = (
                of_asyncconsumer(data, runner)
                | of_aiokafka(data)
                | of_kafka_python(data, case.codec)
            )
            note(f"{case}: {case.records} records in {len(data) >> 10} KiB")
            rounds = 5 if options.quick else 15
            rows += measure(str(case), contenders, records=case.records, rounds=rounds)
    show("decode", rows, ratios(rows, AGAINST), as_json=options.json)


if __name__ == "__main__":
    main()

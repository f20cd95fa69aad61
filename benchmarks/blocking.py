"""The time for which the event loop is blocked while compressed input of 1 MB is read.

    python -m benchmarks.blocking [--quick] [--json]

The input compresses very well, or is hostile. It has each codec and framing, and is read by both
decoders: record by record ("async for"), by a plain `for` over chunks, and as Arrow tables. At the
same time, a task wakes up every millisecond. "wall" is the longest time for which it could not wake
up. "CPU" is the longest CPU time of the loop's thread between two of its wakeups.
"""

import asyncio
import gc
import gzip
import statistics
import struct
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import ModuleType
from typing import Final, NamedTuple, TypeAlias

import cramjam

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import schema_of, to_arrow
from asyncconsumer.records.pauses import open_next
from benchmarks._harness import arguments, note, print_lines
from tests.support.record_encoder import Row as Written
from tests.support.record_encoder import batch, compress, message, record, wrapper, xerial

SIZE: Final = 10**6
CAP: Final = 64 * 2**20
PIECE: Final = 60 * 2**10  # bytes of a value
LIMIT_MS: Final = 100.0
MOST_RECORDS: Final = 20_000  # more records of the same kind would only take longer
USERS: Final = 1000  # records that a plain `for` takes before it lets the loop run
TICK: Final = 0.001

Case: TypeAlias = Callable[[], tuple[bytes, int]]
"""A function that returns a record set, and the offset from which to read it."""


class Row(NamedTuple):
    """The milliseconds of one case: the medians of the longest times of each round."""

    case: str
    contender: str
    way: str
    wall: float
    cpu: float


# --- the input ------------------------------------------------------------------------------------


def records_of(size: int, piece: int = PIECE) -> tuple[bytes, int]:
    """Return a body of records with about `size` bytes, and its number of records."""
    count = max(1, size // (piece + 20))
    return b"".join(record(Written(i, bytes(piece)), 0, 0) for i in range(count)), count


def zeros(codec: int, size: int = CAP, pack: Callable[[bytes], bytes] | None = None) -> bytes:
    body, count = records_of(size)
    packed = compress(codec, body) if pack is None else pack(body)
    return batch(packed, codec=codec, count=count, delta=count - 1)


def false_size() -> bytes:
    body = gzip.compress(bytes(200 * SIZE))[:-4] + struct.pack("<I", 1000)
    return batch(body, codec=1, count=1)


def empty_blocks() -> bytes:
    """Return a batch in gzip whose blocks have a Huffman tree each, and no data."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)
    bits = "0" + "01"  # not the last block, dynamic, its bits from the low end
    bits += "00000" + "00000" + "0111"  # 257 literals, 1 distance, 18 code lengths
    lengths = {18: 1, 1: 2, 0: 2}
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)
    bits += "".join(format(lengths.get(code, 0), "03b")[::-1] for code in order)
    # codes: 18 is 0, 0 is 10, 1 is 11; 256 zeros, the end of block has length 1, so has distance 0
    bits += "0" + format(127, "07b")[::-1] + "0" + format(107, "07b")[::-1] + "11" + "11" + "0"
    count = 8 * (SIZE - 100) // len(bits) // 8 * 8
    stream = int((bits * count)[::-1], 2).to_bytes(len(bits) * count // 8, "little")
    return batch(head + stream + bytes(8), codec=1, count=1)


def tiny_lz4_blocks() -> bytes:
    """Return a batch in LZ4 with blocks of one byte each, which depend on the earlier blocks."""
    head = bytes((0x40, 0x40))
    frame = b"\x04\x22\x4d\x18" + head + bytes((_header_check(head),))
    block = struct.pack("<I", 2) + b"\x10a"
    return batch(frame + block * (SIZE // len(block)) + bytes(4), codec=3, count=1)


def _header_check(head: bytes) -> int:
    from asyncconsumer.records import compression

    return compression._xxh32_of_few(head) >> 8 & 0xFF  # noqa: SLF001


def tiny_zstd_blocks() -> bytes:
    head = b"\x28\xb5\x2f\xfd\x00\x58"
    return batch(head + b"\x08\0\0a" * (SIZE // 4) + b"\x01\0\0", codec=4, count=1)


def many_zstd_frames() -> bytes:
    text = b" ".join(b"%x" % (i * i * 7919) for i in range(60))
    frame = bytes(cramjam.zstd.compress(text))
    return batch(frame * (SIZE // len(frame)), codec=4, count=1)


def message_set(codec: int, magic: int, size: int, piece: int = PIECE) -> bytes:
    count = size // (piece + 40)
    inner = b"".join(message(i, bytes(piece), magic=magic) for i in range(count))
    value = bytearray(compress(codec, inner))
    if codec == 3 and magic == 0:
        value[6 + (8 if value[4] & 8 else 0)] ^= 0xFF  # old clients wrote a wrong header checksum
    return wrapper(b"", count - 1, codec=codec, magic=magic, value=bytes(value))


def many_bodies() -> bytes:
    body, count = records_of(CAP)
    packed, result = compress(1, body), b""
    for number in range(6):
        head = {"base": number * count, "count": count, "delta": count - 1}
        result += batch(packed, codec=1, **head)
    return result


def smallest_records() -> tuple[bytes, int]:
    body, count = records_of(CAP - 2**20, 0)
    return batch(compress(4, body), codec=4, count=count, delta=count - 1), count - 1


CASES: dict[str, Case] = {
    "gzip, zeros": lambda: (zeros(1), 0),
    "gzip, false size": lambda: (false_size(), 0),
    "gzip, empty blocks": lambda: (empty_blocks(), 0),
    "gzip, 6 bodies": lambda: (many_bodies(), 0),
    "snappy, zeros": lambda: (zeros(2, 20 * SIZE), 0),
    "snappy, xerial, zeros": lambda: (zeros(2, 20 * SIZE, xerial), 0),
    "snappy, xerial, small blocks": lambda: (zeros(2, SIZE, lambda body: xerial(body, 250)), 0),
    "lz4, zeros": lambda: (zeros(3), 0),
    "lz4, small blocks": lambda: (tiny_lz4_blocks(), 0),
    "zstd, zeros": lambda: (zeros(4), 0),
    "zstd, small blocks": lambda: (tiny_zstd_blocks(), 0),
    "zstd, many frames": lambda: (many_zstd_frames(), 0),
    "zstd, the last of small records": smallest_records,
    "magic 1, gzip, zeros": lambda: (message_set(1, 1, 60 * 2**20), 0),
    "magic 1, gzip, small messages": lambda: (message_set(1, 1, 60 * 2**20, 0), 0),
    "magic 1, snappy, zeros": lambda: (message_set(2, 1, 20 * SIZE), 0),
    "magic 1, lz4, zeros": lambda: (message_set(3, 1, 60 * 2**20), 0),
    "magic 0, lz4, no header check": lambda: (message_set(3, 0, 60 * 2**20), 0),
}


# --- reading it -----------------------------------------------------------------------------------


async def one_by_one(decoder: ModuleType, records: decoding.Records) -> AsyncIterator[int]:
    sets = [records]

    async def refill() -> decoding.Records | None:
        return sets.pop() if sets else None

    async for _ in decoder.AsyncRecords(refill):
        yield 1


async def by_chunks(_: ModuleType, records: decoding.Records) -> AsyncIterator[int]:
    more = True
    while more:
        await open_next(records)
        for count, _record in enumerate(records, 1):
            if count % USERS == 0:  # a longer loop would be blocked by the user's own code
                await asyncio.sleep(0)
                yield USERS
        more = bool(records.paused)


async def as_tables(_: ModuleType, records: decoding.Records) -> AsyncIterator[int]:
    while True:
        await open_next(records)
        table = to_arrow(records)
        if table is None:
            return
        records.worked += table.nbytes
        yield table.num_rows


WAYS = {"async for": one_by_one, "chunks": by_chunks, "arrow": as_tables}


class Longest:
    """The longest times for which a task could not run, because a reader blocked the loop."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    async def watch(self, reading: Awaitable[None]) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._tick())
            await reading
            await asyncio.sleep(2 * TICK)
            task.cancel()

    async def _tick(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK)
            self.wall = max(self.wall, time.perf_counter() - wall - TICK)
            self.cpu = max(self.cpu, time.thread_time() - cpu)


async def measured(name: str, way: str, data: bytes, offset: int) -> tuple[float, float]:
    _, decoder = decoding.load(name)
    records = decoder.Records(data, topic="t", partition=0, offset=offset, bodies=BodyCache(2**24))

    async def read() -> None:
        taken = 0
        with suppress(CorruptRecords):
            async for count in WAYS[way](decoder, records):
                taken += count
                if taken >= MOST_RECORDS:
                    return

    longest = Longest()
    await asyncio.sleep(0)
    await longest.watch(read())
    return longest.wall * 1000, longest.cpu * 1000


def measure(case: str, data: bytes, offset: int, rounds: int) -> list[Row]:
    rows = []
    for contender in decoding.available():
        for way in WAYS:
            taken = []
            for _ in range(rounds):
                gc.collect()
                taken.append(asyncio.run(measured(contender, way, data, offset)))
            medians = (statistics.median(column) for column in zip(*taken, strict=True))
            rows.append(Row(case, contender, way, *medians))
    return rows


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else None).parse_args()
    schema_of()  # imports pyarrow, so that the import is not measured
    rows: list[Row] = []
    for case, make in CASES.items():
        data, offset = make()
        note(f"{case}: {len(data) >> 10} KiB")
        rows += measure(case, data, offset, 1 if options.quick else 5)
    if options.json:
        for row in rows:
            result = {
                "bench": "blocking",
                "case": row.case,
                "contender": f"{row.contender}, {row.way}",
            }
            for metric, value in (("wall_ms", row.wall), ("cpu_ms", row.cpu)):
                print_lines([{**result, "metric": metric, "median": round(value, 1)}])
        return
    columns = [(contender, way) for contender in decoding.available() for way in WAYS]
    print(f"\nlongest time blocked, ms of wall/CPU; the limit is {LIMIT_MS:.0f}")
    print(" " * 34 + "".join(f"{f'{contender}, {way}':>22}" for contender, way in columns))
    for case in CASES:
        cells = {(row.contender, row.way): row for row in rows if row.case == case}
        line = "".join(
            f"{f'{cells[column].wall:.0f}/{cells[column].cpu:.0f}':>22}" for column in columns
        )
        print(f"  {case:32}{line}")


if __name__ == "__main__":
    main()

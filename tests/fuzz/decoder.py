"""Mutated inputs for the decoders. Only typed errors are raised, and all decoders agree.

    python -m tests.fuzz.decoder --inputs 10000000

Inputs are created in blocks, each from its own seed. An error or a crash is repeated with `--seed`
and `--block`. Memory must stay flat.
"""

import argparse
import faulthandler
import struct
import sys
import time
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import psutil

from asyncconsumer.errors import CorruptRecords, MalformedResponse
from asyncconsumer.records import decoding
from tests.fuzz.mutate import FRAMES, mutate, record_set

BLOCK = 1000
ALL_COLUMNS, AS_VIEWS = 63, 64
GROWTH_ALLOWED = 16 << 20


class Options(NamedTuple):
    """The options of one decoding run."""

    check_crc: bool
    offset: int
    aborted: list[tuple[int, int]] | None
    max_decompressed_bytes: int
    columns: int  # which, and how; 0: records
    window: int = 0  # bytes kept of a body that was evicted; 0: none is evicted


class Evicting:
    """A cache that evicts each body after each record, and allows only a window of it again."""

    def __init__(self, window: int) -> None:
        self._window = window

    def make_room(self, reader: object) -> None:
        """Do nothing, because there is always room."""

    def hold(self, reader: object, size: int, again: bool) -> int:
        """Keep the window."""
        return min(size, self._window) if again else size

    def release(self, reader: object) -> None:
        """Do nothing, because nothing is charged."""


def observed(decoder: ModuleType, data: bytes, options: Options) -> list[object]:
    """Return everything that can be observed of a decoding, in order."""
    records = decoder.Records(
        data,
        topic="t",
        partition=0,
        offset=options.offset,
        aborted=options.aborted,
        check_crc=options.check_crc,
        max_decompressed_bytes=options.max_decompressed_bytes,
        max_batch=1 << 20,
        bodies=Evicting(options.window) if options.window else None,
    )
    seen: list[object] = []
    for _ in range(4):
        try:
            if options.columns:
                while (table := records.take_columns(options.columns, 3, 1 << 20, 1)) is not None:
                    seen.append(plain(resolved(table) if options.columns & AS_VIEWS else table))
                    if options.window:
                        records.evict()
            else:
                for record in records:
                    fields = (record.offset, record.timestamp, record.timestamp_type)
                    seen.append((*fields, record.key, record.value, record.headers))
                    seen.append(records.next_offset)
                    if options.window:
                        records.evict()
            break
        except CorruptRecords as error:
            seen.append((error.offset, error.reason, error.resume))
            if error.resume is None:
                break
            seen.append(records.skip_corrupt())
    seen.append((records.next_offset, records.incomplete, records.leader_epoch))
    return seen


def plain(table: object) -> object:
    """Return buffers of any kind as bytes."""
    if isinstance(table, tuple | list):
        return [plain(part) for part in table]
    return table if table is None or isinstance(table, int) else bytes(table)  # type: ignore[call-overload]


def resolved(table: tuple[Any, ...]) -> list[object]:
    """Return the records with copies of keys and values in place of views."""
    rows, offsets, times, kinds, key, value, *headers, buffers = table
    values = [viewed(column, rows, buffers or [column[3]]) for column in (key, value)]
    return [rows, offsets, times, kinds, values, headers]


def viewed(column: tuple[Any, ...], rows: int, buffers: list[bytes]) -> list[object]:
    valid, _, views, _ = column
    results: list[object] = []
    for row in range(rows):
        view = bytes(views)[16 * row : 16 * row + 16]
        length, _, number, offset = struct.unpack("<i4sii", view)
        value = view[4:16][:length]
        if length > 12:
            value = bytes(memoryview(buffers[number])[offset : offset + length])
            assert (len(value), value[:4]) == (length, view[4:8])
        is_null = valid is not None and not bytes(valid)[row // 8] >> row % 8 & 1
        results.append(None if is_null else value)
    return results


def parsed_frame(decoder: ModuleType, frame: bytes, version: int) -> object:
    """Return the response, or the error and its offset."""
    try:
        return tuple(decoder.fetch_answer(frame, version))
    except MalformedResponse as error:
        return error.position, error.reason


def mutated(data: bytearray, rng: Random) -> bytes:
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        mutate(data, rng)
    return bytes(data)


def one_input(twins: list[ModuleType], rng: Random) -> None:
    """Create an input and compare the results of the decoders."""
    seen: list[object]
    if rng.randrange(8) == 0:
        version, frame = rng.choice(FRAMES)
        data = mutated(bytearray(frame), rng)
        seen = [parsed_frame(twin, data, version) for twin in twins]
    else:
        data = mutated(record_set(rng), rng)
        options = Options(
            check_crc=rng.randrange(8) == 0,
            offset=rng.choice((0, 0, 11, 91)),
            aborted=rng.choice((None, [(7, 0), (8, 53)])),
            max_decompressed_bytes=rng.choice((1 << 16, 1 << 16, 60)),
            columns=rng.choice((0,) * 14 + (ALL_COLUMNS, ALL_COLUMNS | AS_VIEWS)),
        )
        seen = [observed(twin, data, options) for twin in twins]
        if not options.columns:  # tables may end at other records
            evicting = options._replace(window=rng.choice((1, 100, 5000)))
            seen += [observed(twin, data, evicting) for twin in twins]
    if any(other != seen[0] for other in seen):
        raise AssertionError(f"decoders differ on {data.hex()}: {seen}")


def fuzz(inputs: int, seed: int, first_block: int = 0, *, progress: bool = False) -> int:
    """Try `inputs` inputs and return the growth of the process in bytes after the first tenth."""
    twins = [decoding.load(name)[1] for name in decoding.available()]
    process, began = psutil.Process(), time.monotonic()
    blocks, warm = inputs // BLOCK, process.memory_info().rss
    for block in range(first_block, first_block + blocks):
        rng = Random(f"{seed}/{block}")
        for _ in range(BLOCK):
            try:
                one_input(twins, rng)
            except Exception as error:
                error.add_note(f"repeat with --seed {seed} --block {block} --inputs {BLOCK}")
                raise
        done = block - first_block + 1
        if done == max(1, blocks // 10):
            warm = process.memory_info().rss
        if progress and (done % 20 == 0 or done == blocks):
            rate = done * BLOCK / (time.monotonic() - began)
            rss = process.memory_info().rss >> 20
            print(f"\r{done * BLOCK:,} inputs, {rate:,.0f}/s, {rss} MiB", end="", file=sys.stderr)
    return process.memory_info().rss - warm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--block", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    print(f"seed {options.seed}", file=sys.stderr)
    grown = fuzz(options.inputs, options.seed, options.block, progress=True)
    print(f"\n{options.inputs:,} inputs agree, memory grew by {grown >> 10} KiB", file=sys.stderr)
    sys.exit(grown > GROWTH_ALLOWED)


if __name__ == "__main__":
    main()

"""The command `asyncconsumer produce`."""

import asyncio
import itertools
import json as json_text
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.connect import producer_options, read_options
from asyncconsumer.cli.progress import ProgressDisplay, show_progress
from asyncconsumer.cli.shared_options import Bootstrap, Compression, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.errors import ConfigError
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.record import Headers

_BATCH: Final = 1_000  # records between two looks at deliveries; 1 if the input is a terminal
_TIMEOUT_MS: Final = 30_000
_PATTERN: Final = bytes(range(ord("a"), ord("z") + 1))  # of generated values


class InputRecord(NamedTuple):
    """The value, key, headers and partition of a record to write."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to write.")]
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILES]",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Files to read. Default: standard input.",
    ),
]
WholeFiles = Annotated[
    bool, typer.Option("--whole-files", help="Write each file as one record. Default: each line.")
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", help="Split each line at this text into key, value."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")]
HeaderList = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of all records."),
]
JsonInput = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Each line is a JSON object with value, key, headers and partition, as `consume "
        "--json` prints it.",
    ),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Partition. Default: by key.")
]
Count = Annotated[
    int | None,
    typer.Option(min=1, help="Write this number of generated records instead of input."),
]
Size = Annotated[
    int, typer.Option(min=1, metavar="BYTES", help="Size of the values of generated records.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither a progress bar nor the number.")
]


def produce_command(
    files: Files = None,
    *,
    topic: Topic,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    whole_files: WholeFiles = False,
    key_delimiter: KeyDelimiter = None,
    key: Key = None,
    header: HeaderList = None,
    as_json: JsonInput = False,
    partition: Partition = None,
    count: Count = None,
    size: Size = 100,
    compression: Compression = None,
    quiet: Quiet = False,
) -> None:
    """Write each line of the input as a record.

    Records are written once and in order, and all in-sync replicas confirm each of them, as with
    acks=all.

    Example: echo 'k1:hello' | asyncconsumer produce -t orders -K : -b localhost:9092
    """
    settings = read_options(bootstrap_servers, None, properties, property_)
    options = {"delivery_timeout_ms": _TIMEOUT_MS, **producer_options(settings, compression)}
    common = InputRecord(
        None if key is None else key.encode(), None, _headers(header or ()), partition
    )
    if count is not None:
        records: Iterator[InputRecord] = _generated(count, size, common)
    elif whole_files:
        records = (common._replace(value=path.read_bytes()) for path in files or ())
    else:
        parse = _json_parser(common) if as_json else _line_parser(common, key_delimiter)
        records = itertools.starmap(parse, enumerate(_lines(files), 1))
    interactive = count is None and not files and sys.stdin.isatty()

    async def write() -> None:
        with show_progress(
            "write", enabled=count is not None and not quiet and sys.stderr.isatty()
        ) as bar:
            bar.expect(count or 0)
            async with Producer(**options) as producer:
                written = await _send(producer, topic, records, 1 if interactive else _BATCH, bar)
        if not quiet:
            text.print_message(f"% wrote {written} records to {topic}", "dim")

    run_until_stopped(write)


async def _send(
    producer: Producer[Any, Any],
    topic: str,
    records: Iterator[InputRecord],
    batch_size: int,
    bar: ProgressDisplay,
) -> int:
    """Send all records, and wait until they are written. Return their number.

    While a batch is written, the next one is read and sent.
    """
    written, before = 0, []
    while True:
        batch = await asyncio.to_thread(lambda: list(islice(records, batch_size)))
        deliveries = [
            producer.send_now(topic, *record) or await producer.send_bytes(topic, *record)
            for record in batch
        ]
        if batch_size == 1:
            before, deliveries = deliveries, []
        for delivery in before:
            await delivery
        written += len(before)
        bar.advance(len(before))
        if not batch:
            return written
        before = deliveries


def _generated(count: int, size: int, common: InputRecord) -> Iterator[InputRecord]:
    filler = _PATTERN * (size // len(_PATTERN) + 1)
    for number in range(count):
        value = b"record %d " % number
        yield common._replace(value=(value + filler)[:size])


def _lines(files: Sequence[Path] | None) -> Iterator[bytes]:
    if not files:
        yield from sys.stdin.buffer
        return
    for path in files:
        with path.open("rb") as file:
            yield from file


def _headers(texts: Iterable[str]) -> Headers:
    headers = []
    for each in texts:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"--header {each!r} must have the form NAME=VALUE.")
        headers.append((name, value.encode()))
    return tuple(headers)


def _line_parser(common: InputRecord, delimiter: str | None) -> Callable[[int, bytes], InputRecord]:
    between = None if not delimiter else delimiter.encode()

    def parse(number: int, line: bytes) -> InputRecord:
        del number
        data = line.removesuffix(b"\n")
        if between is not None and between in data:
            key, _, data = data.partition(between)
            return common._replace(key=key, value=data)
        return common._replace(value=data)

    return parse


def _json_parser(common: InputRecord) -> Callable[[int, bytes], InputRecord]:
    def parse(number: int, line: bytes) -> InputRecord:
        try:
            fields: dict[str, Any] = json_text.loads(line)
            headers = tuple((name, _bytes(value)) for name, value in fields.get("headers") or ())
            return InputRecord(
                common.key if fields.get("key") is None else _bytes(fields["key"]),
                _bytes(fields.get("value")),
                (*common.headers, *headers),
                fields.get("partition") if common.partition is None else common.partition,
            )
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(
                f"Line {number} of the input is not a JSON object with value, key, headers (a list "
                "of names and values) and partition."
            ) from None

    return parse


def _bytes(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json_text.dumps(value).encode()

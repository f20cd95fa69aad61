"""The command `asyncconsumer produce`."""

import asyncio
import json as json_text
import sys
from itertools import islice, starmap
from pathlib import Path
from random import Random
from typing import IO, Annotated, Any, Final

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.connect import connection_options, read_options
from asyncconsumer.cli.shared_options import Bootstrap, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.net.partition_writer import ProducerRecord
from asyncconsumer.net.record_writer import RecordWriter

_BATCH: Final = 1_000  # records for each request; fewer if the input is a terminal
_RETRY_SECONDS: Final = 10.0


Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to write.")]
File = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="File to read. Default: standard input.")
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", help="Split each line at this text into key, value."),
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the number.")]


def produce_command(
    file: File = None,
    *,
    topic: Topic,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    key_delimiter: KeyDelimiter = None,
    as_json: JsonInput = False,
    partition: Partition = None,
    count: Count = None,
    quiet: Quiet = False,
) -> None:
    """Write each line of the input as a record. All in-sync replicas confirm each record.

    Example: echo 'k1:hello' | asyncconsumer produce -t orders -K : -b localhost:9092
    """
    options = connection_options(read_options(bootstrap_servers, None, properties, property_))

    def parse(number: int, line: bytes) -> ProducerRecord:
        data = line.removesuffix(b"\n")
        if as_json:
            return _from_json(topic, data, number, partition)
        key: bytes | None = None
        if key_delimiter and key_delimiter.encode() in data:
            key, _, data = data.partition(key_delimiter.encode())
        return ProducerRecord(topic, key, data, (), partition)

    async def write() -> None:
        source = _open(file) if count is None else None
        lines = iter(source) if source else (b"record %d" % n for n in range(count or 0))
        size = 1 if source is not None and source.isatty() else _BATCH
        pending, written = starmap(parse, enumerate(lines, 1)), 0
        config = ConnectionConfig(**options)
        async with RecordWriter(config, randomness=Random()) as producer:  # noqa: S311 - for jitter
            while batch := await asyncio.to_thread(lambda: list(islice(pending, size))):
                await _send(producer, batch)
                written += len(batch)
        if not quiet:
            text.print_message(f"% wrote {written} records to {topic}", "dim")

    run_until_stopped(write)


async def _send(producer: RecordWriter, batch: list[ProducerRecord]) -> None:
    """Write all records. Failed ones are sent again for some seconds."""
    deadline = asyncio.get_running_loop().time() + _RETRY_SECONDS
    while batch:
        outcomes = await producer.send(batch)
        failed = [record for record in batch if isinstance(outcomes[record], ConsumerError)]
        for record in failed:
            error = outcomes[record]
            assert isinstance(error, ConsumerError)
            if not error.retriable or asyncio.get_running_loop().time() > deadline:
                raise error
        batch = failed
        if failed:
            await asyncio.sleep(0.1)


def _open(file: Path | None) -> IO[bytes]:
    if file is None:
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _from_json(topic: str, line: bytes, number: int, partition: int | None) -> ProducerRecord:
    try:
        fields: dict[str, Any] = json_text.loads(line)
        headers = tuple((name, _bytes(value)) for name, value in fields.get("headers") or ())
        chosen = partition if partition is not None else fields.get("partition")
        return ProducerRecord(
            topic, _bytes(fields.get("key")), _bytes(fields.get("value")), headers, chosen
        )
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f"Line {number} of the input is not a JSON object with value, key, headers (a list of "
            "names and values) and partition."
        ) from None


def _bytes(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json_text.dumps(value).encode()

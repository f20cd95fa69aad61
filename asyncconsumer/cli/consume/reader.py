"""The reading of `asyncconsumer consume` from Kafka, without a group or as a member of one."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from asyncconsumer.aio.scope import Scope
from asyncconsumer.cli.connect import connection_options, make_admin
from asyncconsumer.cli.consume.files import FileKind, RecordFile
from asyncconsumer.cli.consume.format import Format
from asyncconsumer.cli.consume.output import Output
from asyncconsumer.cli.consume.positions import parse_position, resolve
from asyncconsumer.cli.consume.selection import RecordFilter
from asyncconsumer.cli.consume.values import ValueDecoder, ValueFormat, open_decoder
from asyncconsumer.cli.progress import ProgressDisplay, show_progress, wants_bar
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.errors import ConfigError, ConsumerError, UnknownTopicOrPartition
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition

_RECORDS_PER_WRITE: Final = 1_000


class Selection(NamedTuple):
    """The topics and partitions to read, and the positions at which to start and stop."""

    topics: Sequence[str]
    partitions: Sequence[int] | None
    start: str | None
    until: str | None


class OutputOptions(NamedTuple):
    """The format of the output, and the file to which it is written."""

    template: str
    json: bool
    arrow: Path | None
    parquet: Path | None
    value_format: ValueFormat | None
    registry: str | None
    quiet: bool

    @property
    def file(self) -> tuple[Path, FileKind] | None:
        """The file to write, or None for standard output."""
        if self.arrow is not None and self.parquet is not None:
            raise ConfigError("Set only one of --arrow and --parquet.")
        if self.arrow is not None:
            return self.arrow, "arrow"
        return None if self.parquet is None else (self.parquet, "parquet")

    @property
    def render(self) -> Callable[[Sequence[decoding.Record]], bytes]:
        """The function that formats records for standard output."""
        return renderer(self.template, json=self.json, parsed=self.value_format is not None)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `asyncconsumer consume` on Kafka.

    The options say what to read, which records to print, in which format, and when to stop.
    """

    selection: Selection
    filter: RecordFilter
    output: OutputOptions
    max_messages: int | None
    timeout_ms: int | None


Put: TypeAlias = Callable[[Sequence[decoding.Record]], Awaitable[OSError | None]]
"""A function that prints or stores records."""


class _RecordPrinter:
    """A printer of the records of all partitions, with filters, a limit and an idle timeout."""

    def __init__(self, options: ReadOptions, put: Put, decoder: ValueDecoder | None) -> None:
        self._options = options
        self._put = put
        self._decoder = decoder
        self._remaining = options.max_messages
        self._idle = asyncio.timeout(None)

    @property
    def idle(self) -> asyncio.Timeout:
        """The timeout that expires if no record arrives within --timeout-ms."""
        return self._idle

    def restart_timeout(self) -> None:
        """Restart the timeout `idle`, because a record has arrived."""
        if self._options.timeout_ms is not None:
            now = asyncio.get_running_loop().time()
            self._idle.reschedule(now + self._options.timeout_ms / 1000)

    async def print_records(self, records: Sequence[decoding.Record]) -> bool:
        """Print the records that pass the filters. Return False if printing must stop.

        It stops at the limit of records, or if the reader of the output has closed the pipe.
        """
        self.restart_timeout()
        selected = self._options.filter.by_key(records)
        if self._decoder is not None:
            selected = await self._decoder.decode(selected)
        selected = self._options.filter.by_value(selected)
        selected = selected[: self._remaining]
        if self._remaining is not None:
            self._remaining -= len(selected)
        if selected:
            error = await self._put(selected)
            if isinstance(error, BrokenPipeError):
                return False  # the reader of the output has closed the pipe
            if error is not None:
                raise error
        return self._remaining != 0


async def read(options: dict[str, Any], reading: ReadOptions, group: str | None) -> None:
    """Print records until a limit is reached or the task is cancelled.

    With `group`, join that group.
    """
    connection_options(options)  # raises without an address
    if not reading.selection.topics:
        raise ConfigError("No topic is named. Name one, as in `consume orders`.")
    output = reading.output
    async with _open_output(output) as put, open_decoder(*output[4:6]) as decoder:
        printer = _RecordPrinter(reading, put, decoder)
        bar = wants_bar(
            bounded=reading.selection.until is not None,
            to_file=output.file is not None,
            quiet=output.quiet,
        )
        try:
            async with printer.idle:
                printer.restart_timeout()
                if group is None:
                    with show_progress("read", enabled=bar) as progress:
                        await _read_partitions(options, reading.selection, printer, progress)
                else:
                    member = options | {"group_id": group, "progress": bar}
                    await _read_as_member(member, reading.selection, printer)
        except TimeoutError:
            if not printer.idle.expired():
                raise


@asynccontextmanager
async def _open_output(options: OutputOptions) -> AsyncIterator[Put]:
    """Return an async context manager that opens the file or standard output.

    It yields a function that writes records.
    """
    if (file := options.file) is not None:
        async with RecordFile(*file) as record_file:
            yield record_file.put
        return
    render = options.render
    async with Output() as output:
        yield lambda records: output.put(render(records))


async def _read_partitions(
    options: dict[str, Any],
    selection: Selection,
    printer: _RecordPrinter,
    progress: ProgressDisplay,
) -> None:
    start = parse_position("--from", selection.start or "earliest")
    stop = None if selection.until is None else parse_position("--until", selection.until)
    partitions = await _select_partitions(options, selection)
    settings = connection_options(options)
    async with SimpleConsumer(**settings, auto_offset_reset="earliest") as simple:

        async def read_one(tp: TopicPartition) -> bool:
            begin = await resolve(simple, tp, start)
            end = None if stop is None else await resolve(simple, tp, stop)
            if end is not None and begin >= end:
                return True
            progress.expect(0 if end is None else end - begin)
            stream, position = simple.read(*tp, begin, end=end), begin
            async for records in stream.chunks():
                while block := list(islice(records, _RECORDS_PER_WRITE)):
                    if not await printer.print_records(block):
                        return False
                    progress.advance(block[-1].offset + 1 - position)
                    position = block[-1].offset + 1
            return True

        await _run_all(read_one, partitions)


async def _run_all(
    read_one: Callable[[TopicPartition], Awaitable[bool]], partitions: Iterable[TopicPartition]
) -> None:
    """Call `read_one` for all partitions concurrently.

    Stop at an error, or when a call returns False.
    """

    async def guarded(tp: TopicPartition) -> ConsumerError | OSError | bool:
        try:
            return await read_one(tp)
        except (ConsumerError, OSError) as error:
            return error

    async with Scope("read partitions") as scope:
        pending = {scope.start(guarded(tp), f"read {tp}") for tp in partitions}
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for result in [task.result() for task in done]:
                if isinstance(result, Exception):
                    raise result
                if not result:
                    return


async def _select_partitions(options: dict[str, Any], reading: Selection) -> list[TopicPartition]:
    async with make_admin(options) as admin:
        names = {topic for topic in reading.topics if not topic.startswith("^")}
        if patterns := [topic for topic in reading.topics if topic.startswith("^")]:
            existing = await admin.topics()
            matching = {name for name in existing if any(re.match(p, name) for p in patterns)}
            if not matching:
                raise ConfigError(f"No topic matches {' or '.join(patterns)}.")
            names |= matching
        described = await admin.describe_topics(names)
    numbers = reading.partitions
    selected = [
        TopicPartition(topic.name, row.partition)
        for topic in described
        for row in topic.partitions
        if numbers is None or row.partition in numbers
    ]
    if missing := set(numbers or ()) - {tp.partition for tp in selected}:
        raise UnknownTopicOrPartition(f"partition {min(missing)} of {' and '.join(sorted(names))}")
    return selected


async def _read_as_member(
    options: dict[str, Any], reading: Selection, printer: _RecordPrinter
) -> None:
    if reading.start not in (None, "earliest", "latest"):
        raise ConfigError("--from is earliest or latest in a group. Use `groups reset` for others.")
    if reading.partitions is not None or reading.until not in (None, "end"):
        raise ConfigError("--partition and --until with a position do not work in a group.")
    settings = {name: value for name, value in options.items() if value is not None}
    if reading.start is not None:
        settings["auto_offset_reset"] = reading.start
    if reading.until == "end":
        settings["stop_at"] = "end"
    patterns = [topic for topic in reading.topics if topic.startswith("^")]
    if patterns:
        settings["pattern"] = "|".join(f"(?:{pattern})" for pattern in patterns)
    topics = [] if patterns else reading.topics
    async with Consumer(*topics, **settings) as consumer:
        records: AsyncIterator[Any] = aiter(consumer)
        async for record in records:
            if not await printer.print_records([record]):
                tp = TopicPartition(record.topic, record.partition)
                await consumer.commit({tp: record.offset + 1})
                return


def renderer(
    template: str, *, json: bool, parsed: bool = False
) -> Callable[[Sequence[decoding.Record]], bytes]:
    """Return a function that formats records as JSON, or by a template.

    With `parsed`, the values are JSON text already, and are inserted as JSON.
    """
    return partial(json_lines, parsed=parsed) if json else Format(template).render


def json_lines(records: Sequence[decoding.Record], *, parsed: bool = False) -> bytes:
    """Return one line of JSON for each record. Bytes that are not UTF-8 become base64.

    With `parsed`, the values are JSON text already, and are inserted as JSON.
    """
    lines = []
    for record in records:
        fields: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        _add(fields, "key", record.key)
        if parsed and record.value is not None:
            fields["value"] = json.loads(record.value)
        else:
            _add(fields, "value", record.value)
        fields["headers"] = [[name, _text(value)] for name, value in record.headers]
        lines.append(json.dumps(fields, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def _add(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = _text(data)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()

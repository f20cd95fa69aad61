"""The group member of `asyncconsumer consume`, which prints its records."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.cli import text
from asyncconsumer.cli.consume.output import Output
from asyncconsumer.cli.consume.selection import RecordFilter
from asyncconsumer.cli.signals import log_zookeeper_retries
from asyncconsumer.config import ClassicConfig
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.errors import ConsumerError, ConsumerRebalanceFailed, CorruptRecords
from asyncconsumer.group.zookeeper.assignors import partitions_of_consumer
from asyncconsumer.group.zookeeper.filters import TopicFilter
from asyncconsumer.records import decoding
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.streams.messages import MessageStream

_RECORDS_PER_WRITE: Final = 10_000
_GRACE: Final = 5.0  # seconds for the last commit

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The topics, the output format and the limits of `asyncconsumer consume`.

    `render` formats records of one partition.
    """

    topics: Sequence[str] | TopicFilter
    streams: int
    render: Callable[[Sequence[decoding.Record]], bytes]
    filter: RecordFilter
    max_messages: int | None
    timeout_ms: int | None
    _: KW_ONLY
    quiet: bool


async def consume(config: ClassicConfig, options: ConsumeOptions) -> None:
    """Print records until a limit is reached or the task is cancelled. Then commit and leave."""
    printer = Printer(options)
    log_zookeeper_retries(enabled=False)
    async with ConsumerConnector(
        config, listener=_ProgressListener(printer, quiet=options.quiet)
    ) as connector:
        log_zookeeper_retries(enabled=True)
        streams = await _streams(connector, options)
        try:
            await printer.run(streams)
        except asyncio.CancelledError:
            if not options.quiet:
                text.print_message(
                    "% committing and leaving the group; another signal stops at once", "dim"
                )
            raise
        finally:
            if config.auto_commit_enable:
                await _commit(connector, printer.unfinished(streams))


async def _streams(connector: ConsumerConnector, options: ConsumeOptions) -> list[Stream]:
    topics, count = options.topics, options.streams
    streams: list[MessageStream[bytes, bytes]]
    if isinstance(topics, TopicFilter):
        streams = await connector.create_message_streams_by_filter(topics, count)
    else:
        by_topic: dict[str, list[MessageStream[bytes, bytes]]]
        by_topic = await connector.create_message_streams(dict.fromkeys(topics, count))
        streams = [stream for of_topic in by_topic.values() for stream in of_topic]
    return [stream.records for stream in streams]


async def _commit(connector: ConsumerConnector, offsets: Mapping[TopicPartition, int]) -> None:
    try:
        async with asyncio.timeout(_GRACE):
            await connector.commit_offsets(offsets)
    except (ConsumerError, TimeoutError) as error:
        _log.warning(
            "commit of the last printed records failed, so they will be consumed again: %r", error
        )


class Printer:
    """A printer of the records of streams, which remembers the offset after the last printed one.

    A stream acknowledges a chunk of records only when the next chunk is requested. So it does not
    acknowledge the last chunk, whose printed records are committed by the remembered offsets.
    """

    def __init__(self, options: ConsumeOptions) -> None:
        self._render = options.render
        self._filter = options.filter
        self._remaining = options.max_messages
        self._timeout = None if options.timeout_ms is None else options.timeout_ms / 1000
        self._printed: dict[TopicPartition, int] = {}  # the offset after the last printed record
        self._writing = 0
        self._idle = asyncio.timeout(None)

    async def run(self, streams: Sequence[Stream]) -> None:
        """Print records until a limit is reached or a stream ends.

        Then finish the queued writes.
        """
        try:
            async with self._idle, Output() as output, Scope("printer") as scope:
                self._reschedule_timeout()
                tasks = [scope.start(self._read(stream, output), "read") for stream in streams]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            if not self._idle.expired():
                raise
            return
        for error in (task.result() for task in done):
            if isinstance(error, BrokenPipeError):
                return  # the reader of the output has closed the pipe
            if error is not None:
                raise error

    def unfinished(self, streams: Sequence[Stream]) -> dict[TopicPartition, int]:
        """Return the printed offsets that the streams have not acknowledged yet, by partition."""
        finished = {tp: offset for stream in streams for tp, offset in stream.finished().items()}
        return {tp: offset for tp, offset in self._printed.items() if offset > finished.get(tp, -1)}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the printed offsets of partitions that this member no longer owns."""
        for tp in partitions:
            self._printed.pop(tp, None)

    async def _read(self, stream: Stream, output: Output) -> ConsumerError | OSError | None:
        """Print the records of a stream. Return the error that ended the stream, or None."""
        while True:
            try:
                async for records in stream.chunks():
                    await self._print(records, output)
                    if self._remaining == 0:
                        return None
            except ConsumerRebalanceFailed as failure:
                _log.warning("%s", failure)
                continue  # the member retries, and the stream continues
            except (ConsumerError, OSError) as error:
                return error
            return None

    async def _print(self, records: decoding.Records, output: Output) -> None:
        tp = TopicPartition(records.topic, records.partition)
        while block := self._take(records):
            end = block[-1].offset + 1
            selected = self._filter.select(block)
            if self._remaining is not None:
                self._remaining -= len(selected)

            def written(done: asyncio.Future[OSError | None], end: int = end) -> None:
                self._writing -= 1
                self._reschedule_timeout()
                if done.result() is None:
                    self._printed[tp] = end

            done = output.put(self._render(selected) if selected else b"")
            self._writing += 1
            self._reschedule_timeout()
            done.add_done_callback(written)
            await asyncio.wait({done})
            if (error := done.result()) is not None:
                raise error

    def _take(self, records: decoding.Records) -> list[decoding.Record]:
        """Return the next records to print, up to a limit or the first corrupt record.

        If the first of them is corrupt, raise CorruptRecords.
        """
        limit = _RECORDS_PER_WRITE
        if self._remaining is not None:
            limit = min(limit, self._remaining)
        block: list[decoding.Record] = []
        try:
            block.extend(islice(records, limit))
        except CorruptRecords:
            if not block:
                raise
        return block

    def _reschedule_timeout(self) -> None:
        """Restart the timeout that ends the command without records.

        Disable it while a write waits for a slow reader of the output.
        """
        if self._timeout is not None and not self._idle.expired():
            now = asyncio.get_running_loop().time()
            self._idle.reschedule(None if self._writing else now + self._timeout)


class _ProgressListener(RebalanceListener):
    """A rebalance listener that prints the assignment to standard error."""

    def __init__(self, printer: Printer, *, quiet: bool) -> None:
        self._printer = printer
        self._quiet = quiet

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        self._printer.forget(partitions)
        self._print("revoked", partitions)

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        self._print(f"assigned to {consumer_id}:", partitions_of_consumer(consumer_id, owners))

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._printer.forget(partitions)
        self._print("lost", partitions)

    def _print(self, event: str, partitions: Collection[TopicPartition]) -> None:
        if not self._quiet:
            names = text.first_of(map(str, sorted(partitions)), 10)
            text.print_message(f"% {event} {names or 'no partitions'}", "dim")

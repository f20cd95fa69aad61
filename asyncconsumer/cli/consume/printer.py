"""The group member of `asyncconsumer consume`, which prints its records."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.cli import text
from asyncconsumer.cli.consume.format import Format
from asyncconsumer.cli.consume.output import Output
from asyncconsumer.cli.signals import quiet_zookeeper
from asyncconsumer.config import ClassicConfig
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.errors import ConsumerError, ConsumerRebalanceFailed, CorruptRecords
from asyncconsumer.group.zookeeper.assignors import part_of
from asyncconsumer.group.zookeeper.filters import TopicFilter
from asyncconsumer.records import decoding
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.streams.messages import MessageStream

_AT_ONCE: Final = 10_000  # records that are printed in one write
_GRACE: Final = 5.0  # seconds for the last commit

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The subscription, the output format and the limits of the command."""

    topics: Sequence[str] | TopicFilter
    streams: int
    format: Format
    max_messages: int | None
    timeout_ms: int | None
    quiet: bool


async def consume(config: ClassicConfig, wanted: ConsumeOptions) -> None:
    """Print until a limit is reached or the task is cancelled, then commit and leave."""
    printer = Printer(wanted)
    quiet_zookeeper(quiet=True)
    async with ConsumerConnector(
        config, listener=_ProgressListener(printer, quiet=wanted.quiet)
    ) as connector:
        quiet_zookeeper(quiet=False)
        streams = await _streams(connector, wanted)
        try:
            await printer.run(streams)
        except asyncio.CancelledError:
            if not wanted.quiet:
                text.say("% stopping in good order; another signal stops it at once", "dim")
            raise
        finally:
            if config.auto_commit_enable:
                await _commit(connector, printer.unfinished(streams))


async def _streams(connector: ConsumerConnector, wanted: ConsumeOptions) -> list[Stream]:
    topics, count = wanted.topics, wanted.streams
    found: list[MessageStream[bytes, bytes]]
    if isinstance(topics, TopicFilter):
        found = await connector.create_message_streams_by_filter(topics, count)
    else:
        by_topic: dict[str, list[MessageStream[bytes, bytes]]]
        by_topic = await connector.create_message_streams(dict.fromkeys(topics, count))
        found = [stream for of_topic in by_topic.values() for stream in of_topic]
    return [stream.records for stream in found]


async def _commit(connector: ConsumerConnector, offsets: Mapping[TopicPartition, int]) -> None:
    try:
        async with asyncio.timeout(_GRACE):
            await connector.commit_offsets(offsets)
    except (ConsumerError, TimeoutError) as error:
        _log.warning("what was printed last was not committed, and will come again: %r", error)


class Printer:
    """A printer of the records of streams, which keeps the offsets that were printed.

    A stream acknowledges a chunk when the next one is requested. The last chunk of a stream is
    never acknowledged that way, so the printer keeps its printed offset.
    """

    def __init__(self, wanted: ConsumeOptions) -> None:
        self._format = wanted.format
        self._left = wanted.max_messages
        self._timeout = None if wanted.timeout_ms is None else wanted.timeout_ms / 1000
        self._printed: dict[TopicPartition, int] = {}  # the offset after the last printed record
        self._writing = 0
        self._idle = asyncio.timeout(None)

    async def run(self, streams: Sequence[Stream]) -> None:
        """Print until a limit is reached or a stream ends. Queued output is still written."""
        try:
            async with self._idle, Output() as output, Scope("printer") as scope:
                self._look_at_the_clock()
                reading = [scope.start(self._read(one, output), "read") for one in streams]
                done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            if not self._idle.expired():
                raise
            return
        for error in (task.result() for task in done):
            if isinstance(error, BrokenPipeError):
                return  # the reader of the output is gone
            if error is not None:
                raise error

    def unfinished(self, streams: Sequence[Stream]) -> dict[TopicPartition, int]:
        """Return the offsets that were printed and that the streams have not acknowledged."""
        finished = {one: offset for each in streams for one, offset in each.finished().items()}
        return {one: at for one, at in self._printed.items() if at > finished.get(one, -1)}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the printed offsets of partitions that this member no longer owns."""
        for one in partitions:
            self._printed.pop(one, None)

    async def _read(self, stream: Stream, output: Output) -> ConsumerError | OSError | None:
        """Print a stream; why it ended, if not because it is enough."""
        while True:
            try:
                async for records in stream.chunks():
                    await self._print(records, output)
                    if self._left == 0:
                        return None
            except ConsumerRebalanceFailed as failure:
                _log.warning("%s", failure)
                continue  # as it says, it goes on
            except (ConsumerError, OSError) as error:
                return error
            return None

    async def _print(self, records: decoding.Records, output: Output) -> None:
        partition = TopicPartition(records.topic, records.partition)
        while block := self._take(records):
            behind = block[-1].offset + 1

            def written(done: asyncio.Future[OSError | None], behind: int = behind) -> None:
                self._writing -= 1
                self._look_at_the_clock()
                if done.result() is None:
                    self._printed[partition] = behind

            done = output.put(self._format.render(block))
            self._writing += 1
            self._look_at_the_clock()
            done.add_done_callback(written)
            await asyncio.wait({done})
            if (error := done.result()) is not None:
                raise error

    def _take(self, records: decoding.Records) -> list[decoding.Record]:
        """Some of them; all that are sound come before the damage is raised."""
        most = _AT_ONCE if self._left is None else min(_AT_ONCE, self._left)
        block: list[decoding.Record] = []
        try:
            block.extend(islice(records, most))
        except CorruptRecords:
            if not block:
                raise
        if self._left is not None:
            self._left -= len(block)
        return block

    def _look_at_the_clock(self) -> None:
        """Time runs while nothing comes, not while somebody is slow to read."""
        if self._timeout is not None and not self._idle.expired():
            now = asyncio.get_running_loop().time()
            self._idle.reschedule(None if self._writing else now + self._timeout)


class _ProgressListener(RebalanceListener):
    """A listener that prints the assignment to standard error."""

    def __init__(self, printer: Printer, *, quiet: bool) -> None:
        self._printer = printer
        self._quiet = quiet

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        self._printer.forget(partitions)
        self._say("let go of", partitions)

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        self._say(f"{consumer_id} reads", part_of(consumer_id, owners))

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._printer.forget(partitions)
        self._say("lost", partitions)

    def _say(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if self._quiet:
            return
        some = ", ".join(str(one) for one in sorted(partitions)[:10])
        more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
        text.say(f"% {what} {some or 'nothing'}{more}", "dim")

"""The Kafka client of one Spark process: looks up offsets and reads ranges."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from asyncconsumer.aio.concurrency import each
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import AccessDenied, ConsumerError, UnknownTopicOrPartition
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.offset_lookup import list_offsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records.pauses import open_next
from asyncconsumer.spark.options.kafka import configs_of
from asyncconsumer.spark.options.selection import Assigned, Matching, Selection
from asyncconsumer.types import OffsetRange, TopicPartition

T = TypeVar("T")

_NOT_MATCHED: Final = (UnknownTopicOrPartition, AccessDenied)  # topics that a pattern leaves out

_PATIENCE_MS: Final = 60_000
_BYTES_A_RECORD: Final = 128  # a guess; larger ones take more fetches, each sent ahead
_LEAST_BYTES: Final = 2**18
_SAMPLE, _SAMPLE_SECONDS = 100, 1.0  # to estimate the size of records
_TOPIC_PATIENCE_MS: Final = 2_000  # then a topic that brokers do not know counts as deleted
_COMMIT_PATIENCE_MS: Final = 2_000  # the query waits meanwhile, and the next commit supersedes it


class Client:
    """Offsets and records of one cluster, over connections that stay open."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        connection, self.fetch_config = configs_of(kafka)
        self._session = KafkaClient(connection, patience_ms=_PATIENCE_MS)
        self._lane = self._session.brokers.new_lane()
        self._closing = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the client in a task of its own, because it outlives the calling task."""
        opened = asyncio.Event()

        async def live() -> None:
            async with self._session:
                opened.set()
                await self._closing.wait()

        self._living = start_task(asyncio.get_running_loop(), live(), "kafka client")
        await opened.wait()

    async def close(self) -> None:
        """Close all connections."""
        self._closing.set()
        if self._living is not None:
            await self._living

    async def partitions(self, selection: Selection) -> frozenset[TopicPartition]:
        """Return the selected partitions that exist now."""
        if isinstance(selection, Matching):
            names = await self._patiently(self._session.cluster.topic_names)
            topics = list(selection.of(names))
        elif isinstance(selection, Assigned):
            topics = sorted({one.topic for one in selection.partitions})
        else:
            topics = list(selection.topics)
        found = await self._partitions_of(topics, may_lack=isinstance(selection, Matching))
        return found & selection.partitions if isinstance(selection, Assigned) else found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Return the ids of topics in the last metadata. Brokers before Kafka 2.8 have none."""
        known = self._session.cluster.metadata.topics
        found = {name: known[name].topic_id for name in topics if name in known}
        return {name: topic_id for name, topic_id in found.items() if topic_id is not None}

    async def recreated(self, planned: Mapping[str, UUID]) -> set[str]:
        """Return the topics whose ids differ from those of a plan.

        Metadata is refreshed for topics whose cached id differs. A process lives longer than a
        query, so its cache may hold a topic that was deleted since.
        """
        if doubtful := [
            name for name in planned if self.topic_ids([name]) != {name: planned[name]}
        ]:
            await self._partitions_of(doubtful, may_lack=True)
        now = self.topic_ids(doubtful)
        return {name for name, topic_id in now.items() if topic_id != planned[name]}

    async def _partitions_of(
        self, topics: list[str], *, may_lack: bool
    ) -> frozenset[TopicPartition]:
        async def ask() -> frozenset[TopicPartition]:
            metadata = await self._session.cluster.refresh(topics)
            found: set[TopicPartition] = set()
            for name in topics:
                topic = metadata.topics.get(name)
                error = UnknownTopicOrPartition(f"topic {name!r}") if topic is None else topic.error
                if error is not None and not (may_lack and isinstance(error, _NOT_MATCHED)):
                    raise error
                if topic is not None and error is None:
                    found.update(TopicPartition(name, number) for number in topic.partitions)
            return frozenset(found)

        return await self._patiently(ask) if topics else frozenset()

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        patience, with_topic = (
            RetryDeadline(milliseconds, self._session.randomness)
            for milliseconds in (_PATIENCE_MS, _TOPIC_PATIENCE_MS)
        )
        while True:
            try:
                return await ask()
            except UnknownTopicOrPartition as error:  # most likely it was deleted
                await with_topic.bear(error)
            except ConsumerError as error:
                await patience.bear(error)

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return await self.list_offsets(dict.fromkeys(partitions, EARLIEST))

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition; the last stable offset if `committed_only`."""
        return await self.list_offsets(dict.fromkeys(partitions, LATEST))

    async def list_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each time, or -1. Times may be EARLIEST or LATEST."""
        committed = self.fetch_config.committed_only
        found = await list_offsets(self._session.leaders, asked, committed_only=committed)
        return {one: listed.offset for one, listed in found.items()}

    def fetch_bytes(self, wanted: OffsetRange) -> int:
        """Return the bytes to fetch at once. Brokers also send records after the range."""
        enough = max((wanted.end - wanted.start) * _BYTES_A_RECORD, _LEAST_BYTES)
        return min(enough, self.fetch_config.max_partition_fetch_bytes)

    def reader(self, wanted: OffsetRange, *, alone: bool = True) -> PartitionReader:
        """Return a reader of a range. All readers use the same connection to each broker.

        Set `alone` only if no other task uses the event loop meanwhile.
        """
        return PartitionReader(
            TopicPartition(wanted.topic, wanted.partition),
            wanted.start,
            self._session.leaders,
            replace(self.fetch_config, max_partition_fetch_bytes=self.fetch_bytes(wanted)),
            policy=ReadPolicy(end_was_there=True, alone=alone, bodies=self._session.bodies),
            end=wanted.end,
            lane=self._lane,
        )

    async def record_bytes(self, ranges: Iterable[OffsetRange]) -> dict[str, int]:
        """Estimate the record size of each topic from the first records of these ranges.

        The sizes only improve planning. A topic that fails or times out is left out.
        """
        found: dict[str, int] = {}

        async def ask(wanted: OffsetRange) -> None:
            sample = wanted._replace(end=min(wanted.end, wanted.start + _SAMPLE))
            reader = self.reader(sample, alone=False)
            with contextlib.suppress(ConsumerError, TimeoutError):
                async with asyncio.timeout(_SAMPLE_SECONDS):
                    if (records := await reader.next()) is not None:
                        await open_next(records)
                sizes = [len(one.value or b"") + len(one.key or b"") for one in records or ()]
                found[wanted.topic] = sum(sizes) // max(len(sizes), 1)

        await each(ranges, ask)
        return found

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group without joining it. A group with live members refuses the commit."""
        # imported here, because only drivers with `commitToGroup` need it
        from asyncconsumer.net.coordinator import Coordinator
        from asyncconsumer.offsets.kafka import KafkaOffsets

        coordinator = Coordinator(group, self._session.brokers, self._session.cluster)
        store = KafkaOffsets(
            coordinator, patience_ms=_COMMIT_PATIENCE_MS, randomness=self._session.randomness
        )
        async with asyncio.timeout(_COMMIT_PATIENCE_MS / 1000):  # a broker may not respond at all
            await store.commit(offsets)

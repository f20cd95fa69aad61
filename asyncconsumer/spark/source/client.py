"""The Kafka client of a Spark Python process, for offset lookups and reads of ranges."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.aio.own_task import OwnTask
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.errors import AccessDenied, ConsumerError, UnknownTopicOrPartition
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.list_offsets import list_offsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records.pauses import open_next
from asyncconsumer.spark.options.kafka import api_timeout_ms, make_configs
from asyncconsumer.spark.options.selection import Assigned, Matching, TopicSelection
from asyncconsumer.types import OffsetRange, TopicPartition

T = TypeVar("T")

_NOT_MATCHED: Final = (UnknownTopicOrPartition, AccessDenied)  # topics that a pattern leaves out

_RECORD_BYTES: Final = 128  # an assumption; larger records only need more fetches
_MIN_FETCH_BYTES: Final = 2**18
_SAMPLE_RECORDS, _SAMPLE_SECONDS = 100, 1.0  # to estimate the size of records
_TOPIC_TIMEOUT_MS: Final = 2_000  # then an unknown topic counts as deleted
_COMMIT_TIMEOUT_MS: Final = 2_000  # short, because the query waits and the next commit replaces it


class Client:
    """A client that looks up offsets and reads records of one cluster.

    Its connections stay open between calls.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        connection, self.fetch_config = make_configs(kafka)
        self._timeout_ms = api_timeout_ms(kafka)
        self._session = KafkaClient(connection, patience_ms=self._timeout_ms)
        self._slot = self._session.brokers.new_slot()
        self._task = OwnTask(self._session, "kafka client")

    async def open(self) -> None:
        """Open the client, which stays open until `close` is called."""
        await self._task.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._task.close()

    async def partitions(
        self, selection: TopicSelection, *, skip_missing: bool = False
    ) -> frozenset[TopicPartition]:
        """Return all partitions that `selection` selects and that exist now.

        Raise UnknownTopicOrPartition for a named topic that does not exist, unless `skip_missing`.
        """
        skip_missing = skip_missing or isinstance(selection, Matching)
        if isinstance(selection, Matching):
            names = await self._retry(self._session.cluster.topic_names)
            topics = list(selection.filter(names))
        elif isinstance(selection, Assigned):
            topics = sorted({tp.topic for tp in selection.partitions})
        else:
            topics = list(selection.topics)
        existing = await self._partitions_of(topics, skip_missing=skip_missing)
        return existing & selection.partitions if isinstance(selection, Assigned) else existing

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Return the ids of topics in the last metadata.

        A topic has no entry if the metadata does not have it, or if the broker is older than 2.8.
        """
        known = self._session.cluster.metadata.topics
        ids = {name: known[name].topic_id for name in topics if name in known}
        return {name: topic_id for name, topic_id in ids.items() if topic_id is not None}

    async def recreated(self, planned: Mapping[str, UUID]) -> set[str]:
        """Return the topics whose current ids differ from those in `planned` (topic to id).

        Metadata is refreshed for topics whose cached id differs. The process lives longer than a
        query, so its cache may hold the id of a topic that was deleted since.
        """
        if stale := [name for name in planned if self.topic_ids([name]) != {name: planned[name]}]:
            await self._partitions_of(stale, skip_missing=True)
        current = self.topic_ids(stale)
        return {name for name, topic_id in current.items() if topic_id != planned[name]}

    async def _partitions_of(
        self, topics: list[str], *, skip_missing: bool
    ) -> frozenset[TopicPartition]:
        async def ask() -> frozenset[TopicPartition]:
            metadata = await self._session.cluster.refresh(topics)
            partitions: set[TopicPartition] = set()
            for name in topics:
                topic = metadata.topics.get(name)
                error = UnknownTopicOrPartition(f"topic {name!r}") if topic is None else topic.error
                if error is not None and not (skip_missing and isinstance(error, _NOT_MATCHED)):
                    raise error
                if topic is not None and error is None:
                    partitions.update(TopicPartition(name, number) for number in topic.partitions)
            return frozenset(partitions)

        return await self._retry(ask) if topics else frozenset()

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Call `ask` until it succeeds, and return its result.

        After a time limit raise the last error. The limit is shorter for unknown topics, because
        they were probably deleted.
        """
        deadline, topic_deadline = (
            RetryDeadline(milliseconds, self._session.randomness)
            for milliseconds in (self._timeout_ms, min(self._timeout_ms, _TOPIC_TIMEOUT_MS))
        )
        while True:
            try:
                return await ask()
            except UnknownTopicOrPartition as error:
                await topic_deadline.wait_or_raise(error)
            except ConsumerError as error:
                await deadline.wait_or_raise(error)

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return await self.list_offsets(dict.fromkeys(partitions, EARLIEST))

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition.

        With `isolation_level` read_committed it is the last stable offset.
        """
        return await self.list_offsets(dict.fromkeys(partitions, LATEST))

    async def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after its timestamp, or -1 if there is none.

        `times` maps partitions to timestamps, EARLIEST or LATEST.
        """
        committed = self.fetch_config.committed_only
        listed = await list_offsets(self._session.leaders, times, committed_only=committed)
        return {tp: listed_offset.offset for tp, listed_offset in listed.items()}

    def fetch_bytes(self, offsets: OffsetRange) -> int:
        """Return the byte limit for a fetch of the range `offsets`.

        The limit is an estimate of the range's size. Without it, brokers would also send records
        after the range.
        """
        estimate = max((offsets.end - offsets.start) * _RECORD_BYTES, _MIN_FETCH_BYTES)
        return min(estimate, self.fetch_config.max_partition_fetch_bytes)

    def reader(self, offsets: OffsetRange, *, alone: bool = True) -> PartitionReader:
        """Return a reader of the range `offsets`. All readers share one connection to each broker.

        Pass `alone=False` if other tasks use the event loop while the reader is used.
        """
        return PartitionReader(
            TopicPartition(offsets.topic, offsets.partition),
            offsets.start,
            self._session.leaders,
            replace(self.fetch_config, max_partition_fetch_bytes=self.fetch_bytes(offsets)),
            policy=ReadPolicy(end_existed=True, alone=alone, bodies=self._session.bodies),
            end=offsets.end,
            slot=self._slot,
        )

    async def record_bytes(self, ranges: Iterable[OffsetRange]) -> dict[str, int]:
        """Return each topic's record size in bytes, estimated from the first records of a range.

        The estimate is used only to divide the ranges into tasks. If reading a topic fails or takes
        too long, the topic has no entry.
        """
        record_bytes: dict[str, int] = {}

        async def read_sample(offsets: OffsetRange) -> None:
            sample = offsets._replace(end=min(offsets.end, offsets.start + _SAMPLE_RECORDS))
            reader = self.reader(sample, alone=False)
            with contextlib.suppress(ConsumerError, TimeoutError):
                async with asyncio.timeout(_SAMPLE_SECONDS):
                    if (records := await reader.next()) is not None:
                        await open_next(records)
                sizes = [len(r.value or b"") + len(r.key or b"") for r in records or ()]
                record_bytes[offsets.topic] = sum(sizes) // max(len(sizes), 1)

        await for_each(ranges, read_sample)
        return record_bytes

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` for the group `group` without joining it.

        Raise an error if the group has live members.
        """
        # imported here, because only drivers with `commitToGroup` need it
        from asyncconsumer.net.coordinator import Coordinator
        from asyncconsumer.offsets.kafka import KafkaOffsets

        coordinator = Coordinator(group, self._session.brokers, self._session.cluster)
        store = KafkaOffsets(
            coordinator, patience_ms=_COMMIT_TIMEOUT_MS, randomness=self._session.randomness
        )
        async with asyncio.timeout(_COMMIT_TIMEOUT_MS / 1000):  # a broker may not respond at all
            await store.commit(offsets)

"""A cluster as one process of Spark's sees it: asked for offsets, read by ranges."""

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

_NOT_MATCHED: Final = (UnknownTopicOrPartition, AccessDenied)  # what a pattern leaves out

_PATIENCE_MS: Final = 60_000
_BYTES_A_RECORD: Final = 128  # a guess; larger ones take more than one fetch, each sent ahead
_LEAST_BYTES: Final = 2**18
_SAMPLE, _SAMPLE_SECONDS = 100, 1.0  # records that tell of all the others
_TOPIC_PATIENCE_MS: Final = 2_000  # then a topic that brokers do not know is believed gone
_COMMIT_PATIENCE_MS: Final = 2_000  # the query waits meanwhile, and the next commit tells the same


class Client:
    """Offsets and records of one cluster, over connections that stay open."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        connection, self.fetch_config = configs_of(kafka)
        self._session = KafkaClient(connection, patience_ms=_PATIENCE_MS)
        self._lane = self._session.brokers.new_lane()
        self._closing = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Have a task of its own hold it open: what opens it does not last as long."""
        opened = asyncio.Event()

        async def live() -> None:
            async with self._session:
                opened.set()
                await self._closing.wait()

        self._living = start_task(asyncio.get_running_loop(), live(), "kafka client")
        await opened.wait()

    async def close(self) -> None:
        """Close its connections."""
        self._closing.set()
        if self._living is not None:
            await self._living

    async def partitions(self, selection: Selection) -> frozenset[TopicPartition]:
        """The partitions there are now of what was selected."""
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
        """The ids of topics as the last metadata had them; brokers before Kafka 2.8 have none."""
        known = self._session.cluster.metadata.topics
        found = {name: known[name].topic_id for name in topics if name in known}
        return {name: topic_id for name, topic_id in found.items() if topic_id is not None}

    async def recreated(self, planned: Mapping[str, UUID]) -> set[str]:
        """The topics that have other ids than those of a plan.

        Brokers are asked where they are not the ids that are known here: a process lives longer
        than a query, and may know a topic that was deleted since.
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
            except UnknownTopicOrPartition as error:  # most likely it is gone
                await with_topic.bear(error)
            except ConsumerError as error:
                await patience.bear(error)

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins."""
        return await self.list_offsets(dict.fromkeys(partitions, EARLIEST))

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each ends; of committed records, if those alone are read."""
        return await self.list_offsets(dict.fromkeys(partitions, LATEST))

    async def list_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each time, -1 if there is none; or at EARLIEST, LATEST."""
        committed = self.fetch_config.committed_only
        found = await list_offsets(self._session.leaders, asked, committed_only=committed)
        return {one: listed.offset for one, listed in found.items()}

    def fetch_bytes(self, wanted: OffsetRange) -> int:
        """How much to ask for at once: a broker sends what it is asked for, wanted or not."""
        enough = max((wanted.end - wanted.start) * _BYTES_A_RECORD, _LEAST_BYTES)
        return min(enough, self.fetch_config.max_partition_fetch_bytes)

    def reader(self, wanted: OffsetRange, *, alone: bool = True) -> PartitionReader:
        """To read a range with, over the one connection to each broker that ranges share.

        It keeps the event loop to itself, unless it is not `alone` to read at the time.
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
        """Of each topic about how large a record is, told by the first ones of these ranges.

        It is for planning well: what cannot be told in time is left out, and nothing is raised.
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
        """Commit for a group in Kafka, without joining it; a group with live members refuses."""
        # few ask for it, and only on the driver
        from asyncconsumer.net.coordinator import Coordinator
        from asyncconsumer.offsets.kafka import KafkaOffsets

        coordinator = Coordinator(group, self._session.brokers, self._session.cluster)
        store = KafkaOffsets(
            coordinator, patience_ms=_COMMIT_PATIENCE_MS, randomness=self._session.randomness
        )
        async with asyncio.timeout(_COMMIT_PATIENCE_MS / 1000):  # a broker may also be silent
            await store.commit(offsets)

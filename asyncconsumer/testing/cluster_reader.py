"""A reader of a real cluster for tests, which also lists records that are not committed yet."""

import heapq
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from operator import attrgetter

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import ConnectionConfig, FetchConfig
from asyncconsumer.errors import UnknownTopicOrPartition
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.list_offsets import OffsetLookup
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.testing.settling import unread
from asyncconsumer.testing.values import PublishedRecord
from asyncconsumer.types import TopicPartition

_PATIENCE_MS = 30_000
_FETCH = FetchConfig(isolation_level="read_committed")


class ClusterReader(AsyncResource):
    """A client that reads topics to their ends, without records of open and aborted transactions.

    It does not join a group and commits nothing.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        config = ConnectionConfig(bootstrap_servers=bootstrap_servers)
        self._client = KafkaClient(config, patience_ms=_PATIENCE_MS)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._client)

    async def records(self, topic: str) -> list[PublishedRecord]:
        """Return the records of a topic, merged by their timestamps.

        Return an empty list if the topic does not exist.
        """
        tps = await self._partitions(topic)
        starts = await self._offsets(tps, EARLIEST)
        ends = await self._offsets(tps, LATEST)
        partitions = [await self._read(tp, starts[tp], ends[tp]) for tp in tps]
        return list(heapq.merge(*partitions, key=attrgetter("timestamp")))

    async def behind(self, topics: Iterable[str], groups: Collection[str]) -> list[str]:
        """Return a line of text for each partition with records that a group has not committed.

        Only the topics in which a group has committed an offset are checked for the group. A topic
        in which none of the `groups` has committed an offset also gets a line.
        """
        return [line for topic in sorted(topics) for line in await self._behind(topic, groups)]

    async def _behind(self, topic: str, groups: Collection[str]) -> list[str]:
        tps = await self._partitions(topic)
        ends = await self._offsets(tps, LATEST)
        committed = {group: await self._committed(group, tps) for group in groups}
        readers = {group: offsets for group, offsets in committed.items() if offsets}
        if not readers:
            names = ", ".join(map(repr, sorted(groups))) or "a group"
            return [f"{topic!r} was not read by {names}"]
        lines = []
        for group, offsets in readers.items():
            for tp in tps:
                start = offsets.get(tp, 0)
                records = await self._read(tp, start, ends[tp])
                if records:
                    lines.append(unread(group, tp, len(records), records[0].offset))
        return lines

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        known = (await self._client.cluster.refresh([topic])).topics.get(topic)
        if known is None or isinstance(known.error, UnknownTopicOrPartition):
            return []
        if known.error is not None:
            raise known.error
        return [TopicPartition(topic, number) for number in sorted(known.partitions)]

    async def _offsets(
        self, tps: Iterable[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, int]:
        lookup = OffsetLookup(
            self._client.leaders, dict.fromkeys(tps, timestamp), committed_only=True
        )
        return {tp: position.offset for tp, position in (await lookup.run()).items()}

    async def _committed(
        self, group: str, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        coordinator = Coordinator(group, self._client.brokers, self._client.cluster)
        offsets = KafkaOffsets(
            coordinator, patience_ms=_PATIENCE_MS, randomness=self._client.randomness
        )
        loaded = await offsets.load(tps)
        return {tp: offset for tp, offset in loaded.items() if offset is not None}

    async def _read(self, tp: TopicPartition, start: int, end: int) -> list[PublishedRecord]:
        """Return the records of a partition from the offset `start` on and before `end`."""
        if start >= end:
            return []

        async def open_reader(slot: int) -> PartitionReader:
            policy = ReadPolicy(
                auto_offset_reset="earliest", end_existed=True, bodies=self._client.bodies
            )
            leaders = self._client.leaders
            return PartitionReader(tp, start, leaders, _FETCH, policy=policy, end=end, slot=slot)

        stream = self._client.stream(open_reader)
        return [PublishedRecord.of(record) async for record in stream]

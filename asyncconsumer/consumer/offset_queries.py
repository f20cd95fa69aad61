"""Queries of log ends and of offsets by time, for many partitions at once."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.fetch.list_offsets import list_offsets, milliseconds
from asyncconsumer.types import OffsetAndTimestamp, TopicPartition


class OffsetQueries:
    """Queries of offsets, sent to the leaders of partitions."""

    def __init__(self, leaders: LeaderClient, *, committed_only: bool) -> None:
        self._leaders = leaders
        self._committed_only = committed_only

    @property
    def connection(self) -> ConnectionConfig:
        """The connection options of the brokers."""
        return self._leaders.connection

    async def partitions(self, topic: str) -> frozenset[TopicPartition]:
        """Return all partitions of a topic. If the topic does not exist, return an empty set."""
        return await self._leaders.partitions(topic)

    async def ends(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, or the offset of its next record.

        `timestamp` is EARLIEST for the first offset, or LATEST for the offset of the next record.
        """
        result = await self._ask(dict.fromkeys(partitions, timestamp))
        return {tp: listed.offset for tp, listed in result.items()}

    async def for_times(
        self, moments: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first record at or after a time, as offset and timestamp.

        The result is None for a partition without such a record.
        """
        result = await self._ask({tp: milliseconds(moment) for tp, moment in moments.items()})
        return {tp: listed if listed.offset >= 0 else None for tp, listed in result.items()}

    async def _ask(
        self, moments: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(self._leaders, moments, committed_only=self._committed_only)

"""Offsets by place or time, for many partitions at once."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.fetch.offset_lookup import list_offsets, milliseconds
from asyncconsumer.types import OffsetAndTimestamp, TopicPartition


class OffsetQueries:
    """Asks the leaders of partitions."""

    def __init__(self, leaders: LeaderClient, *, committed_only: bool) -> None:
        self._leaders = leaders
        self._committed_only = committed_only

    @property
    def connection(self) -> ConnectionConfig:
        """How they are reached."""
        return self._leaders.connection

    async def partitions(self, topic: str) -> frozenset[TopicPartition]:
        """All that a topic has; none if there is no such topic."""
        return await self._leaders.partitions(topic)

    async def ends(
        self, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        """Their EARLIEST or LATEST offsets."""
        found = await self._ask(dict.fromkeys(partitions, which))
        return {one: listed.offset for one, listed in found.items()}

    async def for_times(
        self, moments: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a moment; None if none is as new."""
        found = await self._ask({one: milliseconds(at) for one, at in moments.items()})
        return {one: at if at.offset >= 0 else None for one, at in found.items()}

    async def _ask(
        self, moments: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(self._leaders, moments, committed_only=self._committed_only)

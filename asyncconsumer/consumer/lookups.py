"""Offsets by place or time, for many partitions side by side."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.fetch.leader import Leaders
from asyncconsumer.fetch.lookup import Listed, list_offset, milliseconds
from asyncconsumer.model import TopicPartition
from asyncconsumer.tasks.many import each


class Lookups:
    """Asks the leaders of partitions."""

    def __init__(self, leaders: Leaders, *, committed_only: bool) -> None:
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
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment; None if none is as new."""
        found = await self._ask({one: milliseconds(at) for one, at in moments.items()})
        return {one: at.offset if at.offset >= 0 else None for one, at in found.items()}

    async def _ask(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, Listed]:
        found: dict[TopicPartition, Listed] = {}

        async def ask(one: TopicPartition) -> None:
            found[one] = await list_offset(
                self._leaders, one, moments[one], committed_only=self._committed_only
            )

        await each(moments, ask)
        return found

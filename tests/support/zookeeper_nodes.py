"""The nodes of a group in ZooKeeper, read with aiozk's client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiozk

from asyncconsumer.types import TopicPartition


class GroupNodes:
    """The nodes of one group."""

    def __init__(self, client: aiozk.ZKClient, group: str) -> None:
        self.client = client
        self.group = group
        self._root = f"/consumers/{group}"

    async def members(self) -> dict[str, dict[str, Any]]:
        """Return the registrations by consumer id."""
        path = f"{self._root}/ids"
        names = await self._children(path)
        return {name: json.loads(await self.client.get_data(f"{path}/{name}")) for name in names}

    async def owners(self) -> dict[TopicPartition, str]:
        """Return the owner thread of each partition."""
        return await self._of_partitions("owners")

    async def offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition."""
        return {p: int(text) for p, text in (await self._of_partitions("offsets")).items()}

    async def claimed_ms(self) -> dict[TopicPartition, int]:
        """Return the time of each partition's claim, in milliseconds since the epoch."""
        return {p: stat.created for p, (_, stat) in (await self._nodes_of("owners")).items()}

    async def commits(self) -> dict[TopicPartition, int]:
        """Return how often each partition's offset was rewritten."""
        return {p: stat.version for p, (_, stat) in (await self._nodes_of("offsets")).items()}

    async def _of_partitions(self, kind: str) -> dict[TopicPartition, str]:
        return {p: data.decode() for p, (data, _) in (await self._nodes_of(kind)).items()}

    async def _nodes_of(self, kind: str) -> dict[TopicPartition, tuple[bytes, Any]]:
        result = {}
        for topic in await self._children(f"{self._root}/{kind}"):
            for partition in await self._children(f"{self._root}/{kind}/{topic}"):
                path = f"{self._root}/{kind}/{topic}/{partition}"
                try:
                    node = await self.client.get(path)
                except aiozk.exc.NoNode:
                    continue  # deleted since it was listed
                result[TopicPartition(topic, int(partition))] = node
        return result

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self.client.get_children(path))
        except aiozk.exc.NoNode:
            return []


class OffsetWatcher:
    """A task that polls a group's offsets, and records offsets that decrease."""

    def __init__(self, nodes: GroupNodes) -> None:
        self.steps_back: list[tuple[TopicPartition, int, int]] = []
        self._nodes = nodes
        self._furthest: dict[TopicPartition, int] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._polling = self._group.create_task(self._poll())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._polling.cancel()
        await self._group.__aexit__(kind, error, where)

    async def _poll(self) -> None:
        while True:
            for tp, offset in (await self._nodes.offsets()).items():
                if offset < self._furthest.get(tp, 0):
                    self.steps_back.append((tp, self._furthest[tp], offset))
                self._furthest[tp] = offset
            await asyncio.sleep(0.01)


@asynccontextmanager
async def nodes_of(connect: str, group: str) -> AsyncIterator[GroupNodes]:
    """Yield the nodes of a group, read in a session of their own."""
    client = aiozk.ZKClient(connect)
    await client.start()
    try:
        yield GroupNodes(client, group)
    finally:
        await client.close()

"""What a group has in ZooKeeper, read with aiozk's own client."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiozk

from asyncconsumer.model import TopicPartition


class GroupNodes:
    """The nodes of one group."""

    def __init__(self, client: aiozk.ZKClient, group: str) -> None:
        self._client = client
        self.group = group
        self._root = f"/consumers/{group}"

    async def members(self) -> dict[str, dict[str, Any]]:
        """The registrations by consumer id."""
        path = f"{self._root}/ids"
        names = await self._children(path)
        return {name: json.loads(await self._client.get_data(f"{path}/{name}")) for name in names}

    async def owners(self) -> dict[TopicPartition, str]:
        """The thread that owns each partition."""
        return await self._of_partitions("owners")

    async def offsets(self) -> dict[TopicPartition, int]:
        """The offset to go on from in each partition."""
        return {p: int(text) for p, text in (await self._of_partitions("offsets")).items()}

    async def _of_partitions(self, kind: str) -> dict[TopicPartition, str]:
        found = {}
        for topic in await self._children(f"{self._root}/{kind}"):
            for partition in await self._children(f"{self._root}/{kind}/{topic}"):
                try:
                    data = await self._client.get_data(f"{self._root}/{kind}/{topic}/{partition}")
                except aiozk.exc.NoNode:
                    continue  # gone since it was listed
                found[TopicPartition(topic, int(partition))] = data.decode()
        return found

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self._client.get_children(path))
        except aiozk.exc.NoNode:
            return []


@asynccontextmanager
async def nodes_of(connect: str, group: str) -> AsyncIterator[GroupNodes]:
    """A session with ZooKeeper to look at a group with."""
    client = aiozk.ZKClient(connect)
    await client.start()
    try:
        yield GroupNodes(client, group)
    finally:
        await client.close()

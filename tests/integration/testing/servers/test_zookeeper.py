"""A real ZooKeeper, standalone and as an ensemble."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.servers import AdminFailed, ZooKeeper
from asyncconsumer.testing.servers.ports import HOST
from tests.support.helpers import until


class Session:
    """A minimal ZooKeeper client, which opens a session and notices its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.id, self.password = 0, bytes(16)

    async def open(self, session_id: int = 0, password: bytes = bytes(16)) -> None:
        body = struct.pack(">iqiqi16s", 0, 0, 10_000, session_id, 16, password)
        self._writer.write(struct.pack(">i", len(body)) + body)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(length)
        _, _, self.id, _, self.password = struct.unpack_from(">iiqi16s", answer)

    async def ended(self) -> bool:
        return await self._reader.read(1) == b""

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connected(port: int) -> Session:
    return Session(*await asyncio.open_connection(HOST, port))


@pytest_asyncio.fixture
async def ensemble() -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(nodes=3) as running:
        yield running


async def test_expire_session_ends_a_session_on_the_server(zookeeper: ZooKeeperHandle) -> None:
    port = zookeeper.server.nodes[0].port
    session = await connected(port)
    await session.open()
    assert session.id != 0

    await zookeeper.server.expire_session(session.id, session.password)

    assert await session.ended()
    await session.close()
    again = await connected(port)
    await again.open(session.id, session.password)
    assert again.id == 0  # ZooKeeper's id for an expired session
    await again.close()


async def test_expire_session_refuses_an_unknown_session(zookeeper: ZooKeeperHandle) -> None:
    with pytest.raises(AdminFailed, match="does not know session 0xbad"):
        await zookeeper.server.expire_session(0xBAD, bytes(16))


async def test_an_ensemble_elects_a_leader_and_accepts_the_old_one_again(
    ensemble: ZooKeeper,
) -> None:
    assert sorted([await node.mode() for node in ensemble.nodes]) == [
        "follower",
        "follower",
        "leader",
    ]
    first = await ensemble.leader()
    await first.kill()
    assert await first.mode() == "down"

    async def another_leads() -> bool:
        others = [await node.mode() for node in ensemble.nodes if node is not first]
        return sorted(others) == ["follower", "leader"]

    await until(another_leads)
    await first.start()
    assert await first.mode() == "follower"


async def test_a_paused_node_does_not_answer_until_it_is_resumed(ensemble: ZooKeeper) -> None:
    leader = await ensemble.leader()
    node = next(node for node in ensemble.nodes if node is not leader)
    node.pause()
    assert not await node.is_serving()
    node.resume()
    await until(node.is_serving)


async def test_a_restarted_node_keeps_its_port(zookeeper: ZooKeeperHandle) -> None:
    node = zookeeper.server.nodes[0]
    address = node.address
    await node.restart()
    assert node.address == address
    assert await node.mode() == "standalone"

"""A session on an ensemble of three that loses servers. It is kept as long as there is a quorum."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from random import Random

import pytest
import pytest_asyncio

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ConnectionLoss
from asyncconsumer.testing.fixtures import RUNNING_SERVERS
from asyncconsumer.testing.servers import ZooKeeper
from asyncconsumer.testing.servers.process import together
from asyncconsumer.testing.servers.zookeeper import ZooKeeperNode
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.support.helpers import until


@pytest.fixture(scope="module")
def _three(request: pytest.FixtureRequest) -> Iterator[ZooKeeper]:
    running = request.config.stash[RUNNING_SERVERS]
    ensemble = ZooKeeper(nodes=3)
    with asyncio.Runner() as runner:
        runner.run(ensemble.start())
    running.append(ensemble)
    yield ensemble
    running.remove(ensemble)
    with asyncio.Runner() as runner:
        runner.run(ensemble.stop())


@pytest_asyncio.fixture
async def ensemble(_three: ZooKeeper) -> AsyncIterator[ZooKeeper]:
    yield _three
    for node in _three.nodes:
        if node.process.state == "paused":
            node.resume()
    # concurrently, because a single server has no quorum
    await together(*(node.start() for node in _three.nodes if not node.process.running))
    for node in _three.nodes:
        await until(node.is_serving)


@asynccontextmanager
async def connected_to(
    ensemble: ZooKeeper, node: ZooKeeperNode, timeout_ms: int = 15_000
) -> AsyncIterator[ZooKeeperSession]:
    """Open a session with its first connection to `node`, by a seed for the order of servers."""
    config = ZooKeeperConfig(
        zookeeper_connect=ensemble.connect,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=60_000,
    )
    expected = next(address for address in config.addresses if str(address) == node.address)
    for seed in count():
        if Random(seed).sample(config.addresses, 3)[0] == expected:
            break
    async with ZooKeeperSession(config, randomness=Random(seed)) as session:
        assert session._connection is not None
        assert session._connection.address == expected
        yield session


async def follower(ensemble: ZooKeeper) -> ZooKeeperNode:
    leader = await ensemble.leader()
    return next(node for node in ensemble.nodes if node is not leader)


async def kept(session: ZooKeeperSession, before: int) -> bool:
    await session.connected.wait()
    return (session.session_id, session.epoch) == (before, 1)


@pytest.mark.parametrize("role", ["follower", "leader"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_the_session_survives_the_kill_of_its_server(
    ensemble: ZooKeeper, role: str, busy: bool
) -> None:
    node = await (ensemble.leader() if role == "leader" else follower(ensemble))
    path = f"/{role}-{busy}"
    async with connected_to(ensemble, node) as session:
        before = session.session_id
        await session.create(path)
        await session.create(f"{path}/mine", ephemeral=True)
        done: list[int] = []

        async def create(number: int) -> None:
            try:
                await session.create(f"{path}/{number}", epoch=1)
                done.append(number)
            except ConnectionLoss:
                pass

        async with asyncio.TaskGroup() as group:
            for number in range(300 if busy else 0):
                group.create_task(create(number))
            if busy:
                await until(lambda: bool(done))
            group.create_task(node.kill())
        await until(
            lambda: (
                session._connection is not None and session._connection.address.port != node.port
            )
        )
        assert await kept(session, before)
        await session.sync(path)
        names = await session.children(path)
        assert {"mine", *map(str, done)} <= set(names)
        stat = await session.exists(f"{path}/mine")
        assert stat is not None
        assert stat.ephemeral_owner == before


async def test_the_session_moves_away_from_a_frozen_server_before_it_expires(
    ensemble: ZooKeeper,
) -> None:
    node = await follower(ensemble)
    async with connected_to(ensemble, node, timeout_ms=4_000) as session:
        before = session.session_id
        node.pause()
        assert await session.exists("/none") is None  # sent again, to another server
        assert await kept(session, before)


async def test_a_session_opens_though_one_of_three_servers_is_frozen(
    ensemble: ZooKeeper,
) -> None:
    node = await follower(ensemble)
    node.pause()
    for seed in range(6):
        config = ZooKeeperConfig(zookeeper_connect=ensemble.connect)
        async with ZooKeeperSession(config, randomness=Random(seed)) as session:
            assert await session.exists("/none") is None


async def test_the_session_survives_the_loss_of_the_quorum(ensemble: ZooKeeper) -> None:
    leader = await ensemble.leader()
    last = await follower(ensemble)
    gone = [node for node in ensemble.nodes if node is not last]
    async with connected_to(ensemble, last, timeout_ms=60_000) as session:
        before = session.session_id
        await session.create("/minority", ephemeral=True)
        async with asyncio.TaskGroup() as group:
            for node in gone:
                group.create_task(node.kill())
        await until(
            lambda: not session.connected.is_set()
        )  # a server without a quorum closes its connections
        async with asyncio.TaskGroup() as group:
            read = group.create_task(session.exists("/minority"))
            group.create_task(leader.start())
        stat = read.result()
        assert stat is not None
        assert stat.ephemeral_owner == before
        assert await kept(session, before)

"""The session on virtual time: its clock, its epochs, and schedules of faults."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from aiozk import protocol
from aiozk.protocol.request import Request

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import (
    ConnectionLoss,
    NodeExists,
    SessionExpired,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from asyncconsumer.testing.fake_zookeeper import (
    FakeClient,
    FakeZooKeeper,
    FakeZooKeeperTransport,
    Fate,
)
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.recipes import (
    create_ephemeral_owned,
    delete_ephemeral_owned,
    delete_if_exists,
)
from asyncconsumer.zookeeper.session import ZooKeeperSession
from asyncconsumer.zookeeper.transport import ConnectRequest
from tests.testing.fake_zookeeper.test_ensemble import fake_session

pytestmark = pytest.mark.fast

SEEDS = range(20)


def now() -> float:
    return asyncio.get_running_loop().time()


def fates(*drawn: Fate) -> Callable[[int, Request], Fate]:
    """Return a hook that gives these fates to the next writes, and success to later ones."""
    remaining = list(drawn)
    return lambda session_id, request: remaining.pop(0) if remaining else Fate.DONE


@simulated(range(4), limit=4000)
async def test_pings_keep_an_idle_session() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake) as zk:
        await zk.create("/me", ephemeral=True)
        for _ in range(100):
            await asyncio.sleep(36)
            assert not zk.suspended
        assert (zk.epoch, fake.sessions, zk.requests) == (1, [zk.session_id], 1)
    assert fake.sessions == []
    assert "/me" not in fake.tree.nodes


@simulated(SEEDS, limit=100)
async def test_a_frozen_server_is_replaced_after_two_thirds_of_the_timeout() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1))
    async with fake_session(fake) as zk:
        before, server = zk.session_id, _server_of(fake, zk)
        fake.freeze(server)
        frozen_at = now()
        assert await zk.exists("/none") is None
        assert 3.9 <= now() - frozen_at < 6
        assert (zk.session_id, zk.epoch) == (before, 1)
        assert not zk.suspended
        assert _server_of(fake, zk) != server


def _server_of(fake: FakeZooKeeper, zk: ZooKeeperSession) -> int:
    assert zk._connection is not None
    return list(fake.servers).index(zk._connection.address)


@simulated(SEEDS, limit=100)
async def test_ownership_ends_by_the_own_clock_before_the_expiry() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1))
    async with fake_session(fake) as zk:
        fake.freeze()
        last = zk.last_answer
        await asyncio.sleep(last + 4.1 - now())
        assert [zk.suspended, zk.holds(1)] == [True, True]
        await asyncio.sleep(last + 6.01 - now())
        assert [zk.lost_by_own_clock, zk.holds(1)] == [True, False]
        assert not zk.is_over(1)  # no server has reported the expiry yet
        await asyncio.sleep(10)
        assert not zk.is_over(1)
        fake.thaw()
        await zk.wait_expired(1)
        await zk.connected.wait()
        assert zk.epoch == 2
        assert [zk.suspended, zk.holds(2), zk.holds(1)] == [False, True, False]


@simulated(SEEDS, limit=100)
async def test_a_response_extends_the_session_from_its_request_time() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake) as zk:
        opened = now()
        await asyncio.sleep(1.5)
        fake.freeze()
        await asyncio.sleep(2)  # a ping went out meanwhile
        fake.thaw()
        await asyncio.sleep(0.1)
        assert 1.9 < zk.last_answer - opened < 2.1


@simulated(SEEDS, limit=100)
async def test_each_new_session_is_a_new_epoch() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        for epoch in range(1, 5):
            await zk.create(f"/e{epoch}", ephemeral=True, epoch=epoch)
            former = zk.session_id
            fake.expire(former)
            assert f"/e{epoch}" not in fake.tree.nodes
            await zk.wait_expired(epoch)
            assert not zk.connected.is_set()
            with pytest.raises(SessionExpired):
                await zk.create("/late", epoch=epoch)
            await zk.connected.wait()
            assert zk.epoch == epoch + 1
            assert former in zk.former_ids
        with pytest.raises(SessionExpired):
            await zk.set("/", b"", epoch=7)  # an epoch that does not exist


@simulated(SEEDS, limit=100)
async def test_another_session_id_in_the_response_is_an_expiry() -> None:
    fake = FakeZooKeeper(randomness=Random(1))

    async def swapping(
        address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeZooKeeperTransport:
        return await fake.open(address, config, hello._replace(session_id=0))

    config = ZooKeeperConfig(zookeeper_connect=fake.connect)
    async with ZooKeeperSession(config, randomness=Random(0), opener=swapping) as zk:
        first = zk.session_id
        fake.cut()
        await zk.wait_expired(1)
        await zk.connected.wait()
        assert zk.epoch == 2
        assert zk.former_ids == {first}


@simulated(SEEDS, limit=100)
async def test_a_lost_write_is_never_sent_again() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        await zk.create("/n")
        for fate, version in ((Fate.LOST_BEFORE, 0), (Fate.LOST_AFTER, 1)):
            fake.on_write = fates(fate)
            with pytest.raises(ConnectionLoss) as caught:
                await zk.set("/n", b"x")
            assert caught.value.maybe_applied
            assert (await zk.get("/n")).stat.version == version
        fake.on_write = fates(Fate.LOST_AFTER)
        await create_ephemeral_owned(zk, "/me", b"me", epoch=1)
        fake.on_write = fates(Fate.LOST_AFTER)
        await delete_if_exists(zk, "/me", epoch=1)
        fake.on_write = fates(Fate.LOST_BEFORE)
        with pytest.raises(ConnectionLoss):
            await create_ephemeral_owned(zk, "/me", b"me", epoch=1)
        assert zk.epoch == 1


@simulated(SEEDS, limit=100)
async def test_a_node_claimed_by_another_member_is_not_deleted() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        await create_ephemeral_owned(zk, "/owner", b"me", epoch=1)
        claims = iter([Fate.LOST_AFTER])

        def lose_and_claim(session_id: int, request: Request) -> Fate:
            fate = next(claims, Fate.DONE)
            if (
                fate is Fate.LOST_AFTER
            ):  # the delete was applied, and another member claims the node
                claim = protocol.CreateRequest(path="/owner", data=b"other", acl=[])
                claim.set_flags(ephemeral=False, sequential=False)
                asyncio.get_running_loop().call_soon(fake.apply, claim)
            return fate

        fake.on_write = lose_and_claim
        await delete_ephemeral_owned(zk, "/owner", epoch=1)
        assert (await zk.get("/owner")).data == b"other"


@simulated(SEEDS, limit=100)
async def test_own_nodes_are_deleted_despite_connection_losses() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        await create_ephemeral_owned(zk, "/owner", b"me", epoch=1)
        fake.on_write = fates(Fate.LOST_BEFORE, Fate.LOST_BEFORE, Fate.LOST_AFTER)
        await delete_ephemeral_owned(zk, "/owner", epoch=1)
        assert await zk.exists("/owner") is None


@simulated(SEEDS, limit=100)
async def test_a_lost_claim_is_found_on_a_lagging_server() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1), lag=30)
    async with fake_session(fake) as zk:
        for number in range(5):
            fake.on_write = fates(Fate.LOST_AFTER)
            await create_ephemeral_owned(zk, f"/{number}", b"me", epoch=1)
            fake.on_write = fates(Fate.LOST_AFTER)
            await delete_if_exists(zk, f"/{number}", epoch=1)


@simulated(SEEDS, limit=100)
async def test_reads_are_monotonic_over_reconnects() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1), lag=5)
    async with (
        fake_session(fake) as zk,
        fake_session(fake, 1) as other,
        asyncio.TaskGroup() as group,
    ):
        await other.create("/n")
        await zk.sync("/n")

        async def write() -> None:
            for _ in range(50):
                await other.set("/n", b"")
                await asyncio.sleep(0.2)

        group.create_task(write())
        versions = []
        for _ in range(30):
            versions.append((await zk.get("/n")).stat.version)
            await asyncio.sleep(0.3)
            fake.cut()
        assert versions == sorted(versions)
        assert len(set(versions)) > 5
        assert zk.epoch == 1


@simulated(range(8), limit=10_000)
async def test_stopped_servers_are_retried_with_a_backoff_and_found_soon() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1))
    tries: list[float] = []

    async def counting(
        address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeZooKeeperTransport:
        tries.append(now())
        return await fake.open(address, config, hello)

    config = ZooKeeperConfig(zookeeper_connect=fake.connect)
    async with ZooKeeperSession(config, randomness=Random(0), opener=counting) as zk:
        await asyncio.sleep(10)
        fake.stop()
        tries.clear()
        await asyncio.sleep(100)
        assert 3 * 100 <= len(tries) <= 3 * 100 * 1.3
        fake.start()
        back = now()
        await zk.connected.wait()
        assert now() - back < 1.1


@simulated(SEEDS, limit=10_000)
async def test_a_server_that_closes_each_connection_causes_no_busy_loop() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    fake.on_write = lambda session_id, request: Fate.LOST_BEFORE
    async with fake_session(fake) as zk:
        failed = 0
        while now() < 60:
            with pytest.raises(ConnectionLoss):
                await zk.create("/x")
            failed += 1
        assert failed < 100


@simulated(SEEDS, limit=100)
async def test_a_failed_open_reports_the_errors_of_all_servers() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1))
    fake.stop()
    fake.freeze(1)
    fake.start(1)
    with pytest.raises(ZooKeeperUnavailable) as caught:
        async with fake_session(fake):
            pytest.fail("opened")
    assert 5.9 < now() < 6.1
    assert "zk0:2181: connection refused" in str(caught.value)
    assert "zk1:2181: no answer to the connect request within" in str(caught.value)


@simulated(SEEDS, limit=100)
async def test_many_reads_survive_connection_losses() -> None:
    fake = FakeZooKeeper(3, randomness=Random(1))
    async with fake_session(fake) as zk, asyncio.TaskGroup() as group:
        await zk.create("/n")
        names = [f"/n/{number}" for number in range(300)]
        for name in names:
            await zk.create(name, name.encode())
        task = group.create_task(zk.get_many(names))
        for _ in range(3):
            await asyncio.sleep(0.002)
            fake.cut()
        results = await task
        assert [node and node.data for node in results] == [name.encode() for name in names]


async def _inject_faults(
    fake: FakeZooKeeper, clients: list[FakeClient], chance: Random, seconds: float
) -> None:
    """Inject faults of every kind, one after the other, and end all of them."""
    end = now() + seconds
    while now() < end:
        server = chance.choice([0, 1, 2, None])
        client = chance.choice(clients)
        match chance.randrange(5):
            case 4:
                client.isolate()
                await asyncio.sleep(chance.uniform(0, 12))
                client.rejoin()
            case 0:
                fake.cut()
            case 1:
                fake.freeze(server)
                await asyncio.sleep(chance.uniform(0, 10))
                fake.thaw(server)
            case 2:
                fake.stop(server)
                await asyncio.sleep(chance.uniform(0, 10))
                fake.start(server)
            case _:
                lost = [Fate.LOST_BEFORE, Fate.LOST_AFTER, Fate.DONE, Fate.DONE]
                fake.on_write = fates(*(chance.choice(lost) for _ in range(5)))
        await asyncio.sleep(chance.uniform(0, 2))
    fake.on_write = fates()


@pytest.mark.parametrize("seeds", [range(6)])
def test_a_claim_has_one_owner_and_watchers_see_the_end(seeds: range) -> None:
    expired = 0
    for seed in seeds:
        expired += run(partial(_compete, seed), seed=seed, limit=2000)
    assert expired > len(seeds)  # the faults are severe enough


async def _compete(seed: int) -> int:
    """Let members claim one node during faults, and check that only one session holds it."""
    chance = Random(seed)
    lag = chance.choice([0, 0.01, 1])
    fake = FakeZooKeeper(3, randomness=Random(chance.random()), lag=lag)
    clients = [fake.client() for _ in range(3)]
    holders: dict[int, tuple[ZooKeeperSession, int]] = {}
    views: list[list[str] | None] = [None] * 3
    stop, expired = asyncio.Event(), list[int]()

    def check() -> None:
        sure = [name for name, (zk, epoch) in holders.items() if zk.holds(epoch)]
        assert len(sure) <= 1, sure

    async def member(me: int) -> None:
        async with fake_session(clients[me], seed=me, connection_timeout_ms=60_000) as zk:
            while not stop.is_set():
                epoch = zk.epoch
                try:
                    await create_ephemeral_owned(zk, "/owner", b"%d" % me, epoch=epoch)
                    holders[me] = zk, epoch
                    check()
                    await asyncio.sleep(chance.uniform(0, 15))
                    check()
                    del holders[me]  # first stop, then release
                    await delete_if_exists(zk, "/owner", epoch=epoch)
                except (ConnectionLoss, NodeExists, SessionExpired):
                    holders.pop(me, None)
                    await asyncio.sleep(chance.uniform(0, 0.5))
            expired.extend(zk.former_ids)
            with zk.watch_children("/log") as watch:
                while views[me] != ["last"]:
                    await watch.changed.wait()
                    views[me] = await watch.read()

    async with asyncio.TaskGroup() as group:
        for me in range(3):
            group.create_task(member(me))
        await _inject_faults(fake, clients, chance, 120)
        stop.set()
        async with fake_session(fake, seed=9) as writer:
            await _retried(writer.create("/log"))
            await asyncio.sleep(chance.uniform(0, 1))
            await _retried(writer.create("/log/last"))
            fake.cut()
    assert views == [["last"]] * 3
    return len(expired)


async def _retried(write: Awaitable[Any]) -> None:
    try:
        await write
    except ZooKeeperError as error:  # no fault is left
        raise AssertionError(error) from error

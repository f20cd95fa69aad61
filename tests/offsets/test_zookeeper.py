"""Offsets in ZooKeeper, on virtual time."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest
from aiozk import protocol

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import (
    ConfigError,
    ConnectionLoss,
    NodeExists,
    NothingClaimed,
    SessionExpired,
)
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper, Fate
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.recipes import create_ephemeral_owned, delete_if_exists, ensure_path
from asyncconsumer.zookeeper.requests import create, delete
from asyncconsumer.zookeeper.session import ZooKeeperSession

pytestmark = pytest.mark.fast

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
ROOT = "/consumers/g/offsets"
SET, CREATE = protocol.SetDataRequest.opcode, protocol.CreateRequest.opcode


def opened(fake: FakeZooKeeper, seed: int = 0, **options: Any) -> ZooKeeperSession:
    config = ZooKeeperConfig(zookeeper_connect=fake.connect, **options)
    return ZooKeeperSession(config, randomness=Random(seed), opener=fake.open)


def offsets_of(session: ZooKeeperSession, **options: Any) -> ZooKeeperOffsets:
    """Return the store of a member that claimed its partitions in the current session."""
    epoch = session.epoch
    settings: dict[str, Any] = {"epoch": lambda: epoch, "randomness": Random(1)}
    return ZooKeeperOffsets(session, "g", **settings | options)


def nodes_of(fake: FakeZooKeeper) -> dict[str, bytes | None]:
    nodes = fake.tree.nodes
    return {path: node.data for path, node in nodes.items() if path.startswith("/consumers")}


@simulated(seeds=range(20))
async def test_offsets_are_written_as_by_the_classic_consumer() -> None:
    fake = FakeZooKeeper(randomness=Random(7))
    async with opened(fake) as session:
        offsets = offsets_of(session)
        assert await offsets.load([P0, P1]) == {P0: None, P1: None}
        await offsets.commit({P0: 250, P1: 0, TopicPartition("other", 7): 2**63 - 1})
        assert nodes_of(fake) == {
            "/consumers": None,
            "/consumers/g": None,
            ROOT: None,
            f"{ROOT}/t": None,
            f"{ROOT}/t/0": b"250",
            f"{ROOT}/t/1": b"0",
            f"{ROOT}/other": None,
            f"{ROOT}/other/7": b"9223372036854775807",
        }
        again = offsets_of(session)
        assert await again.load([P1, P0, P2, P0]) == {P1: 0, P0: 250, P2: None}


@simulated(seeds=range(20))
async def test_only_changed_offsets_are_written_and_may_be_smaller() -> None:
    fake = FakeZooKeeper(randomness=Random(7))
    async with opened(fake) as session:
        offsets = offsets_of(session)
        await offsets.commit({P0: 1, P1: 1})
        before = session.requests
        await offsets.commit({P0: 1, P1: 1})
        assert session.requests == before
        await offsets.commit({P0: 1, P1: 2})
        assert session.requests == before + 1
        await offsets.commit({P0: 0})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"0"
        again = offsets_of(session)
        await again.load([P0, P1])
        before = session.requests
        await again.commit({P0: 0, P1: 2})
        assert session.requests == before


@simulated(seeds=range(1))
async def test_many_partitions_are_loaded_and_committed_concurrently() -> None:
    fake = FakeZooKeeper(randomness=Random(7), latency=(0.1, 0.1))
    many = {TopicPartition(f"t{n % 50}", n): n for n in range(1200)}
    loop = asyncio.get_running_loop()
    async with opened(fake) as session:
        offsets = offsets_of(session)
        for step in (offsets.load(many), offsets.commit(many)):
            began = loop.time()
            await step
            assert loop.time() - began < 10  # virtual seconds, with round trips of 0.2
        assert await offsets_of(session).load(many) == many


@pytest.mark.parametrize(
    "data",
    [b"abc", b"-5", b"18446744073709551616", b"9223372036854775808", b"", None, b" 7", b"+7",
     b"7\n", b"1_0", "٧".encode(), b"9" * 10**6, b'{"offset":7}'],
)  # fmt: skip
def test_an_invalid_offset_is_reported_and_overwritten(
    data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    @simulated(seeds=range(1))
    async def main() -> None:
        fake = FakeZooKeeper(randomness=Random(7))
        async with opened(fake) as session:
            await ensure_path(session, f"{ROOT}/t")
            for partition, content in ((0, data), (1, b"007")):
                await session.create(f"{ROOT}/t/{partition}", content)
            offsets = offsets_of(session)
            with caplog.at_level(logging.WARNING, "asyncconsumer.offsets"):
                assert await offsets.load([P0, P1]) == {P0: None, P1: 7}
            await offsets.commit({P0: 5})
            assert nodes_of(fake)[f"{ROOT}/t/0"] == b"5"

    main()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{ROOT}/t/0: ")
    assert "is not an offset" in line
    assert len(line) < 300


@pytest.mark.parametrize("offset", [-1, 2**63, 1.5, True, None, "7"])
def test_invalid_offsets_are_refused(offset: Any) -> None:
    @simulated(seeds=range(1))
    async def main() -> None:
        fake = FakeZooKeeper(randomness=Random(7))
        async with opened(fake) as session:
            with pytest.raises(ConfigError, match=r"offset .* of t\[1\] is invalid"):
                await offsets_of(session).commit({P0: 1, P1: offset})
            assert nodes_of(fake) == {}

    main()


@simulated(seeds=range(5))
async def test_commits_without_a_claim_are_refused() -> None:
    fake = FakeZooKeeper(randomness=Random(7))
    async with opened(fake) as session:
        with pytest.raises(NothingClaimed, match="group 'g'"):
            await offsets_of(session, epoch=lambda: None).commit({P0: 1})
        offsets = offsets_of(session)
        await offsets.commit({P0: 1})
        idle = offsets_of(session)
        await idle.load([P0])
        fake.expire(session.session_id)
        with pytest.raises(SessionExpired):
            await offsets.commit({P0: 2})
        await session.connected.wait()
        with pytest.raises(SessionExpired, match="epoch 1 is over"):
            await idle.commit({P0: 1})  # although no offset has changed
        with pytest.raises(SessionExpired, match="epoch 1 is over"):
            await offsets.commit({P0: 2})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"1"
        await offsets_of(session).commit({P0: 2})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"2"


@pytest.mark.parametrize("opcode", [SET, CREATE])
@pytest.mark.parametrize("fate", [Fate.LOST_BEFORE, Fate.LOST_AFTER])
def test_offsets_written_before_a_connection_loss_are_not_rewritten(
    fate: Fate, opcode: int
) -> None:
    @simulated(seeds=range(20))
    async def main() -> None:
        fake = FakeZooKeeper(randomness=Random(7))
        seen: list[str] = []

        def lose(session_id: int, request: Any) -> Fate:
            if request.opcode != opcode or not request.path.startswith(f"{ROOT}/t/"):
                return Fate.DONE
            seen.append(request.path)
            return fate if len(seen) == 2 else Fate.DONE

        async with opened(fake) as session:
            offsets = offsets_of(session)
            if opcode == SET:
                await offsets.commit({P0: 1, P1: 1, P2: 1})
            fake.on_write = lose
            await offsets.commit({P0: 3, P1: 3, P2: 3})
            assert [nodes_of(fake)[f"{ROOT}/t/{n}"] for n in range(3)] == [b"3"] * 3
            assert session.epoch == 1
        done = 2 if fate is Fate.LOST_AFTER else 1
        assert seen[:2] == [f"{ROOT}/t/0", f"{ROOT}/t/1"]
        if opcode == SET:
            assert seen[2:] == [f"{ROOT}/t/{n}" for n in range(done, 3)]

    main()


@simulated(seeds=range(20), limit=1000)
async def test_a_commit_without_a_connection_times_out() -> None:
    fake = FakeZooKeeper(randomness=Random(7))
    async with opened(fake, session_timeout_ms=600_000, connection_timeout_ms=1_000) as session:
        offsets = offsets_of(session, patience_ms=5_000)
        await offsets.commit({P0: 1})
        fake.stop()
        with pytest.raises(ConnectionLoss):
            await offsets.commit({P0: 2, P1: 2})
        fake.start()
        await offsets.commit({P0: 1})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"1"
        await offsets.commit({P1: 2})


@simulated(seeds=range(50))
async def test_a_cancelled_commit_does_not_count_as_written_or_unwritten() -> None:
    loop = asyncio.get_running_loop()
    fake = FakeZooKeeper(randomness=Random(7), latency=(0.1, 0.1))
    async with opened(fake) as session:
        offsets = offsets_of(session)
        await offsets.commit({P0: 1})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(
                loop.time() + 0.15
            ):  # after the write, before the response
                await offsets.commit({P0: 2})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"2"
        await offsets.commit({P0: 1})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"1"


@simulated(seeds=range(20))
async def test_nodes_created_or_deleted_during_a_commit_are_written() -> None:
    fake = FakeZooKeeper(randomness=Random(7))

    def create_meanwhile(session_id: int, request: Any) -> Fate:
        if request.opcode == CREATE and request.path == f"{ROOT}/t/0":
            fake.on_write = lambda session_id, request: Fate.DONE
            fake.apply(create(request.path, b"40", acl=()).request)
        return Fate.DONE

    async with opened(fake) as session:
        offsets = offsets_of(session)
        await offsets.commit({P1: 1})
        fake.on_write = create_meanwhile
        await offsets.commit({P0: 41, P1: 2})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"41"
        for path in (f"{ROOT}/t/0", f"{ROOT}/t/1", f"{ROOT}/t"):
            fake.apply(delete(path).request)
        await offsets.commit({P0: 42})
        assert nodes_of(fake)[f"{ROOT}/t/0"] == b"42"


class Turns:
    """Members that own a partition alternately, and lose it when their session ends."""

    owner = "/consumers/g/owners/t/0"

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.fake = FakeZooKeeper(servers=3, randomness=Random(seed + 1))
        self.fake.on_write = self.check
        self.commits = self.expired = 0

    def check(self, session_id: int, request: Any) -> Fate:
        """Check that only the owner writes the offset, and that it never decreases."""
        if request.path == f"{ROOT}/t/0":
            owner = self.fake.tree.nodes.get(self.owner)
            assert owner is not None
            assert owner.owner == session_id
            assert int(request.data) >= int(nodes_of(self.fake).get(request.path) or 0)
        return self.chance.choices(list(Fate), (16, 1, 1))[0]

    async def member(self, session: ZooKeeperSession) -> None:
        while self.commits < 40:
            await session.connected.wait()
            epoch = session.epoch
            try:
                await ensure_path(session, "/consumers/g/owners/t")
                await create_ephemeral_owned(session, self.owner, b"me", epoch=epoch)
                await self.read(session)
                await delete_if_exists(session, self.owner, epoch=epoch)
            except SessionExpired:
                self.expired += 1
            except (NodeExists, ConnectionLoss):
                pass
            await asyncio.sleep(self.chance.random())

    async def read(self, session: ZooKeeperSession) -> None:
        offsets = offsets_of(session)
        offset = (await offsets.load([P0]))[P0] or 0
        for _ in range(self.chance.randrange(20)):
            offset += self.chance.randrange(5)
            await asyncio.sleep(self.chance.random() / 10)
            await offsets.commit({P0: offset})
            self.commits += 1

    async def chaos(self) -> None:
        while self.commits < 40:
            await asyncio.sleep(self.chance.random() * 3)
            if sessions := self.fake.sessions:
                self.fake.expire(self.chance.choice(sessions))

    async def play(self) -> None:
        async with (
            opened(self.fake, 1) as session,
            opened(self.fake, 2) as other,
            asyncio.TaskGroup() as group,
        ):
            for work in (self.member(session), self.member(other), self.chaos()):
                group.create_task(work)


def test_only_the_owner_writes_an_offset_which_never_decreases() -> None:
    expired = 0
    for seed in range(60):
        turns = Turns(seed)
        try:
            run(turns.play, seed=seed, limit=10_000)
        except BaseException as error:
            error.add_note(f"This was seed {seed}.")
            raise
        expired += turns.expired
    assert expired > 60

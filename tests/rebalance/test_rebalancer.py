"""The order of steps in a rebalance, with a scripted membership."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError, LeaderNotAvailable, UnstableOffsetCommit
from asyncconsumer.events import EventBus
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.group.membership import Assignment
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.rebalance import Listeners, Rebalancer
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.chunks import A, B, C, chunk

if TYPE_CHECKING:
    from asyncconsumer.fetch.manager import FetchManager


class Scripted:
    """A fake of membership, manager, store and listeners that logs every call."""

    def __init__(self, *assignments: Assignment, **options: Any) -> None:
        self.log: list[str] = []
        self.script = list(assignments)
        self.lost = False
        self.due = False  # a newer assignment while the current one is processed
        self.lost_by_then = False  # set by a commit
        self.deadline = inf
        self.last_heartbeat = 0.0
        self.offsets: dict[TopicPartition, int | None] = {}
        self.began: dict[TopicPartition, int] = {}
        self.scans = 0  # the start offsets of all partitions
        self.trouble: list[ConsumerError] = []
        self.targets: Mapping[TopicPartition, FetchTarget] = {}
        self.events = EventBus()
        self.recorder = Recorder()
        self.streams = [Stream(Channel(Budget(10**6))) for _ in range(2)]
        self.rebalancer = Rebalancer(
            self,
            cast("FetchManager", self),
            self,
            TopicRoutes(self.streams),
            listeners=Listeners(
                before_releasing=self.tell("releasing"),
                before_starting=self.starting,
                lost=self.tell("lost"),
            ),
            **{"auto_offset_reset": "latest", "auto_commit": True, **options},
        )

    async def assignments(self) -> AsyncIterator[Assignment]:
        for number, assignment in enumerate(self.script):
            self.lost, self.due = bool(assignment.lost), False
            yield assignment
            self.log.append(f"next {number + 1}")

    def rebalance_pending(self) -> bool:
        return self.due

    def reconcile(self, requested: Mapping[TopicPartition, FetchTarget]) -> None:
        self.targets = dict(requested)
        self.log.append(f"read {' '.join(map(str, requested)) or 'nothing'}")

    def set_owner(self, owner: object) -> None:
        pass

    def start_offsets(self) -> dict[TopicPartition, int]:
        self.scans += 1
        return self.began

    def start_offset(self, partition: TopicPartition) -> int | None:
        return self.began.get(partition)

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        self.log.append("load")
        await asyncio.sleep(1)
        if self.trouble:
            raise self.trouble.pop()
        return {tp: self.offsets.get(tp) for tp in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int], *, rewind: bool = False) -> None:
        self.log.append(f"commit {' '.join(f'{tp}@{offset}' for tp, offset in offsets.items())}")
        await asyncio.sleep(1)
        self.lost = self.lost_by_then
        if self.trouble:
            raise self.trouble.pop()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self.log.append(f"forget {len(partitions)}")

    def tell(self, what: str) -> Any:
        async def observed(partitions: Collection[TopicPartition]) -> None:
            self.log.append(f"{what} {' '.join(map(str, sorted(partitions)))}")

        return observed

    async def starting(self, assignment: Assignment, new: Collection[TopicPartition]) -> None:
        self.log.append("starting")


async def play(*assignments: Assignment, **options: Any) -> Scripted:
    script = Scripted(*assignments, **options)
    await script.rebalancer.run()
    return script


@simulated(range(20))
async def test_a_partition_is_released_after_it_is_committed() -> None:
    script = await play(Assignment({A: 0, B: 0}), Assignment({A: 0}), Assignment({A: 0, C: 1}))
    assert script.log == [
        *("load", "starting", "read t[0] t[1]", "next 1"),
        *("read t[0]", "commit ", "releasing t[1]", "forget 1", "next 2"),
        *("load", "starting", "read t[0] t[2]", "next 3"),
    ]


@simulated(range(20))
async def test_lost_partitions_are_not_committed() -> None:
    script = await play(Assignment({A: 0, B: 0}), Assignment({}, lost=frozenset({A, B})))
    assert script.log[4:] == ["read nothing", "forget 2", "lost t[0] t[1]", "next 2"]


@simulated(range(20))
async def test_a_partition_lost_during_its_commit_is_not_revoked() -> None:
    script = Scripted(Assignment({A: 0}), Assignment())
    script.lost_by_then = True
    await script.rebalancer.run()
    assert script.log[4:] == ["read nothing", "commit ", "forget 1", "lost t[0]", "next 2"]


@simulated([1])
async def test_revoking_many_partitions_scans_them_as_often_as_one() -> None:
    many = dict.fromkeys((TopicPartition("t", number) for number in range(100)), 0)
    few, lots = await play(Assignment({A: 0}), Assignment()), await play(Assignment(many))
    await lots.rebalancer.stop()
    assert lots.scans == few.scans


@simulated(range(20))
async def test_reading_starts_at_the_committed_offset_or_by_the_reset_policy() -> None:
    script = Scripted(Assignment({A: 0, B: 1, C: 1}, fresh=frozenset({C})))
    script.offsets = {A: 7}
    await script.rebalancer.run()
    starts = {tp: target.offset for tp, target in script.targets.items()}
    assert starts == {
        A: 7,
        B: LATEST,
        C: EARLIEST,
    }  # a topic that appeared meanwhile is read from its beginning
    assert script.targets[B].channel is script.streams[1].channel


@simulated(range(20))
async def test_only_partitions_that_change_their_stream_get_a_new_epoch() -> None:
    script = Scripted(Assignment({A: 0, B: 0}))
    await script.rebalancer.run()
    before = dict(script.targets)
    script.script = [Assignment({A: 0, B: 1})]
    await script.rebalancer.run()
    assert script.targets[A] == before[A]
    assert script.targets[B].epoch > before[B].epoch
    assert script.targets[B].channel is script.streams[1].channel


@simulated(range(20))
async def test_only_acknowledged_records_are_committed() -> None:
    script = Scripted(Assignment({A: 0}))
    await script.rebalancer.run()
    script.streams[0].channel.push(chunk(A, 0))
    records = aiter(script.streams[0])
    await anext(records)
    await anext(records)  # the second record is unacknowledged
    assert script.rebalancer.finished() == {A: 1}
    script.log.clear()
    await script.rebalancer.stop()
    assert script.log == ["read nothing", "commit t[0]@1", "releasing t[0]", "forget 1"]
    assert script.rebalancer.finished() == {}


@simulated(range(20))
async def test_a_failed_commit_does_not_block_the_rebalance() -> None:
    script = Scripted(Assignment({A: 0}))
    await script.rebalancer.run()
    script.script, script.trouble = [Assignment({})], [LeaderNotAvailable("t")]
    await script.rebalancer.run()
    assert script.log[-2:] == ["forget 1", "next 1"]


@simulated(range(20))
async def test_offsets_are_requested_until_they_are_loaded() -> None:
    script = Scripted(Assignment({A: 0}))
    script.trouble = [LeaderNotAvailable("t"), LeaderNotAvailable("t")]
    await script.rebalancer.run()
    assert script.log[:4] == ["load", "load", "load", "starting"]


@simulated(range(20))
async def test_the_load_of_offsets_ends_when_a_rebalance_is_pending() -> None:
    script = Scripted(Assignment({A: 0}), Assignment({A: 0}))
    script.trouble = [UnstableOffsetCommit("t")]
    asyncio.get_running_loop().call_later(1.7, setattr, script, "due", True)
    await script.rebalancer.run()
    assert script.log == [
        *("load", "load", "next 1"),
        *("load", "starting", "read t[0]", "next 2"),
    ]


@simulated(range(20))
async def test_a_final_error_ends_the_rebalancer() -> None:
    script = Scripted(Assignment({A: 0}))
    script.trouble = [ConsumerError("no")]
    with pytest.raises(ConsumerError, match="no"):
        await script.rebalancer.run()


@simulated(range(20))
async def test_no_offset_is_committed_without_auto_commit() -> None:
    script = await play(Assignment({A: 0}), Assignment({}), auto_commit=False)
    assert not any(line.startswith("commit") for line in script.log)


@simulated(range(20))
async def test_a_failed_rebalance_is_raised_in_every_stream() -> None:
    script = await play(Assignment({A: 0}, failure=LeaderNotAvailable("t")))
    for stream in script.streams:
        with pytest.raises(LeaderNotAvailable):
            await anext(aiter(stream))


@simulated(range(20))
async def test_read_again_restarts_a_stream_at_its_acknowledged_offset() -> None:
    script = Scripted(Assignment({A: 0, B: 1}))
    await script.rebalancer.run()
    script.streams[0].channel.push(chunk(A, 0))
    records = aiter(script.streams[0])
    await anext(records)
    await anext(records)
    before = dict(script.targets)
    script.rebalancer.read_again(script.streams[0])
    assert script.targets[A].offset == 1
    assert script.targets[A].epoch > before[A].epoch
    assert script.targets[B] == before[B]


@simulated(range(20))
async def test_the_start_offset_is_committed_without_a_record() -> None:
    script = Scripted(Assignment({A: 0}))
    script.began = {A: 40}  # the end of the log at the start
    await script.rebalancer.run()
    script.log.clear()
    await script.rebalancer.stop()
    assert "commit t[0]@40" in script.log


@simulated(range(20))
async def test_smaller_offsets_are_committable_after_a_log_truncation() -> None:
    script = Scripted(Assignment({A: 0}))
    await script.rebalancer.run()
    channel, records = script.streams[0].channel, aiter(script.streams[0])
    channel.push(chunk(A, 100))
    await anext(records)
    assert script.rebalancer.finished() == {A: 100}
    channel.push(chunk(A, 0))
    script.log.clear()
    for _ in range(3):
        await anext(records)
    assert script.rebalancer.finished() == {A: 0}
    assert script.log == ["forget 1"]

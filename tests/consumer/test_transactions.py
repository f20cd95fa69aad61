"""Transactions during rebalances, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import TransactionFenced
from asyncconsumer.streams.messages import Message
from asyncconsumer.testing.fake_kafka.group_state import Phase
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_redelivery import Producer
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast

OFFSET_FETCH, UNSTABLE = 9, 88
BOTH = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})


class Places(Producer):
    """A producer that stores sent records and the offsets of several partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[TopicPartition, int] = {}

    def make(self, messages: Collection[Message[Any, Any]]) -> None:
        for message in messages:
            self.send(message.partition * 1_000 + message.offset)

    async def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        self.done |= {TopicPartition(*member): offset for member, offset in offsets.items()}


@asynccontextmanager
async def world() -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        for number in range(2):
            cluster.append("t", number, 3)
        yield cluster


def make_member(cluster: GroupCluster, **options: Any) -> Consumer[Any, Any]:
    settings = {
        "commit_policy": "manual",
        "partition_assignment_strategy": "cooperative-sticky",
        "revoke_grace_ms": 0,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
    }
    return make_consumer(cluster, **{**settings, **options})


async def having(consumer: Consumer[Any, Any], count: int) -> None:
    async with asyncio.timeout(600):
        while len(consumer.assignment) != count:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def half_and_then_all(cluster: GroupCluster) -> AsyncIterator[tuple[Any, Any, Places]]:
    """Yield a member that had one partition in its first transaction, and then got the other."""
    producer = Places()
    async with make_member(cluster) as consumer:
        batches = consumer.batches(6, 100)
        async with make_member(cluster) as two:
            await having(consumer, 1)
            await having(two, 1)
            async with consumer.transaction(producer):
                producer.make(await anext(batches))
        await having(consumer, 2)
        yield consumer, batches, producer


@simulated(seeds=range(3))
async def test_a_partition_revoked_between_transactions_fences_the_next_one() -> None:
    async with world() as cluster, half_and_then_all(cluster) as (member, batches, producer):
        batch = await anext(batches)  # of the partition that is new
        async with make_member(cluster) as two:
            await having(two, 1)
            await having(member, 1)
            lost = BOTH - member.assignment
            assert {TopicPartition("t", each.partition) for each in batch} == lost
            with pytest.raises(TransactionFenced) as fenced:
                async with member.transaction(producer):
                    producer.make(batch)
            assert set(fenced.value.partitions) == lost
            assert len(producer.sent) == 3  # of the first one
            async with two.transaction(producer):
                producer.make(await anext(two.batches(6, 100)))
        assert sorted(producer.sent) == [0, 1, 2, 1_000, 1_001, 1_002]


@simulated(seeds=range(3))
async def test_records_of_a_new_partition_are_committed_by_their_transaction() -> None:
    async with world() as cluster, half_and_then_all(cluster) as (member, batches, producer):
        async with member.transaction(producer):
            producer.make(await anext(batches))
        assert producer.done == dict.fromkeys(BOTH, 3)
        for number in range(2):
            cluster.append("t", number, 1)
        with suppress(ValueError):
            async with member.transaction(producer):
                producer.make(await anext(batches))
                raise ValueError("aborted")
        async with asyncio.timeout(600):
            while len(producer.sent) < 8:
                async with member.transaction(producer):
                    producer.make(await anext(batches))
        assert sorted(producer.sent) == [0, 1, 2, 3, 1_000, 1_001, 1_002, 1_003]


@simulated(seeds=range(3))
async def test_a_revocation_without_records_in_flight_aborts_no_transaction() -> None:
    async with world() as cluster, half_and_then_all(cluster) as (member, batches, producer):
        async with member.transaction(producer):
            producer.make(await anext(batches))
        async with make_member(cluster) as two, member.transaction(producer):
            await having(two, 1)
            await having(member, 1)
        assert len(producer.sent) == 6


@simulated(seeds=range(3))
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_an_open_transaction_does_not_block_a_rebalance(
    strategy: str,
) -> None:
    """A member whose offsets are pending joins, and loads those of its assignment later."""
    async with world() as cluster:
        cluster.fail_next(OFFSET_FETCH, UNSTABLE, times=10_000)
        async with (
            make_member(cluster, partition_assignment_strategy=strategy) as consumer,
            make_member(cluster, partition_assignment_strategy=strategy) as two,
        ):
            group = cluster.groups["g"]
            await until(lambda: group.phase is Phase.STABLE and len(group.members) == 2, 20)
            assert not consumer.assignment
            assert not two.assignment
            cluster.forget_troubles()
            await having(consumer, 1)
            await having(two, 1)


class Shielded(Places):
    """A producer like aiokafka's, whose commit continues after its caller is cancelled."""

    def __init__(self, group: asyncio.TaskGroup, seconds: float) -> None:
        super().__init__()
        self.committing = asyncio.Event()
        self._group = group
        self._seconds = seconds

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        made: list[int] = []
        self._now = made
        yield
        await asyncio.shield(self._group.create_task(self._commit(made)))

    async def _commit(self, made: list[int]) -> None:
        self.committing.set()
        await asyncio.sleep(self._seconds)
        self.sent += made


@asynccontextmanager
async def cancelled_while_it_commits(seconds: float, times: int = 1) -> AsyncIterator[Any]:
    """Yield a member that read everything and was cancelled during its commit."""
    async with world() as cluster, make_member(cluster) as consumer, asyncio.TaskGroup() as group:
        producer, batches = Shielded(group, seconds), consumer.batches(6, 1_000)

        async def work() -> None:
            async with consumer.transaction(producer):
                producer.make(await anext(batches))

        working = group.create_task(work())
        await producer.committing.wait()
        for _ in range(times):
            working.cancel()
            await asyncio.sleep(0.001)
        await asyncio.wait({working})
        assert working.cancelled()
        cluster.append("t", 0, 1)
        yield batches, producer


@simulated(seeds=range(3))
async def test_a_reader_cancelled_in_a_commit_continues_after_its_offsets() -> None:
    async with cancelled_while_it_commits(5) as (batches, producer):
        assert len(producer.sent) == 6
        assert [(member.partition, member.offset) for member in await anext(batches)] == [(0, 3)]


@simulated(seeds=range(3))
@pytest.mark.parametrize(("seconds", "times"), [(60, 1), (5, 2)])
async def test_records_of_a_commit_that_timed_out_are_redelivered(
    seconds: float, times: int
) -> None:
    async with cancelled_while_it_commits(seconds, times) as (batches, producer):
        assert not producer.sent
        assert {(member.partition, member.offset) for member in await anext(batches)} >= {
            (0, 0),
            (1, 0),
        }

"""Two events at once: close and outage, seek and dead letter, batch and commit."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, Record, TopicPartition
from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ListenerFailed,
    NoCommittedOffset,
)
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import run, simulated
from tests.consumer.test_redelivery import corrupt_batch
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)


@asynccontextmanager
async def world(partitions: int = 1) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", partitions)
        yield cluster


def committed(cluster: GroupCluster) -> list[int]:
    return [offset["offset"] for offset in cluster.storage.offsets["g"].values()]


@simulated([1, 2])
async def test_an_outage_does_not_end_a_reader_with_an_idle_timeout() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 2000, batches=50, size=1000)
        small: dict[str, Any] = {"max_buffered_bytes": 1 << 17, "max_partition_fetch_bytes": 20_000}
        got = 0
        async with make_consumer(cluster, idle_timeout_ms=5000, **small) as consumer:
            async for _ in consumer:
                got += 1
                if got == 500:
                    cluster.kill(1)
                    asyncio.get_running_loop().call_later(15, cluster.start, 1)
        assert got == 2000


@simulated([1, 2])
async def test_a_pending_assignment_does_not_end_a_reader_with_an_idle_timeout() -> None:
    class Slow:
        async def on_partitions_revoked(self, _: Collection[TopicPartition]) -> None:
            await asyncio.sleep(8)

    options: dict[str, Any] = {"partition_assignment_strategy": "range"}
    async with world(2) as cluster, make_consumer(cluster, listener=Slow(), **options) as other:
        await other.wait_assigned()
        cluster.append("t", 1, 50)
        cluster.append("t", 0, 50)
        async with make_consumer(cluster, idle_timeout_ms=5000, **options) as consumer:
            assert len([record async for record in consumer]) >= 50


@simulated([1])
async def test_an_undelivered_batch_is_not_committed_at_most_once() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 10)
        async with make_consumer(cluster, commit_policy="at_most_once") as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await anext(consumer.batches(max_records=100, max_wait_ms=10_000))
        assert committed(cluster) == [0]
        async with make_consumer(cluster, idle_timeout_ms=2000) as consumer:
            assert len([record async for record in consumer]) == 10


@simulated([1])
async def test_a_manual_commit_includes_records_in_flight_of_its_reader() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 5)
        async with make_consumer(cluster, commit_policy="manual") as consumer:
            async for record in consumer:
                assert await consumer.commit() == {AT: record.offset + 1}
                if record.offset == 2:
                    break
            async for batch in consumer.batches(max_records=2, max_wait_ms=10):
                assert await consumer.commit() == {AT: batch[-1].offset + 1}
                break
        assert committed(cluster) == [5]


@simulated([1])
async def test_a_manual_commit_excludes_records_in_flight_of_another_task() -> None:
    async with world() as cluster:
        cluster.append("t", 0, 5)
        async with (
            make_consumer(cluster, commit_policy="manual") as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            got = asyncio.Event()

            async def read() -> None:
                async for record in consumer:
                    if record.offset == 2:
                        got.set()
                        await asyncio.sleep(10)
                        break

            tasks.create_task(read())
            await got.wait()
            assert await consumer.commit() == {AT: 2}


@simulated([1])
async def test_a_seek_while_a_dead_letter_is_written_is_kept() -> None:
    class ControlledDeadLetters:
        let = asyncio.Event()

        async def write(self, *_: object) -> None:
            await self.let.wait()

    async with world() as cluster:
        for _ in range(50):
            cluster.append("t", 0, 1)
        corrupt_batch(cluster, 2)
        consumer: Consumer[Any, Any]
        async with make_consumer(cluster, on_poison="skip") as consumer:
            reading: Any = consumer._reading
            poison = reading._policy.poison._replace(dead_letters=ControlledDeadLetters())
            reading._policy = reading._policy._replace(poison=poison)
            got: list[int] = []
            async with asyncio.TaskGroup() as tasks:

                async def read() -> None:
                    async for record in consumer:
                        got.append(record.offset)
                        if record.offset == 49:
                            return

                tasks.create_task(read())
                await asyncio.sleep(3)
                consumer.seek(AT, 40)
                await asyncio.sleep(3)
                ControlledDeadLetters.let.set()
        assert got == [0, 1, *range(40, 50)]


@simulated([1, 2])
async def test_the_end_of_the_block_waits_for_a_concurrent_unsubscribe() -> None:
    async with world() as cluster, asyncio.TaskGroup() as tasks:
        cluster.append("t", 0, 5)
        async with make_consumer(cluster) as consumer:
            records = aiter(consumer)
            for _ in range(5):
                await anext(records)
            cluster.slow(cluster.coordinator("g"), 0.5)  # delays the unsubscription
            tasks.create_task(consumer.unsubscribe())
            await asyncio.sleep(0.1)
        assert committed(cluster) == [5]  # the block was left without an error
        assert not cluster.groups["g"].members


@simulated([1])
async def test_a_listener_cannot_unsubscribe() -> None:
    class Leaving:
        async def on_partitions_assigned(self, _: Collection[TopicPartition]) -> None:
            await consumer.unsubscribe()

    async with world() as cluster:
        async with make_consumer(cluster, listener=Leaving()) as consumer:
            with pytest.raises(ConfigError, match="a rebalance listener cannot"):
                await anext(aiter(consumer))
        assert not cluster.groups["g"].members


@simulated([1, 2])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_failed_consumer_releases_all_partitions_to_its_group(strategy: str) -> None:
    class Failing:
        def on_partitions_revoked(self, _: Collection[TopicPartition]) -> None:
            raise OSError("no disk")

    async with world(2) as cluster:
        for number in (0, 1):
            cluster.append("t", number, 10)
        options: dict[str, Any] = {"partition_assignment_strategy": strategy}
        async with make_consumer(cluster, listener=Failing(), **options) as consumer:
            records = aiter(consumer)
            for _ in range(12):
                await anext(records)  # which is never acknowledged
            async with make_consumer(cluster, **options) as two, asyncio.timeout(40):
                others = aiter(two)
                seen = [await anext(others) for _ in range(9)]
                assert len(two.assignment) == 2
            with pytest.raises(ListenerFailed, match="no disk"):
                await anext(records)
        assert len({(record.partition, record.offset) for record in seen}) == 9


class Asking:
    """A listener that requests positions."""

    def __init__(self) -> None:
        self.consumer: Consumer[Any, Any]
        self.began: list[int] = []
        self.ended: list[int] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.began += [await self.consumer.position(tp) for tp in partitions]

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.ended += [await self.consumer.position(tp) for tp in partitions]


@simulated([1, 2])
@pytest.mark.parametrize(("reset", "start"), [("earliest", 0), ("latest", 10)])
async def test_a_listener_may_request_positions(reset: str, start: int) -> None:
    async with world() as cluster:
        cluster.append("t", 0, 10)
        listener = Asking()
        async with make_consumer(cluster, listener=listener, auto_offset_reset=reset) as consumer:
            listener.consumer = consumer
            async with asyncio.timeout(10):
                await consumer.wait_assigned()
                cluster.append("t", 0, 10)
                records = aiter(consumer)
                assert [(await anext(records)).offset for _ in range(3)] == [
                    start,
                    start + 1,
                    start + 2,
                ]
        assert listener.began == [start]
        assert listener.ended == [start + 3] == committed(cluster)


@simulated([1])
async def test_a_missing_offset_is_raised_while_a_listener_runs() -> None:
    async with world() as cluster:
        listener = Asking()
        async with make_consumer(cluster, listener=listener, auto_offset_reset="none") as consumer:
            listener.consumer = consumer
            with pytest.raises(NoCommittedOffset):
                await consumer.wait_assigned()


@simulated([1])
async def test_a_divided_consumer_is_read_by_its_streams_only() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        consumer.streams(2)
        for way in (
            consumer.__aiter__,
            consumer.batches,
            consumer.chunks,
            consumer.partitions,
            lambda: consumer.streams(2),
        ):
            with pytest.raises(ConfigError, match="has divided this consumer"):
                way()


@simulated([1])
@pytest.mark.parametrize("first", ["__aiter__", "batches", "chunks", "arrow"])
@pytest.mark.parametrize("second", ["__aiter__", "batches", "chunks", "arrow"])
async def test_only_one_task_can_wait_for_the_next_record(first: str, second: str) -> None:
    async with world() as cluster, make_consumer(cluster) as consumer, asyncio.TaskGroup() as tasks:
        await consumer.wait_assigned()
        records = getattr(consumer, first)()
        waiting = tasks.create_task(anext(records))
        await asyncio.sleep(1)
        for others in (getattr(consumer, second)(), records):
            with pytest.raises(RuntimeError, match="already waits for the next"):
                await anext(others)
        cluster.append("t", 0, 1)
        assert await waiting
        in_flight = (
            0 if first == "chunks" else 1
        )  # a chunk acknowledges only records that were iterated over
        assert await consumer.commit() == {
            AT: in_flight
        }  # its task has ended, so this task is the reader


@simulated([1])
async def test_streams_with_an_idle_timeout_are_refused() -> None:
    async with world() as cluster, make_consumer(cluster, idle_timeout_ms=100) as consumer:
        with pytest.raises(ConfigError, match="`idle_timeout_ms` ends a single reader"):
            consumer.streams(2)


@simulated([1, 2])
async def test_a_consumer_commits_and_leaves_during_a_concurrent_subscribe() -> None:
    """The reader raises its own error, not one about concurrent calls."""
    async with world() as cluster, asyncio.TaskGroup() as group:
        cluster.add_topic("u", 1)
        cluster.append("t", 0, 3)

        async def subscribe(consumer: Consumer[Any, Any]) -> None:
            with suppress(ClosedError):
                await consumer.subscribe("t", "u")

        async def leave() -> None:
            async with make_consumer(cluster, auto_commit_interval_ms=60_000) as consumer:
                reading = aiter(consumer)
                assert [(await anext(reading)).offset for _ in range(3)] == [0, 1, 2]
                group.create_task(subscribe(consumer))
                await asyncio.sleep(0)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await leave()
        assert committed(cluster) == [2]
        assert not cluster.groups["g"].members


@pytest.mark.parametrize("policy", ["auto", "manual", "at_most_once"])
@pytest.mark.parametrize("way", ["records", "batches", "chunks", "arrow", "stream"])
@simulated([1])
async def test_records_after_stop_at_are_not_committed(way: str, policy: str) -> None:
    async with world() as cluster:
        cluster.append("t", 0, 12, batches=2)
        async with make_consumer(cluster, stop_at={AT: 3}, commit_policy=policy) as consumer:
            source: Any = consumer
            if way != "records":
                source = consumer.streams(1)[0] if way == "stream" else getattr(consumer, way)()
            async for _ in source:
                pass
            assert await consumer.position(AT) == 3
            if policy == "manual":
                await consumer.commit()
        assert committed(cluster) == [3]
        async with make_consumer(cluster, stop_at="end") as other:
            assert [record.offset async for record in other] == list(range(3, 12))


class Forgetful(Interceptor):
    def on_consume(self, record: Record) -> Record:
        return None  # type: ignore[return-value]


class Elsewhere(Interceptor):
    def on_consume(self, record: Record) -> Record:
        return Record("another", record.partition, record.offset, value=record.value)


class Waiting(Interceptor):
    async def on_consume(self, record: Record) -> Record:  # type: ignore[override]
        return record


@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes}], ids=["raw", "messages"])
@pytest.mark.parametrize("interceptor", [Forgetful(), Elsewhere()], ids=["none", "elsewhere"])
@simulated([1])
async def test_a_wrong_result_of_an_interceptor_drops_no_record(
    interceptor: Interceptor, options: dict[str, Any]
) -> None:
    async with world() as cluster:
        cluster.append("t", 0, 3)
        options |= {"interceptors": [interceptor], "stop_at": "end", "commit_policy": "manual"}
        async with make_consumer(cluster, **options) as consumer:
            assert [(record.topic, record.offset) async for record in consumer] == [
                ("t", 0),
                ("t", 1),
                ("t", 2),
            ]
        async with make_consumer(cluster, **options) as consumer:
            assert [len(batch) async for batch in consumer.batches(3)] == [3]


def test_an_interceptor_with_a_coroutine_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="`async def` method"):
        Consumer("t", bootstrap_servers="k:1", group_id="g", interceptors=[Waiting()])


def test_a_topic_that_does_not_exist_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With a wrong name, the consumer would wait forever."""

    async def read(*topics: str) -> None:
        async with world() as cluster, make_consumer(cluster, topics) as consumer:
            await consumer.wait_assigned()

    run(lambda: read("t"), seed=1)
    assert "does not exist" not in caplog.text
    run(lambda: read("t", "tt"), seed=1)
    assert "topic 'tt' does not exist" in caplog.text

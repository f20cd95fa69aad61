"""Outages of topics, brokers and stores, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConfigError, Consumer, Record, TopicPartition
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import coordinating, environment, make_consumer
from tests.support.worlds.handlers import make_app

pytestmark = pytest.mark.fast

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}


@asynccontextmanager
async def world(partitions: int = 2) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", partitions)
        yield cluster


@asynccontextmanager
async def reading(
    consumer: Consumer[Any, Any], seconds: float = 0
) -> AsyncIterator[list[tuple[str, int]]]:
    """Read with a pause at each record; yield the list of delivered records."""
    got: list[tuple[str, int]] = []

    async def read() -> None:
        async for record in consumer:
            got.append((record.topic, record.offset))
            await asyncio.sleep(seconds)

    task = asyncio.create_task(read())  # noqa: TID251 - it is a user's
    try:
        yield got
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


def committed(cluster: GroupCluster, topic: str, partition: int = 0) -> int | None:
    row = cluster.storage.offsets.get("g", {}).get((topic, partition))
    return None if row is None else row["offset"]


def by_pattern(
    cluster: FakeCluster, pattern: str = r"t\..*", seed: int = 2, **options: Any
) -> Consumer[Any, Any]:
    settings = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "metadata_refresh_ms": 1_000,
        "heartbeat_thread": False,
    }
    return environment(cluster, seed).run(Consumer, pattern=pattern, **{**settings, **options})


# --- a topic that is re-created ------------------------------------------------------------------


def recreate(cluster: GroupCluster) -> None:
    """Re-create the topic and delete its committed offsets, as Kafka does."""
    cluster.recreate_topic("t")
    cluster.storage.offsets["g"].clear()


@simulated([1])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_offsets_of_a_deleted_topic_are_not_committed_to_its_successor(policy: str) -> None:
    async with world(1) as cluster:
        async with (
            make_consumer(cluster, auto_offset_reset=policy) as consumer,
            reading(consumer) as got,
        ):
            await consumer.wait_assigned()
            await until(lambda: committed(cluster, "t") == 0)
            cluster.append("t", 0, 100)
            await until(lambda: len(got) == 100)
            recreate(cluster)
            await until(lambda: consumer.counts["recreated"] == 1)
            await until(lambda: committed(cluster, "t") is not None)
            assert committed(cluster, "t") == 0
            assert await consumer.position(A) == 0
        assert committed(cluster, "t") == 0
        cluster.append("t", 0, 300)
        async with (
            make_consumer(cluster, auto_offset_reset=policy) as consumer,
            reading(consumer) as got,
        ):
            await until(lambda: len(got) == 300)


@simulated([1])
async def test_buffered_records_of_a_recreated_topic_are_discarded() -> None:
    async with world(1) as cluster, make_consumer(cluster) as consumer:
        cluster.append("t", 0, 100, batches=10)
        records = aiter(consumer)
        assert (await anext(records)).offset == 0
        await asyncio.sleep(5)  # all is fetched
        recreate(cluster)
        await until(lambda: consumer.counts["recreated"] == 1)
        cluster.append("t", 0, 10)
        assert [(await anext(records)).offset for _ in range(10)] == list(range(10))


@simulated([1])
async def test_an_app_does_not_commit_old_offsets_to_a_recreated_topic() -> None:
    async with world(1) as cluster:
        handled: list[int] = []

        async def handle(record: Record) -> None:
            handled.append(record.offset)

        cluster.append("t", 0, 100)
        app = make_app(cluster)
        app.handler("t")(handle)
        async with app:
            await until(lambda: committed(cluster, "t") == 100)
            recreate(cluster)
            await until(lambda: committed(cluster, "t") is not None)
        assert committed(cluster, "t") == 0


# --- a topic that is deleted ---------------------------------------------------------------------


@simulated([1])
async def test_a_deleted_topic_does_not_block_the_commits_of_other_topics() -> None:
    async with GroupCluster(Random(1)) as cluster:
        for topic in ("t.a", "t.b"):
            cluster.add_topic(topic, 1)
            cluster.append(topic, 0, 10)
        async with (
            by_pattern(cluster, auto_offset_reset="earliest") as consumer,
            reading(consumer) as got,
        ):
            await until(lambda: len(got) == 20)
            cluster.delete_topic("t.a")
            async with asyncio.timeout(60):
                while len(consumer.assignment) == 2:
                    cluster.append("t.b", 0, 1)
                    await asyncio.sleep(1)
                    done = sum(topic == "t.b" for topic, _ in got)
                await until(lambda: (committed(cluster, "t.b") or 0) >= done, 10)
                cluster.append("t.b", 0, 1)
                await until(
                    lambda: got[-1] == ("t.b", cluster.end(TopicPartition("t.b", 0)) - 1), 5
                )


# --- a store that hangs --------------------------------------------------------------------------


class Hanging:
    """A user's offset store that hangs while `hangs` is set."""

    def __init__(self, retained: dict[TopicPartition, int]) -> None:
        self.hangs = False
        self.committed = retained

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self.committed.get(tp) for tp in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.hangs:
            await asyncio.sleep(10_000)
        self.committed |= offsets


@simulated([1])
async def test_a_hanging_offset_store_does_not_prevent_a_rebalance() -> None:
    async with world() as cluster:
        for number in (0, 1):
            cluster.append("t", number, 2000, batches=20)
        retained: dict[TopicPartition, int] = {}
        first, second = Hanging(retained), Hanging(retained)
        options = {**QUICK, "commit_timeout_ms": 20_000}
        cooperative = {"partition_assignment_strategy": "cooperative-sticky", **options}
        async with (
            make_consumer(cluster, offsets=first, **cooperative) as consumer,
            reading(consumer, 0.05) as got,
        ):
            await until(lambda: len(got) > 20)
            first.hangs = True
            async with make_consumer(cluster, offsets=second, **cooperative) as two:
                await until(lambda: len(two.assignment) == 1, 60)
                first.hangs = False


# --- a store that loads invalid offsets -----------------------------------------------------------


class Answering:
    """A store that always loads the same answer, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def load(self, partitions: Iterable[TopicPartition]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return None if self.answer is None else dict.fromkeys(partitions, self.answer)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass


@simulated([1])
@pytest.mark.parametrize("answer", [-1, -2, "5", 2.0, True, None])
async def test_an_invalid_offset_of_an_offset_store_is_reported(answer: Any) -> None:
    async with world(1) as cluster:
        cluster.append("t", 0, 10)
        async with make_consumer(cluster, offsets=Answering(answer)) as consumer:
            with pytest.raises(ConfigError, match=f"the offset store loaded {answer!r}"):
                await anext(aiter(consumer))


@simulated([1])
async def test_the_log_lines_of_a_failing_offset_store_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1) as cluster:
        async with make_consumer(cluster, offsets=Answering(OSError("no disk"))):
            await asyncio.sleep(50)
        assert 0 < len([line for line in caplog.messages if "no disk" in line]) <= 10


# --- a partition that is paused ------------------------------------------------------------------


@simulated([1])
async def test_the_buffer_of_a_paused_partition_does_not_starve_others() -> None:
    small = {
        "max_buffered_bytes": 1 << 20,
        "max_partition_fetch_bytes": 100_000,
        "fetch_max_bytes": 200_000,
    }
    async with world() as cluster, make_consumer(cluster, **small) as consumer:
        cluster.append("t", 0, 3000, batches=300, size=1000)
        await consumer.wait_assigned()
        await asyncio.sleep(5)  # much is fetched ahead
        records = aiter(consumer)
        assert (await anext(records)).partition == 0
        consumer.pause(A)
        cluster.append("t", 1, 3000, batches=300, size=1000)
        async with asyncio.timeout(60):
            for _ in range(3000):
                assert (await anext(records)).partition == 1
        consumer.resume(A)
        async with asyncio.timeout(60):
            assert [(await anext(records)).offset for _ in range(2999)] == list(range(1, 3000))


# --- latest, and records written after the start -------------------------------------------------


@simulated([1])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_new_topic_is_read_from_its_beginning_only_once(
    protocol: str,
) -> None:
    async with coordinating(protocol) as cluster:
        cluster.add_topic("t.a", 1)
        options: dict[str, Any] = {
            "auto_offset_reset": "latest",
            "commit_policy": "manual",
            "group_protocol": protocol,
        }
        async with by_pattern(cluster, **options) as consumer, reading(consumer) as got:
            await consumer.wait_assigned()
            cluster.add_topic("t.b", 1)
            cluster.append("t.b", 0, 100)
            await until(lambda: len(got) == 100)
            before = consumer.counts["rebalanced"]
            async with by_pattern(cluster, pattern=r"t\.b", seed=3, **options) as two:
                await two.wait_assigned()
                await until(lambda: consumer.counts["rebalanced"] > before)
                await asyncio.sleep(10)
            await until(lambda: len(consumer.assignment) == 2)
            await asyncio.sleep(10)
            assert len(got) == 100


# --- health --------------------------------------------------------------------------------------


@simulated([1])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_whose_session_expired_in_an_outage_is_not_ready(protocol: str) -> None:
    async with (
        coordinating(protocol) as cluster,
        make_consumer(cluster, group_protocol=protocol, **QUICK) as consumer,
        reading(consumer) as _,
    ):
        cluster.add_topic("t", 2)
        for number in (0, 1):
            cluster.append("t", number, 20)
        await until(lambda: len(consumer.assignment) == 2 and consumer.health().ready)
        await asyncio.sleep(10)
        cluster.kill(1)
        await asyncio.sleep(12)  # the session is over
        for _ in range(100):
            await asyncio.sleep(0.5)
            assert not consumer.health().ready, consumer.health()
        cluster.start(1)
        await until(lambda: consumer.health().ready)
        assert len(consumer.assignment) == 2


class Slow:
    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(40)


@simulated([1])
async def test_health_reports_the_wait_for_other_members_in_a_rebalance() -> None:
    eager = {"partition_assignment_strategy": "range", **QUICK}
    async with (
        world() as cluster,
        make_consumer(cluster, **eager) as consumer,
        make_consumer(cluster, listener=Slow(), **eager) as slow,
        reading(consumer) as _,
        reading(slow) as _,
    ):
        await until(lambda: len(consumer.assignment) == len(slow.assignment) == 1)
        await until(lambda: consumer.health().ready)
        async with make_consumer(cluster, **eager):
            await until(lambda: not consumer.assignment)
            for _ in range(30):
                assert consumer.health().state == "rebalancing", consumer.health()
                assert not consumer.health().ready
                await asyncio.sleep(1)
            await until(lambda: consumer.health().ready)

"""Time limits of planning and tasks, on fake brokers in virtual time."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pyarrow as pa
import pytest

from asyncconsumer.errors import ConsumerError, DataLoss, OffsetUnavailable
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.resolve import drop_missing
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.values.columns import Columns
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.types import OffsetRange, TopicPartition
from tests.consumer.test_corrupt_records import repaired_batch
from tests.consumer.test_redelivery import corrupt_batch

pytestmark = pytest.mark.fast

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
SMALL = {"bootstrap.servers": "broker-1:9092", "max.partition.fetch.bytes": "1200"}

Scenario = Callable[[FakeCluster, Client], Awaitable[None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Return a function that runs a scenario on a cluster with two topics of a hundred records."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[FakeCluster, Client]]:
        async with FakeCluster(Random(1)) as cluster:
            for topic in ("t", "u"):
                cluster.add_topic(topic, 1)
                for _ in range(10):
                    cluster.append(topic, 0, 10)
            monkeypatch.setattr(
                "asyncconsumer.spark.source.client.KafkaClient",
                functools.partial(KafkaClient, opener=cluster.open, randomness=Random(2)),
            )
            client = Client(SMALL)
            await client.open()
            try:
                yield cluster, client
            finally:
                await client.close()

    def run_scenario(scenario: Scenario) -> None:
        async def main() -> None:
            async with opened() as (cluster, client):
                await scenario(cluster, client)

        run(main, seed=3)

    return run_scenario


def test_a_deleted_topic_is_dropped_soon(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        assert await client.latest([T0, U0]) == {T0: 100, U0: 100}
        cluster.delete_topic("t")
        async with asyncio.timeout(10):
            assert await drop_missing(client.latest, [T0, U0]) == {U0: 100}

    play(scenario)


def test_a_log_truncated_while_it_is_read_raises(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        reader = client.reader(OffsetRange(*T0, 0, 100))
        await reader.next()
        cluster.move_leader(T0, 2, lose=20)

        async def read_all() -> None:
            while await reader.next() is not None:
                pass

        async with asyncio.timeout(10):
            with pytest.raises(OffsetUnavailable, match="the log ends at 80"):
                await read_all()
        assert reader.position == 80

    play(scenario)


@pytest.mark.parametrize("fail", [True, False])
def test_a_task_reads_the_rest_of_a_truncated_log(
    play: Callable[[Scenario], None], fail: bool
) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        columns = Columns(pa.schema([("offset", pa.int64())]))
        ranges = [OffsetRange(*T0, 0, 100), OffsetRange(*U0, 90, 100)]
        results: list[int] = []

        async def read_all() -> None:
            async for batch in read(client, ranges, columns, fail_on_data_loss=fail):
                if not results:
                    cluster.move_leader(T0, 2, lose=20)
                results.extend(batch.column("offset").to_pylist())

        async with asyncio.timeout(20):
            if fail:
                with pytest.raises(DataLoss, match="the log ends at 80"):
                    await read_all()
            else:
                await read_all()
        assert results == [*range(80), *([] if fail else range(90, 100))]

    play(scenario)


@pytest.mark.parametrize("what", ["kill", "freeze", "black_hole"])
def test_a_commit_without_a_coordinator_fails_soon(
    play: Callable[[Scenario], None], what: str
) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        await client.latest([T0])
        for node in cluster.brokers:
            getattr(cluster, what)(node)
        with pytest.raises((ConsumerError, TimeoutError)):
            async with asyncio.timeout(5) as limit:
                await client.commit("lag", {T0: 1})
        assert not limit.expired()

    play(scenario)


def test_record_sizes_are_sampled_soon_or_not_at_all(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        offset_range = OffsetRange(*T0, 5, 95)
        lost = [OffsetRange("no", 0, 0, 9), OffsetRange(*U0, 500, 900)]
        result = await client.record_bytes([offset_range, *lost])
        assert result.keys() == {"t"}
        assert 5 < result["t"] < 500
        for node in cluster.brokers:
            cluster.freeze(node)
        async with asyncio.timeout(3):
            assert await client.record_bytes([offset_range]) == {}

    play(scenario)


def test_a_task_fetches_corrupt_records_again(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        columns = Columns(pa.schema([("offset", pa.int64())]))
        ranges = [OffsetRange(*T0, 0, 100), OffsetRange(*U0, 90, 100)]
        corrupt_batch(cluster, 50)
        with repaired_batch(cluster, 2, base=50) as handler:
            result = [
                offset
                async for batch in read(client, ranges, columns, fail_on_data_loss=True)
                for offset in batch.column("offset").to_pylist()
            ]
        assert handler.fetches == 2
        assert result == [*range(100), *range(90, 100)]

    play(scenario)


def test_a_partition_reader_waits_for_its_end_offset(play: Callable[[Scenario], None]) -> None:
    async def scenario(cluster: FakeCluster, client: Client) -> None:
        leaders = client._session.leaders
        reader = PartitionReader(T0, 90, leaders, client.fetch_config, end=105)
        asyncio.get_running_loop().call_later(60, cluster.append, "t", 0, 5)
        while await reader.next() is not None:
            pass
        assert reader.position == 105

    play(scenario)

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

Scene = Callable[[FakeCluster, Client], Awaitable[None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Plays a scene of a client and a cluster with two topics of a hundred records."""

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

    def played(scene: Scene) -> None:
        async def main() -> None:
            async with opened() as (cluster, client):
                await scene(cluster, client)

        run(main, seed=3)

    return played


def test_a_deleted_topic_that_was_known_is_soon_believed_gone(
    play: Callable[[Scene], None],
) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
        assert await client.latest([T0, U0]) == {T0: 100, U0: 100}
        cluster.delete_topic("t")
        async with asyncio.timeout(10):
            assert await drop_missing(client.latest, [T0, U0]) == {U0: 100}

    play(scene)


def test_a_log_that_loses_its_tail_while_it_is_read(play: Callable[[Scene], None]) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
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

    play(scene)


@pytest.mark.parametrize("fail", [True, False])
def test_a_task_reads_what_such_a_log_has_left(play: Callable[[Scene], None], fail: bool) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
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

    play(scene)


@pytest.mark.parametrize("what", ["kill", "freeze", "black_hole"])
def test_a_group_that_nobody_coordinates_is_not_waited_for(
    play: Callable[[Scene], None], what: str
) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
        await client.latest([T0])
        for node in cluster.brokers:
            getattr(cluster, what)(node)
        with pytest.raises((ConsumerError, TimeoutError)):
            async with asyncio.timeout(5) as limit:
                await client.commit("lag", {T0: 1})
        assert not limit.expired()

    play(scene)


def test_sizes_of_records_are_reportedon_or_not_at_all(play: Callable[[Scene], None]) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
        offset_range = OffsetRange(*T0, 5, 95)
        lost = [OffsetRange("no", 0, 0, 9), OffsetRange(*U0, 500, 900)]
        result = await client.record_bytes([offset_range, *lost])
        assert result.keys() == {"t"}
        assert 5 < result["t"] < 500
        for node in cluster.brokers:
            cluster.freeze(node)
        async with asyncio.timeout(3):
            assert await client.record_bytes([offset_range]) == {}

    play(scene)


def test_a_task_fetches_damaged_records_again(play: Callable[[Scene], None]) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
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

    play(scene)


def test_an_end_that_is_still_to_come_is_waited_for(play: Callable[[Scene], None]) -> None:
    async def scene(cluster: FakeCluster, client: Client) -> None:
        leaders = client._session.leaders
        reader = PartitionReader(T0, 90, leaders, client.fetch_config, end=105)
        asyncio.get_running_loop().call_later(60, cluster.append, "t", 0, 5)
        while await reader.next() is not None:
            pass
        assert reader.position == 105

    play(scene)

"""What an executor's Python process does, without a Spark around it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from asyncconsumer.errors import DataLost
from asyncconsumer.ranges import OffsetRange
from asyncconsumer.spark.columns import Columns
from asyncconsumer.spark.home import Home
from asyncconsumer.spark.reader import read
from asyncconsumer.testing.handles import KafkaHandle
from tests.spark_source.world import fill

OFFSETS = Columns(pa.schema([("offset", pa.int64())]))


@pytest.fixture
def home() -> Iterator[Home]:
    one = Home()
    yield one
    one.close()


def batches(
    home: Home, kafka: KafkaHandle, *ranges: OffsetRange, fail: bool = True, size: int = 2**20
) -> Iterator[Any]:
    options = {"max.partition.fetch.bytes": str(size)}
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers, **options})
    return home.iterate(read(client, ranges, OFFSETS, fail_on_data_loss=fail))


def offsets(found: Iterator[Any]) -> list[int]:
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_ranges_of_a_task_are_read_one_after_the_other(home: Home, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic(partitions=3))
    asyncio.run(fill(kafka, topic, 90, 3))
    ranges = [
        OffsetRange(topic, 2, 5, 9),
        OffsetRange(topic, 0, 0, 30),
        OffsetRange(topic, 1, 3, 3),
    ]
    for _ in range(2):  # the second time over the same connections
        assert offsets(batches(home, kafka, *ranges)) == [*range(5, 9), *range(30)]


def test_whoever_has_enough_may_stop(home: Home, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 200))
    for _ in range(3):
        found = batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500)
        assert offsets(islice(found, 1))[0] == 0
        found.close()  # type: ignore[attr-defined]
    assert len(offsets(batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500))) == 200


def test_a_client_is_kept_for_all_of_its_options(home: Home, kafka: KafkaHandle) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    first = home.client(servers)
    assert home.client(dict(servers)) is first
    assert home.client({**servers, "isolation.level": "read_committed"}) is not first
    others = [home.client({**servers, "client.id": str(number)}) for number in range(8)]
    assert home.client({**servers, "client.id": "7"}) is others[7]
    assert home.client(servers) is not first  # closed: too many came after it


def test_a_topic_that_goes_while_a_task_waits(home: Home, kafka: KafkaHandle) -> None:
    kept, gone = asyncio.run(kafka.topic()), "gone-before-it-was-read"
    asyncio.run(fill(kafka, kept, 4))
    ranges = [OffsetRange(gone, 0, 0, 5), OffsetRange(kept, 0, 1, 4)]
    with pytest.raises(DataLost, match=gone):
        offsets(batches(home, kafka, *ranges))
    assert offsets(batches(home, kafka, *ranges, fail=False)) == [1, 2, 3]


def test_what_is_on_its_way_comes_while_spark_takes_its_time(home: Home) -> None:
    turns: list[int] = []

    async def things() -> AsyncIterator[int]:
        yield 1
        while len(turns) < 3:
            await asyncio.sleep(0)
            turns.append(len(turns))
        yield 2

    found = home.iterate(things())
    assert next(found) == 1
    for _ in range(1_000):  # nobody waits for the loop meanwhile
        if len(turns) == 3:
            break
        time.sleep(0.01)
    assert len(turns) == 3
    assert list(found) == [2]

"""Corruption in transit is fetched again; corruption on disk is raised."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Literal

import pytest

from asyncconsumer import Consumer, OffsetRange, RangeReader, Record
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_redelivery import AT, corrupt_batch, world
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until
from tests.support.worlds.handlers import make_app

pytestmark = pytest.mark.fast

LOG = "asyncconsumer.fetch.refetch"


class BatchRepair(logging.Handler):
    """A log handler that repairs a batch after it was fetched again `after` times."""

    def __init__(self, cluster: FakeCluster, after: int, base: int) -> None:
        super().__init__()
        self.fetches = 0
        self._cluster = cluster
        self._after = after
        self._base = base

    def emit(self, record: logging.LogRecord) -> None:
        self.fetches += 1
        if self.fetches == self._after:
            corrupt_batch(self._cluster, self._base)  # flips the same bit back


@contextmanager
def repaired_batch(cluster: FakeCluster, after: int, base: int = 2) -> Iterator[BatchRepair]:
    handler = BatchRepair(cluster, after, base)
    logging.getLogger(LOG).addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger(LOG).removeHandler(handler)


class Reader(RangeReader):
    """A reader with connections to the fake cluster."""

    def __init__(self, cluster: GroupCluster) -> None:
        super().__init__(cluster.bootstrap_servers)
        self._session = KafkaClient(
            cluster.config(), patience_ms=60_000, opener=cluster.open, randomness=Random(3)
        )


async def by_record(reader: Consumer[Any, Any]) -> list[int]:
    return [record.offset async for record in reader]


async def by_batch(reader: Consumer[Any, Any]) -> list[int]:
    return [record.offset async for batch in reader.batches(100) for record in batch]


async def by_arrow(reader: Consumer[Any, Any]) -> list[int]:
    tables = [batch async for batch in reader.arrow(columns=["offset"])]
    return [offset for table in tables for offset in table.column("offset").to_pylist()]


@simulated([1, 2, 3])
@pytest.mark.parametrize("read", [by_record, by_batch, by_arrow])
@pytest.mark.parametrize("deserialize", [None, lambda data: data], ids=["raw", "deserialized"])
async def test_a_batch_that_is_intact_when_fetched_again_is_delivered(
    read: Callable[[Consumer[Any, Any]], Any], deserialize: Any
) -> None:
    async with world(6, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        with repaired_batch(cluster, 2) as handler:
            options = {"idle_timeout_ms": 2_000, "value_deserializer": deserialize}
            async with make_consumer(cluster, **options) as consumer:
                assert await read(consumer) == [0, 1, 2, 3, 4, 5]
                assert await consumer.commit() == {AT: 6}
            assert handler.fetches == 2


@simulated([1])
@pytest.mark.parametrize("read", [by_record, by_batch, by_arrow])
async def test_corruption_is_raised_and_a_new_loop_fetches_the_batch_again(
    read: Callable[[Consumer[Any, Any]], Any],
) -> None:
    async with world(6, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        with repaired_batch(cluster, 4) as handler:
            async with make_consumer(cluster, idle_timeout_ms=2_000) as consumer:
                with pytest.raises(CorruptRecords, match="offset 2"):
                    await read(consumer)
                assert handler.fetches == 3
                assert await read(consumer) == [2, 3, 4, 5]


async def one_by_one(reader: Reader) -> list[int]:
    return [record.offset async for record in reader.read(OffsetRange("t", 0, 0, 6))]


async def as_arrow(reader: Reader) -> list[int]:
    stream = reader.read(OffsetRange("t", 0, 0, 6))
    tables = [batch async for batch in stream.arrow(columns=["offset"])]
    return [offset for table in tables for offset in table.column("offset").to_pylist()]


async def many(reader: Reader) -> list[int]:
    async with reader.read_all([OffsetRange("t", 0, 0, 6)]) as stream:
        return [record.offset async for record in stream]


@simulated([1, 2, 3])
@pytest.mark.parametrize("read", [one_by_one, as_arrow, many])
async def test_a_corrupt_batch_is_fetched_again_without_a_group(
    read: Callable[[Reader], Any],
) -> None:
    async with world(6, one_by_one=True) as cluster, Reader(cluster) as reader:
        corrupt_batch(cluster, 2)
        with repaired_batch(cluster, 2) as handler:
            assert await read(reader) == [0, 1, 2, 3, 4, 5]
        assert handler.fetches == 2
        corrupt_batch(cluster, 2)
        with repaired_batch(cluster, 4), pytest.raises(CorruptRecords, match="offset 2"):
            await read(reader)


@simulated([1, 2, 3])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
async def test_a_handler_gets_records_that_are_intact_when_fetched_again(
    on_error: Literal["stop", "skip"],
) -> None:
    async with world(6, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        seen: list[int] = []
        app = make_app(cluster)

        @app.handler("t", ordering="partition", on_error=on_error)
        async def handle(record: Record) -> None:
            seen.append(record.offset)

        with repaired_batch(cluster, 2) as handler:
            async with app:
                await until(lambda: len(seen) == 6)
        assert handler.fetches == 2
        assert seen == [0, 1, 2, 3, 4, 5]
        assert cluster.storage.offsets["g"][AT]["offset"] == 6


@simulated([1])
async def test_a_handler_does_not_get_corrupt_records() -> None:
    async with world(6, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        seen: list[int] = []
        app = make_app(cluster)

        @app.handler("t", ordering="partition", on_error="skip")
        async def handle(record: Record) -> None:
            seen.append(record.offset)

        with repaired_batch(cluster, 9) as handler:
            async with app:
                await until(lambda: len(seen) == 5)
        assert handler.fetches == 3
        assert seen == [0, 1, 3, 4, 5]


@simulated([1])
async def test_a_batch_with_a_corrupt_header_is_fetched_again() -> None:
    async with world(6, one_by_one=True) as cluster:
        batches = cluster.view.partition(AT).log.batches
        good = batches[0]
        batches[0] = good._replace(data=good.data[:8] + b"\xff\xff\xff\xfb" + good.data[12:])
        async with make_consumer(cluster, idle_timeout_ms=20_000) as consumer:
            await until(lambda: any(p.error is not None for p in consumer.progress().values()))
            batches[0] = good
            assert await by_record(consumer) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("decoder", decoding.available())
async def test_an_error_of_recover_itself_is_raised(decoder: str) -> None:
    module = decoding.load(decoder)[1]

    async def refill() -> Any:
        return module.Records(b"\0" * 61, topic="t", partition=0, offset=0)

    def fail(error: Exception) -> bool:
        raise OSError("no way") from error

    records = module.AsyncRecords(refill)
    records.recover = fail
    with pytest.raises(OSError, match="no way"):
        await anext(records)
    records.recover = lambda error: False
    with pytest.raises(CorruptRecords):
        await anext(records)

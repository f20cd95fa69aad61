"""Corruption in transit is fetched again; corruption on disk is raised."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from asyncconsumer import Consumer
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_redelivery import AT, damage, world
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast

LOG = "asyncconsumer.consumer.refetch"


class Mending(logging.Handler):
    """Mends the batch at offset 2 when it was fetched again so often."""

    def __init__(self, cluster: GroupCluster, after: int) -> None:
        super().__init__()
        self.fetches = 0
        self._cluster = cluster
        self._after = after

    def emit(self, record: logging.LogRecord) -> None:
        self.fetches += 1
        if self.fetches == self._after:
            damage(self._cluster, 2)  # which flips the same bit back


@contextmanager
def mending(cluster: GroupCluster, after: int) -> Iterator[Mending]:
    handler = Mending(cluster, after)
    logging.getLogger(LOG).addHandler(handler)
    yield handler
    logging.getLogger(LOG).removeHandler(handler)


async def by_record(reader: Consumer[Any, Any]) -> list[int]:
    return [record.offset async for record in reader]


async def by_batch(reader: Consumer[Any, Any]) -> list[int]:
    return [record.offset async for batch in reader.batches(100) for record in batch]


@simulated([1, 2, 3])
@pytest.mark.parametrize("read", [by_record, by_batch])
@pytest.mark.parametrize("deserialize", [None, lambda data: data], ids=["raw", "deserialized"])
async def test_damage_that_is_gone_when_it_is_fetched_again_is_not_noticed(
    read: Callable[[Consumer[Any, Any]], Any], deserialize: Any
) -> None:
    async with world(6, one_by_one=True) as cluster:
        damage(cluster, 2)
        with mending(cluster, 2) as handler:
            options = {"idle_timeout_ms": 2_000, "value_deserializer": deserialize}
            async with make_consumer(cluster, **options) as consumer:
                assert await read(consumer) == [0, 1, 2, 3, 4, 5]
                assert await consumer.commit() == {AT: 6}
            assert handler.fetches == 2


@simulated([1])
@pytest.mark.parametrize("read", [by_record, by_batch])
async def test_damage_that_stays_is_raised_and_tried_again_by_who_reads_on(
    read: Callable[[Consumer[Any, Any]], Any],
) -> None:
    async with world(6, one_by_one=True) as cluster:
        damage(cluster, 2)
        with mending(cluster, 4) as handler:
            async with make_consumer(cluster, idle_timeout_ms=2_000) as consumer:
                with pytest.raises(CorruptRecords, match="offset 2"):
                    await read(consumer)
                assert handler.fetches == 3
                assert await read(consumer) == [2, 3, 4, 5]


@simulated([1])
async def test_a_batch_whose_head_is_damaged_is_fetched_again() -> None:
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

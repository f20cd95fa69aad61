"""Many records at once, on a fake cluster: the same records in the same partitions, and errors."""

import pytest

from asyncconsumer import Producer, TopicPartition
from asyncconsumer.errors import NotEnoughReplicas, RecordTooLarge, UnknownTopicOrPartition
from asyncconsumer.producer.bulk import BulkRecord, send_bulk
from asyncconsumer.protocol.produce import PRODUCE
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.producer.test_producer import open_producer, written

pytestmark = pytest.mark.fast


def places(cluster: CompleteCluster, topic: str) -> list[list[tuple[bytes | None, bytes | None]]]:
    return [
        [(r.key, r.value) for r in cluster.committed_records(TopicPartition(topic, number))]
        for number in range(4)
    ]


async def send_one_by_one(producer: Producer, records: list[BulkRecord]) -> None:
    for topic, key, value, headers, partition in records:
        await producer.send(topic, value, key=key, headers=headers, partition=partition)
    await producer.flush()


@simulated(seeds=range(3))
async def test_bulk_records_have_the_partitions_and_order_of_single_records() -> None:
    keyed = [(b"k%d" % (n % 50), b"%d" % n, (("h", b"1"),), None) for n in range(3_500)]
    placed = [(None, b"p%d" % n, (), n % 4) for n in range(20)]
    async with open_producer(max_batch_bytes=2_000) as (cluster, producer):
        for topic in ("single", "bulk"):
            cluster.add_topic(topic, 4)
        await send_one_by_one(producer, [("single", *record) for record in keyed + placed])
        delivery = await send_bulk(producer, (("bulk", *record) for record in keyed + placed))
        await producer.flush()
        await delivery.wait()
        assert places(cluster, "bulk") == places(cluster, "single")
        assert producer._buffer.used == 0


@simulated(seeds=range(3))
async def test_records_without_a_key_are_spread_over_the_partitions() -> None:
    async with open_producer() as (cluster, producer):
        cluster.add_topic("bulk", 4)
        await send_bulk(producer, [("bulk", None, b"v", (), None)] * 12_000)
        await producer.flush()
        counts = [len(records) for records in places(cluster, "bulk")]
        assert sum(counts) == 12_000
        assert min(counts) >= 1_000


@simulated(seeds=range(3))
async def test_bulk_sends_wait_for_a_full_buffer() -> None:
    async with open_producer(max_buffered_bytes=1_000) as (cluster, producer):
        await send_bulk(producer, [("t", b"k", b"%d" % n, (), None) for n in range(5_000)])
        assert producer._buffer.used < 50_000
        await producer.flush()
        assert written(cluster) == [b"%d" % n for n in range(5_000)]


@simulated(seeds=range(3))
async def test_failures_are_raised_by_the_delivery() -> None:
    async with open_producer(delivery_timeout_ms=5_000) as (cluster, producer):
        await producer.send_and_wait("t", b"first")
        cluster.fail_next(PRODUCE.key, RecordTooLarge.code, times=1)
        delivery = await send_bulk(producer, [("t", None, b"x", (), None)])
        with pytest.raises(RecordTooLarge):
            await delivery.wait()
        cluster.fail_next(PRODUCE.key, NotEnoughReplicas.code, times=1)
        await (await send_bulk(producer, [("t", None, b"y", (), None)])).wait()
        with pytest.raises(UnknownTopicOrPartition, match=r"t\[7\]"):
            await send_bulk(producer, [("t", None, b"z", (), 7)])
        assert written(cluster) == [b"first", b"y"]

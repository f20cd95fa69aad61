"""Producers and transactions on the fake cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.config.choices import CompressionType
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.protocol.offset_commit import OffsetFetchRequest
from asyncconsumer.records.batch_encoder import BatchProducer
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.fake_kafka import codes
from asyncconsumer.testing.virtual_time import simulated
from tests.support.transactional_requests import RequestSender, batch

pytestmark = [pytest.mark.fast, pytest.mark.timeout(60)]


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[FakeKafka, RequestSender]]:
    async with FakeKafka() as kafka:
        await kafka.create_topic("t")
        cluster = kafka.cluster
        pool = BrokerPool(cluster.config(), randomness=Random(1), opener=cluster.open)
        async with pool as brokers:
            yield kafka, RequestSender(brokers, cluster.brokers[1].endpoint.address)


async def transactional(
    sender: RequestSender, name: str = "tx", timeout_ms: int = 60_000
) -> BatchProducer:
    answer = await sender.init(name, timeout_ms)
    return BatchProducer(answer["producer_id"], answer["producer_epoch"], 0)


def values(kafka: FakeKafka) -> list[bytes | None]:
    return [record.value for record in kafka.published("t")]


@simulated(seeds=range(2))
async def test_a_batch_that_is_sent_repeatedly_is_written_once() -> None:
    async with opened() as (kafka, sender):
        answer = await sender.init(None)
        producer = BatchProducer(answer["producer_id"], answer["producer_epoch"], 0)
        first, second = batch([b"a", b"b"], producer), batch([b"c"], producer._replace(sequence=2))
        assert await sender.produce("t", first) == (codes.NONE, 0)
        assert await sender.produce("t", first) == (codes.NONE, 0)
        assert await sender.produce("t", second) == (codes.NONE, 2)
        assert await sender.produce("t", first) == (codes.NONE, 0)
        gap = batch([b"e"], producer._replace(sequence=5))
        assert await sender.produce("t", gap) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert values(kafka) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@simulated(seeds=range(1))
async def test_compressed_batches_are_read_unchanged(codec: CompressionType) -> None:
    async with opened() as (kafka, sender):
        data = batch([b"a" * 1000, b"b" * 1000], BatchProducer(), compression=codec)
        assert await sender.produce("t", data) == (codes.NONE, 0)
        assert await sender.produce("t", data) == (codes.NONE, 2)  # not idempotent: written twice
        assert values(kafka) == [b"a" * 1000, b"b" * 1000] * 2


@simulated(seeds=range(1))
async def test_corrupt_and_too_large_batches_are_refused() -> None:
    async with opened() as (kafka, sender):
        data = bytearray(batch([b"a"], BatchProducer()))
        data[-3] ^= 1
        assert await sender.produce("t", bytes(data)) == (codes.CORRUPT_MESSAGE, -1)
        assert await sender.produce("t", bytes(data[:40])) == (codes.CORRUPT_MESSAGE, -1)
        large = batch([b"a" * 1_100_000], BatchProducer())
        assert await sender.produce("t", large) == (codes.MESSAGE_TOO_LARGE, -1)
        missing = batch([b"a"], BatchProducer())
        assert (await sender.produce("u", missing))[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert values(kafka) == []


@simulated(seeds=range(2))
async def test_a_transaction_is_visible_after_its_commit() -> None:
    async with opened() as (kafka, sender):
        producer = await transactional(sender)
        assert await sender.add_partitions("tx", producer, "t", 0) == [codes.NONE]
        data = batch([b"a"], producer, transactional=True)
        assert await sender.produce("t", data, transactional_id="tx") == (codes.NONE, 0)
        assert await sender.add_offsets("tx", producer, "g") == codes.NONE
        assert await sender.commit_offsets("tx", producer, "g", "t", 7) == codes.NONE
        assert values(kafka) == []
        assert kafka.committed("g") == {}
        stable = await sender.ask(OffsetFetchRequest("g", {"t": [0]}, require_stable=True))
        assert stable["topics"][0]["partitions"][0]["error_code"] == codes.UNSTABLE_OFFSET_COMMIT
        assert await sender.end("tx", producer, commit=True) == codes.NONE
        assert values(kafka) == [b"a"]
        assert kafka.committed("g") == {TopicPartition("t", 0): 7}
        assert await sender.end("tx", producer, commit=True) == codes.NONE  # the response was lost
        assert await sender.end("tx", producer, commit=False) == codes.INVALID_TXN_STATE


@simulated(seeds=range(2))
async def test_an_aborted_transaction_is_never_visible() -> None:
    async with opened() as (kafka, sender):
        producer = await transactional(sender)
        for number, commit in enumerate([False, True]):
            current = producer._replace(sequence=number)
            await sender.add_partitions("tx", producer, "t", 0)
            data = batch([b"%d" % number], current, transactional=True)
            assert (await sender.produce("t", data, transactional_id="tx"))[0] == codes.NONE
            await sender.add_offsets("tx", producer, "g")
            await sender.commit_offsets("tx", producer, "g", "t", number + 1)
            await sender.end("tx", producer, commit=commit)
            assert kafka.committed("g") == ({TopicPartition("t", 0): 2} if commit else {})
        assert values(kafka) == [b"1"]
        for isolation, seen in (("read_committed", [b"1"]), ("read_uncommitted", [b"0", b"1"])):
            options = {"partitions": [("t", 0)], "isolation_level": isolation, **kafka.options}
            async with Consumer(auto_offset_reset="earliest", stop_at="end", **options) as consumer:
                assert [record.value async for record in consumer] == seen


@simulated(seeds=range(2))
async def test_an_open_transaction_delays_later_records() -> None:
    async with opened() as (kafka, sender):
        producer = await transactional(sender)
        await sender.add_partitions("tx", producer, "t", 0)
        data = batch([b"a"], producer, transactional=True)
        await sender.produce("t", data, transactional_id="tx")
        await kafka.send("t", "b")
        options = {"partitions": [("t", 0)], "isolation_level": "read_committed", **kafka.options}
        async with Consumer(auto_offset_reset="earliest", **options) as consumer:
            reading = aiter(consumer)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await anext(reading)
            await sender.end("tx", producer, commit=True)
            assert [(await anext(reading)).value for _ in range(2)] == [b"a", b"b"]


@simulated(seeds=range(2))
async def test_a_second_producer_fences_the_first_and_aborts_its_transaction() -> None:
    async with opened() as (kafka, sender):
        first = await transactional(sender)
        await sender.add_partitions("tx", first, "t", 0)
        data = batch([b"a"], first, transactional=True)
        await sender.produce("t", data, transactional_id="tx")
        second = await transactional(sender)
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
        assert await sender.end("tx", first, commit=True) == codes.PRODUCER_FENCED
        late = batch([b"b"], first._replace(sequence=1), transactional=True)
        error, _ = await sender.produce("t", late, transactional_id="tx")
        assert error == codes.INVALID_PRODUCER_EPOCH
        await sender.add_partitions("tx", second, "t", 0)
        data = batch([b"c"], second, transactional=True)
        assert (await sender.produce("t", data, transactional_id="tx"))[0] == codes.NONE
        await sender.end("tx", second, commit=True)
        assert values(kafka) == [b"c"]


@simulated(seeds=range(2))
async def test_a_transaction_that_exceeds_its_timeout_is_aborted() -> None:
    async with opened() as (kafka, sender):
        producer = await transactional(sender, timeout_ms=10_000)
        await sender.add_partitions("tx", producer, "t", 0)
        data = batch([b"a"], producer, transactional=True)
        await sender.produce("t", data, transactional_id="tx")
        await kafka.send("t", "b")
        assert values(kafka) == []
        await asyncio.sleep(11)
        assert values(kafka) == [b"b"]
        assert await sender.end("tx", producer, commit=True) == codes.PRODUCER_FENCED


@simulated(seeds=range(1))
async def test_a_partition_must_be_added_to_the_transaction_first() -> None:
    async with opened() as (kafka, sender):
        producer = await transactional(sender)
        data = batch([b"a"], producer, transactional=True)
        error, _ = await sender.produce("t", data, transactional_id="tx")
        assert error == codes.INVALID_TXN_STATE
        missing = codes.UNKNOWN_TOPIC_OR_PARTITION
        not_tried = codes.OPERATION_NOT_ATTEMPTED
        assert await sender.add_partitions("tx", producer, "t", 0, 9) == [not_tried, missing]
        unknown_producer = producer._replace(producer_id=producer.producer_id + 1)
        assert (
            await sender.add_offsets("tx", unknown_producer, "g")
            == codes.INVALID_PRODUCER_ID_MAPPING
        )
        assert await sender.add_offsets("other", producer, "g") == codes.INVALID_PRODUCER_ID_MAPPING
        assert values(kafka) == []

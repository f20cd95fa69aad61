"""Ranges of offsets on a real broker, read with `RangeReader`."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import ConfigError, OffsetRange, RangeReader
from asyncconsumer.errors import OffsetUnavailable
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import delete_records, until


async def offsets(reader: RangeReader, offset_range: OffsetRange) -> list[int]:
    """Return the offsets of a range, after reading it with both methods."""
    async with asyncio.timeout(60):
        alone = [record.offset async for record in reader.read(offset_range)]
        async with reader.read_all([offset_range]) as stream:
            assert [record.offset async for record in stream] == alone
        return alone


async def rows(reader: RangeReader, offset_range: OffsetRange, *, copy: bool) -> list[int]:
    async with asyncio.timeout(60):
        results = [
            batch.column("offset").to_pylist()
            async for batch in reader.read(offset_range).arrow(copy=copy)
        ]
    return [offset for batch in results for offset in batch]


async def fill(kafka: KafkaHandle, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 3))
        await producer.flush()


async def test_a_range_yields_exactly_its_offsets(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await fill(kafka, topic, 200)
    async with RangeReader(kafka.bootstrap_servers) as reader:
        for start, end in ((0, 200), (17, 18), (50, 150), (0, 0), (200, 200)):
            offset_range = OffsetRange(topic, 0, start, end)
            assert await offsets(reader, offset_range) == list(range(start, end))
            for copy in (True, False):
                assert await rows(reader, offset_range, copy=copy) == list(range(start, end))


async def test_ranges_are_read_concurrently(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await fill(kafka, topic, 200)
    async with RangeReader(kafka.bootstrap_servers) as reader, asyncio.TaskGroup() as group:
        parts = [OffsetRange(topic, 0, start, start + 20) for start in range(0, 200, 20)]
        reading = [group.create_task(offsets(reader, part)) for part in parts]
    assert [task.result() for task in reading] == [list(range(p.start, p.end)) for p in parts]


async def test_a_range_ends_after_transaction_markers_and_aborted_records(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=kafka.group()
    ) as producer:
        for keep in (True, False):
            async with asyncio.timeout(30):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"x")
                await (producer.commit_transaction if keep else producer.abort_transaction)()
    # offsets: 0 a record, 1 its marker, 2 an aborted record, 3 its marker
    async with RangeReader(kafka.bootstrap_servers, isolation_level="read_committed") as reader:
        assert await offsets(reader, OffsetRange(topic, 0, 0, 4)) == [0]
        assert await offsets(reader, OffsetRange(topic, 0, 1, 4)) == []
        assert await rows(reader, OffsetRange(topic, 0, 0, 2), copy=True) == [0]


async def test_a_range_ends_though_compaction_removed_its_records(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "max.compaction.lag.ms": "200",
        }
    )
    await fill(kafka, topic, 100)
    async with RangeReader(kafka.bootstrap_servers) as reader:

        async def compacted() -> bool:
            await fill(kafka, topic, 1)  # a new segment, so that the old one may be cleaned
            remaining = [record async for record in reader.read(OffsetRange(topic, 0, 0, 97))]
            return not remaining  # read once, because compaction may happen between two reads

        await until(compacted)
        assert await offsets(reader, OffsetRange(topic, 0, 0, 97)) == []
        assert await rows(reader, OffsetRange(topic, 0, 0, 50), copy=True) == []


async def test_a_range_outside_of_the_log_raises(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await fill(kafka, topic, 20)
    await delete_records(kafka, topic, 0, before=10)
    async with RangeReader(kafka.bootstrap_servers) as reader:
        with pytest.raises(OffsetUnavailable, match="5 offsets before 10 are gone"):
            await offsets(reader, OffsetRange(topic, 0, 5, 15))
        with pytest.raises(OffsetUnavailable, match="the log ends at 20"):
            await offsets(reader, OffsetRange(topic, 0, 15, 21))


async def test_a_stream_of_many_ranges_ends_after_the_last_one(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(300):
            await producer.send(topic, b"%d" % number, partition=number % 3)
        await producer.flush()
    requested = [
        OffsetRange(topic, 0, 10, 90),
        OffsetRange(topic, 1, 0, 100),
        OffsetRange(topic, 2, 5, 5),
    ]
    async with asyncio.timeout(60), RangeReader(kafka.bootstrap_servers) as reader:
        result: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with reader.read_all(requested) as stream:
            async for record in stream:
                result[record.partition].append(record.offset)
        assert result == {
            offset_range.partition: list(range(offset_range.start, offset_range.end))
            for offset_range in requested
        }
        async with reader.read_all(requested) as stream:
            rows = [batch.num_rows async for batch in stream.arrow()]
        assert sum(rows) == 180
        async with reader.read_all([]) as stream:
            assert [record async for record in stream] == []
        with pytest.raises(OffsetUnavailable):
            async with reader.read_all([OffsetRange(topic, 0, 0, 101)]):
                pass
        await delete_records(kafka, topic, 0, 50)
        with pytest.raises(OffsetUnavailable, match="50"):
            await _read_through(reader, requested)
        with pytest.raises(ConfigError, match=r"got two ranges of .*\[0\]"):
            async with reader.read_all([requested[0], OffsetRange(topic, 0, 0, 1)]):
                pass


async def _read_through(reader: RangeReader, requested: list[OffsetRange]) -> None:
    async with reader.read_all(requested) as stream:
        async for _record in stream:
            pass

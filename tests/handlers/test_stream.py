"""The records that a partition submits to its work queue in one step."""

import asyncio

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.handlers.stream import HandlerStream
from asyncconsumer.records import decoding
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import A, open_bench, settle
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

SMALL, LARGE = 1, 1_000_000
ROOM_FOR_TEN = 10 * LARGE


def no_seek(partition: TopicPartition, offset: int) -> None:
    raise AssertionError((partition, offset))


@pytest.mark.parametrize("small", [0, 1, 40, 300])
@simulated(seeds=range(3))
async def test_at_most_one_record_exceeds_the_byte_limit(small: int) -> None:
    """Small records before large records do not cause a wrong estimate of the size."""
    sizes = [SMALL] * small + [LARGE] * 40
    data = b"".join(batch([Row(n, b"v" * size)]) for n, size in enumerate(sizes))
    options = {"max_in_flight": 10_000, "max_in_flight_bytes": ROOM_FOR_TEN}
    async with (
        asyncio.TaskGroup() as group,
        open_bench(ordering="none", concurrency=1000, **options) as bench,
    ):
        stream = HandlerStream(lambda topic: bench.queue, None, Channel(Budget(10**9)))
        stream.begin(A, 0)
        records = decoding.Records(data, topic=A.topic, partition=A.partition)
        stream.channel.push(Chunk(A, 0, len(sizes), 0, 0, 1, records))
        pump = group.create_task(stream.pump(skip_corrupt=lambda tp: False, seek=no_seek))
        seen = 0
        while seen < len(sizes):
            await settle()
            assert bench.queue.load.size < ROOM_FOR_TEN / 2 + LARGE + 1000
            assert bench.started[seen:]
            seen = len(bench.started)
            await bench.finish(*bench.pending)
        assert bench.started == list(range(len(sizes)))
        pump.cancel()

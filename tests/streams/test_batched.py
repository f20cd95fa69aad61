"""The runs of a batch, which start where the partition changes."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.streams.batched import BatchedStream, BatchWaits, starts
from asyncconsumer.types import TopicPartition
from tests.support.chunks import A, B, chunk

pytestmark = pytest.mark.fast

NOW = BatchWaits(0.0, 0.0)
INTERLEAVED = [(A, 0), (B, 0), (B, 3), (A, 3), (B, 6)]


def stream_of(*chunks: tuple[TopicPartition, int]) -> tuple[Channel, BatchedStream]:
    channel = Channel(Budget(10**6))
    for partition, offset in chunks:
        channel.push(chunk(partition, offset))
    return channel, BatchedStream(channel)


def runs_of(stream: BatchedStream, batch: list[Any]) -> list[tuple[TopicPartition, list[int]]]:
    """Return the runs, and check that each has one partition only."""
    runs = []
    for start, end in pairwise([*stream.runs.delivered, len(batch)]):
        [partition] = {TopicPartition(r.topic, r.partition) for r in batch[start:end]}
        runs.append((partition, [record.offset for record in batch[start:end]]))
    return runs


def merged(runs: list[tuple[TopicPartition, list[int]]]) -> dict[TopicPartition, list[int]]:
    result: dict[TopicPartition, list[int]] = {}
    for partition, offsets in runs:
        result.setdefault(partition, []).extend(offsets)
    return result


async def collect_all(stream: BatchedStream) -> None:
    """Collect all records by a call that is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(stream.next_batch(100, BatchWaits(None, 60.0)))
        while len(stream.collected) < 15:
            await asyncio.sleep(0)
        waiting.cancel()


@pytest.mark.parametrize("limit", range(1, 17))
async def test_runs_cover_a_batch_in_order(limit: int) -> None:
    _, stream = stream_of(*INTERLEAVED)
    seen: dict[TopicPartition, list[int]] = {A: [], B: []}
    while batch := await stream.next_batch(limit, NOW):
        assert len(batch) <= limit
        runs = runs_of(stream, batch)
        assert sum(len(offsets) for _, offsets in runs) == len(batch)
        for partition, offsets in merged(runs).items():
            seen[partition] += offsets
    assert seen == {A: list(range(6)), B: list(range(9))}


async def test_runs_after_a_cancelled_call_with_a_higher_limit() -> None:
    _, stream = stream_of(*INTERLEAVED)
    await collect_all(stream)
    seen: dict[TopicPartition, list[int]] = {A: [], B: []}
    while batch := await stream.next_batch(4, NOW):
        for partition, offsets in runs_of(stream, batch):
            seen[partition] += offsets
    assert seen == {A: list(range(6)), B: list(range(9))}


@pytest.mark.parametrize("lost", [A, B])
async def test_runs_after_a_partition_is_lost(lost: TopicPartition) -> None:
    channel, stream = stream_of(*INTERLEAVED)
    await collect_all(stream)
    stream.forget(lost)
    channel.close()
    batch = await stream.next_batch(100, NOW)
    assert merged(runs_of(stream, batch)) == (
        {B: list(range(9))} if lost == A else {A: list(range(6))}
    )


def test_an_empty_batch_has_no_runs() -> None:
    assert starts([]) == []

"""What an app tells as events: what its consumer does, and what its handlers fail with."""

import asyncio

import pytest

from asyncconsumer import Rebalanced, Record, RecordAbandoned, Retried, Retry, TopicPartition
from asyncconsumer.testing.virtual_time import simulated
from tests.work.world import app, cluster_of, until

pytestmark = pytest.mark.fast


@simulated(seeds=range(2))
async def test_retries_and_what_is_given_up_are_told() -> None:
    at = TopicPartition("t", 0)
    async with cluster_of() as cluster:
        one = app(cluster)

        @one.handler("t", retry=Retry(2, backoff_ms=1_000, jitter=0), on_error="skip")
        async def handle(record: Record) -> None:
            if record.offset == 1:
                raise ValueError("no")

        heard: list[object] = []
        async with asyncio.TaskGroup() as tasks:

            async def listen() -> None:
                heard.extend([event async for event in one.events()])

            async with one:
                tasks.create_task(listen())
                await one.consumer.wait_assigned()
                cluster.append("t", 0, 3)
                name = handle.__qualname__
                await until(lambda: one.health().handlers[name].skipped == 1)
    why = "ValueError"
    assert [event for event in heard if not isinstance(event, Rebalanced)] == [
        Retried(at, 1, name, 1, 1.0, why),
        RecordAbandoned(at, 1, name, 2, "skip", why),
    ]
    assert any(isinstance(event, Rebalanced) for event in heard)

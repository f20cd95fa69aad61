"""Events of an app: those of its consumer and the failures of its handlers."""

import asyncio

import pytest

from asyncconsumer import Rebalanced, Record, RecordAbandoned, Retried, Retry, TopicPartition
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


@simulated(seeds=range(2))
async def test_retries_and_abandoned_records_are_reported() -> None:
    tp = TopicPartition("t", 0)
    async with cluster_of() as cluster:
        app = make_app(cluster)

        @app.handler("t", retry=Retry(2, backoff_ms=1_000, jitter=0), on_error="skip")
        async def handle(record: Record) -> None:
            if record.offset == 1:
                raise ValueError("no")

        received: list[object] = []
        async with asyncio.TaskGroup() as tasks:

            async def listen() -> None:
                received.extend([event async for event in app.events()])

            async with app:
                tasks.create_task(listen())
                await app.consumer.wait_assigned()
                cluster.append("t", 0, 3)
                name = handle.__qualname__
                await until(lambda: app.health().handlers[name].skipped == 1)
    why = "ValueError"
    failures = [event for event in received if isinstance(event, Retried | RecordAbandoned)]
    assert [event._replace(traceback="") for event in failures] == [
        Retried(tp, 1, name, 1, 1.0, why),
        RecordAbandoned(tp, 1, name, 2, "skip", why),
    ]
    for event in failures:
        assert 'raise ValueError("no")' in event.traceback  # the line of the code
        assert event.traceback.endswith("\nValueError\n")  # without the message
    assert any(isinstance(event, Rebalanced) for event in received)

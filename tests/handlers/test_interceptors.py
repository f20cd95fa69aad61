"""Interceptors of an app see the records of its handlers and the committed offsets."""

from collections.abc import Mapping
from typing import Any

import pytest

from asyncconsumer import Interceptor, Record, TopicPartition
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.stream import on_consume
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


class Numbers(Interceptor):
    """An interceptor that replaces the value and the key of each record."""

    def __init__(self) -> None:
        self.consumed: list[int] = []
        self.committed: list[int] = []

    def on_consume(self, record: Record) -> Record:
        self.consumed.append(record.offset)
        if record.offset == 3:
            raise ValueError("it is logged, and otherwise does not matter")
        offset = record.topic, record.partition, record.offset, record.timestamp
        return Record(*offset, key=b"k", value=b"%d" % record.offset)

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.append(offsets[TopicPartition("t", 0)])


@pytest.mark.parametrize("batch", [None, Batch(4)])
@pytest.mark.parametrize("kind", [list, iter])
@simulated(seeds=range(2))
async def test_interceptors_of_an_app_are_called(kind: Any, batch: Batch | None) -> None:
    numbers = Numbers()
    async with cluster_of() as cluster:
        cluster.append("t", 0, 6)
        app = make_app(cluster, interceptors=kind([numbers]))
        seen: list[Any] = []

        async def handle(records: list[Record]) -> None:
            seen.extend((each.offset, each.value, each.key) for each in records)

        async def handle_one(record: Record) -> None:
            await handle([record])

        app.handler("t", batch=batch, ordering="partition")(handle if batch else handle_one)
        async with app:
            await until(lambda: len(seen) == 6)
    assert numbers.consumed == [*range(6)]
    assert numbers.committed[-1] == 6
    changed = [(n, b"%d" % n, b"k") for n in range(6) if n != 3]
    assert [row for row in seen if row[0] != 3] == changed


def test_interceptors_do_not_see_records_of_retry_topics_again() -> None:
    numbers = Numbers()
    see = on_consume(Interceptors([numbers]), {"retry"})
    assert see is not None
    waited = Record("retry", 0, 7, value=b"v")
    assert see(waited) is waited
    assert see(Record("t", 0, 8)).value == b"8"
    assert numbers.consumed == [8]
    assert on_consume(Interceptors(()), {"retry"}) is None

"""Errors that each record causes are not logged for each record."""

import logging
from random import Random
from typing import Any

import pytest

from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.records.decoding import Record
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import run
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast


def never(data: bytes) -> bytes:
    raise ValueError("no")


class Raises(Interceptor):
    def on_consume(self, record: Record) -> Record:
        raise ValueError("no")


@pytest.mark.parametrize(
    "options",
    [{"value_deserializer": never, "on_poison": "skip"}, {"interceptors": [Raises()]}],
    ids=["poison", "interceptor"],
)
def test_the_log_lines_of_many_unreadable_records_are_limited(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def read() -> tuple[int, int]:
        async with GroupCluster(Random(1)) as cluster:
            cluster.add_topic("t", 1)
            cluster.append("t", 0, 500)
            async with make_consumer(cluster, idle_timeout_ms=1_000, **options) as consumer:
                count = len([record async for record in consumer])
                return count, consumer.counts["record_unreadable"]

    with caplog.at_level(logging.WARNING):
        count, poisoned = run(read, seed=1)
    assert count + poisoned == 500
    reported = [record for record in caplog.records if "t[0]@" in record.getMessage()]
    assert 1 <= len(reported) <= 10
    assert "no" in caplog.text

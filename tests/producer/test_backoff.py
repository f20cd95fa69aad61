"""Backoff of a producer whose batches the broker refuses again and again."""

import asyncio
from typing import Any

import pytest

from asyncconsumer import Producer
from asyncconsumer.errors import InvalidProducerEpoch, OutOfOrderSequence, UnknownProducerId
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.virtual_time import simulated

pytestmark = pytest.mark.fast

PRODUCE, INIT_PRODUCER_ID = 0, 22


@pytest.mark.parametrize("error", [OutOfOrderSequence, UnknownProducerId, InvalidProducerEpoch])
@simulated(seeds=range(1))
async def test_sequence_numbers_that_are_always_refused_cause_few_requests(
    error: type[Any],
) -> None:
    async with FakeKafka() as kafka, Producer(**kafka.options) as producer:
        await kafka.create_topic("t")
        kafka.cluster.fail_next(PRODUCE, error.code, times=100_000)
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(30)
        requests = kafka.cluster.brokers[1].requests
        assert requests[PRODUCE] < 80
        assert requests[INIT_PRODUCER_ID] < 80
        kafka.cluster.forget_troubles()
        await delivery
        assert [record.value for record in kafka.published("t")] == [b"v"]

"""Responses that are too large for the producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    ConsumerError,
    FrameTooLarge,
)
from asyncconsumer.net.partition_writer import Outcome, ProducerRecord
from asyncconsumer.net.record_writer import RecordWriter
from tests.support.scripted_broker import Line, broker

pytestmark = pytest.mark.fast


@asynccontextmanager
async def open_producer(servers: str, **options: Any) -> AsyncIterator[RecordWriter]:
    config = ConnectionConfig(bootstrap_servers=servers, **options)
    async with RecordWriter(config, randomness=Random(1)) as producer:
        yield producer


def failures(outcomes: dict[ProducerRecord, Outcome]) -> list[ConsumerError]:
    return [error for error in outcomes.values() if isinstance(error, ConsumerError)]


@pytest.mark.parametrize("greeted", [False, True], ids=["the first frame", "a later frame"])
async def test_a_frame_that_is_too_large_is_not_read(greeted: bool) -> None:
    async def play(line: Line) -> None:
        if greeted:
            await line.greet({3: (4, 8), 18: (0, 0), 22: (0, 1), 0: (3, 8)})
        await line.asked()
        line.send((2**30).to_bytes(4, "big") + bytes(100))
        await line.until_closed()

    async with (
        broker(play) as address,
        open_producer(str(address), max_frame_bytes=2**20) as producer,
    ):
        (error,) = failures(await producer.send([ProducerRecord("t", None, b"v")]))
        assert isinstance(error, FrameTooLarge)

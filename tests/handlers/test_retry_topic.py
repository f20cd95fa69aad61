"""Headers and options of retry topics."""

import asyncio
import os
import signal
from typing import Any

import pytest

from asyncconsumer import ConfigError, ConsumerApp, Record, Retry
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.consumer.dead_letters import Failure, NotADeadLetter, failure_headers, original
from asyncconsumer.testing import FakeKafka
from tests.support.helpers import until

pytestmark = pytest.mark.fast


def parked(record: Record, **reported: str) -> Record:
    """A record as it is in the retry topic, with some headers changed, or left out if empty."""
    failure = Failure(ValueError("bad"), 2)
    headers = dict(failure_headers(record, failure)) | {
        f"dlt.{k}": v.encode() for k, v in reported.items()
    }
    retained = [(name, text) for name, text in headers.items() if text]
    return Record("r", 0, 7, key=record.key, value=record.value, headers=retained)


def test_a_record_of_nothing_comes_back_as_it_was() -> None:
    assert original(parked(Record("t", 0, 3, 5, key=None, value=None))).value is None
    assert original(parked(Record("t", 0, 3, 5, key=None, value=b""))).value == b""
    before = parked(Record("t", 0, 3, 5, key=None, value=b""), no_value="true")
    assert original(before).value is None  # as it was written by earlier versions


@pytest.mark.parametrize(
    "reported", [{"topic": ""}, {"offset": ""}, {"partition": "x"}, {"timestamp": ""}]
)
def test_what_others_wrote_to_the_retry_topic_is_known(reported: dict[str, str]) -> None:
    with pytest.raises(NotADeadLetter):
        original(parked(Record("t", 0, 3, 5, key=b"k", value=b"v"), **reported))


@pytest.mark.parametrize(
    ("topics", "handling"),
    [
        (["t"], {"ordering": "partition"}),
        (["t", "u"], {}),
        (["t", "r"], {}),
        (["t"], {"dead_letter_topic": "r"}),
    ],
)
def test_a_retry_topic_that_makes_no_sense_is_refused(
    topics: list[str], handling: dict[str, Any]
) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="retry"):

        @app.handler(*topics, retry=Retry(topic="r"), **handling)
        async def handle(value: bytes) -> None: ...


@pytest.mark.parametrize("handling", [{"retry": Retry(topic="r")}, {"dead_letter_topic": "r"}])
def test_nothing_else_goes_to_the_retry_topic_of_a_handler(handling: dict[str, Any]) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    @app.handler("a", retry=Retry(topic="r"))
    async def first(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=r".*first is used by .*second"):

        @app.handler("b", **handling)
        async def second(value: bytes) -> None: ...


@pytest.mark.parametrize(("delay_ms", "failures"), [(3_600_000, 1), (1, 2)])
async def test_a_signal_ends_an_app_well_while_a_record_waits(delay_ms: int, failures: int) -> None:
    """The record is in the retry topic, so nothing is left undone, and the exit code is 0."""
    attempts: list[bytes] = []
    async with FakeKafka() as kafka, asyncio.TaskGroup() as tasks:
        for topic in ("orders", "orders.retry"):
            await kafka.create_topic(topic)
        app = ConsumerApp(group_id="g", auto_offset_reset="earliest", **kafka.options)
        retry = Retry(
            5, topic="orders.retry", delay_ms=delay_ms, backoff_ms=600_000, max_backoff_ms=600_000
        )

        @app.handler("orders", retry=retry)
        async def handle(order: bytes) -> None:
            attempts.append(order)
            raise ValueError

        def is_waiting() -> bool:
            [handler] = app.health().handlers.values()
            counts = handler.retried, handler.running, handler.in_flight, handler.parked
            return counts == (failures, 0, 1, 1)

        async def end() -> None:
            await until(is_waiting)
            os.kill(os.getpid(), signal.SIGTERM)

        await kafka.send("orders", b"bad")
        start_task(tasks, end())
        drained = await app.run()
        assert drained
        assert drained.cut_short == {}
        assert len(kafka.published("orders.retry")) == 1
    assert len(attempts) == failures

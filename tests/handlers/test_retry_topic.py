"""Headers and options of retry topics."""

import asyncio
import itertools
import os
import signal
from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from asyncconsumer import (
    ConfigError,
    ConsumerApp,
    Context,
    Producer,
    Record,
    Retry,
    TopicPartition,
)
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import ProducerConfig
from asyncconsumer.consumer.dead_letters import Failure, NotADeadLetter, failure_headers, original
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.virtual_time import simulated
from tests.support.helpers import until
from tests.support.worlds.handlers import cluster_of, make_app

pytestmark = pytest.mark.fast


def parked(record: Record, **reported: str) -> Record:
    """Return a record as in the retry topic. Empty `reported` headers are omitted."""
    failure = Failure(ValueError("bad"), 2)
    headers = dict(failure_headers(record, failure)) | {
        f"dlt.{k}": v.encode() for k, v in reported.items()
    }
    retained = [(name, text) for name, text in headers.items() if text]
    return Record("r", 0, 7, key=record.key, value=record.value, headers=retained)


def test_null_and_empty_values_are_restored() -> None:
    assert original(parked(Record("t", 0, 3, 5, key=None, value=None))).value is None
    assert original(parked(Record("t", 0, 3, 5, key=None, value=b""))).value == b""
    before = parked(Record("t", 0, 3, 5, key=None, value=b""), no_value="true")
    assert original(before).value is None  # as written by earlier versions


@pytest.mark.parametrize(
    "reported", [{"topic": ""}, {"offset": ""}, {"partition": "x"}, {"timestamp": ""}]
)
def test_foreign_records_in_a_retry_topic_are_detected(reported: dict[str, str]) -> None:
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
def test_a_retry_topic_with_unsupported_options_is_refused(
    topics: list[str], handling: dict[str, Any]
) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="retry"):

        @app.handler(*topics, retry=Retry(topic="r"), **handling)
        async def handle(value: bytes) -> None: ...


@pytest.mark.parametrize("handling", [{"retry": Retry(topic="r")}, {"dead_letter_topic": "r"}])
def test_a_retry_topic_that_another_handler_uses_is_refused(handling: dict[str, Any]) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    @app.handler("a", retry=Retry(topic="r"))
    async def first(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=r".*first is used by .*second"):

        @app.handler("b", **handling)
        async def second(value: bytes) -> None: ...


_SEEDS = itertools.count()
TIERS = {"orders.1s": 1_000, "orders.10s": 10_000, "orders.1m": 60_000}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": TIERS}, "3 retry topics need `attempts` of at least 4, got 3"),
        ({"topic": {"r": -1}}, "the delay of 'r'"),
        ({"topic": {"": 1}}, "the name of a topic"),
        ({"topic": ["r"]}, "a topic or a mapping"),
    ],
)
def test_invalid_retry_topics_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Retry(**options)


def test_a_prefix_applies_to_all_retry_topics() -> None:
    retry = Retry(4, topic=TIERS).with_prefix("eu.")
    assert [*retry.delays_ms.items()] == [(f"eu.{name}", delay) for name, delay in TIERS.items()]
    assert Retry(topic="r", delay_ms=7).with_prefix("eu.").delays_ms == {"eu.r": 7}
    assert Retry().with_prefix("eu.").delays_ms == {}


@simulated(seeds=range(2))
async def test_a_record_waits_longer_after_each_failure() -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    numbers: list[int] = []
    async with FakeKafka() as kafka:
        for topic in ("orders", "dead", *TIERS):
            await kafka.create_topic(topic)
        app = ConsumerApp(group_id="g", auto_offset_reset="earliest", **kafka.options)

        @app.handler("orders", retry=Retry(4, topic=TIERS), dead_letter_topic="dead")
        async def handle(order: bytes, context: Context) -> None:
            times.append(loop.time())
            numbers.append(context.attempt)
            raise ValueError

        async with app:
            await kafka.send("orders", b"bad", key=b"k")
            await until(lambda: bool(kafka.published("dead")), 5_000)
        assert numbers == [1, 2, 3, 4]
        waits = [after - before for before, after in pairwise(times)]
        assert waits == pytest.approx([1, 10, 60], abs=0.5)
        for topic in TIERS:
            assert len(kafka.published(topic)) == 1


@simulated(seeds=range(5))
async def test_several_retry_topics_keep_the_order_of_keys() -> None:
    """Records fail up to three times, and the app is restarted while others wait."""
    chance = Random(next(_SEEDS))
    failures = [chance.choice([0, 0, 0, 1, 2, 3]) for _ in range(60)]
    remaining = [*failures]
    done: dict[bytes | None, list[int]] = defaultdict(list)
    async with FakeKafka() as kafka:
        for topic in ("orders", *TIERS):
            await kafka.create_topic(topic, partitions=2)

        async def run(until_done: bool) -> None:
            app = ConsumerApp(
                group_id="g", auto_offset_reset="earliest", shutdown_grace_ms=5_000, **kafka.options
            )

            @app.handler("orders", retry=Retry(4, topic=TIERS), concurrency=5)
            async def handle(record: Record) -> None:
                number = int(record.value or b"")
                await asyncio.sleep(chance.random() / 10)
                if remaining[number]:
                    remaining[number] -= 1
                    raise ValueError
                done[record.key].append(number)

            async with app:
                if until_done:
                    await until(lambda: sum(map(len, done.values())) >= 60, 20_000)
                else:
                    await asyncio.sleep(chance.choice([0.5, 2, 15, 30]))

        for part in range(4):
            for number in range(part * 15, part * 15 + 15):
                await kafka.send("orders", b"%d" % number, key=b"%d" % (number % 5))
            await run(until_done=part == 3)
        assert sum(map(len, done.values())) == 60
        for numbers in done.values():
            assert numbers == sorted(numbers)
        assert all(kafka.published(topic) for topic in TIERS)


@pytest.mark.parametrize(("delay_ms", "failures"), [(3_600_000, 1), (1, 2)])
async def test_a_signal_ends_an_app_cleanly_while_a_record_waits(
    delay_ms: int, failures: int
) -> None:
    """The record is in the retry topic, so the drain is complete and the exit code is 0."""
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


@simulated(seeds=range(3))
async def test_later_retry_topics_are_read_before_earlier_ones_and_the_source() -> None:
    """A leader of the last retry topic is down, so the waiting keys are not known yet."""
    attempts: list[bytes] = []
    async with cluster_of(brokers=3) as cluster:
        cluster.add_topic("r1")
        cluster.add_topic("r2")
        last = TopicPartition("r2", 0)
        for topic in ("t", "r1"):
            cluster.move_leader(TopicPartition(topic, 0), 1)
        cluster.move_leader(last, 2)
        cluster.failover = 30.0
        config = ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap_servers)
        async with Producer(config=config, opener=cluster.open, now_ms=cluster.now_ms) as producer:
            for value in (b"first", b"second"):
                app = make_app(cluster, seed=len(attempts))

                @app.handler("t", retry=Retry(5, topic={"r1": 100, "r2": 3_600_000}))
                async def handle(record: Record) -> None:
                    attempts.append(record.value or b"")
                    if record.value == b"first":
                        raise ValueError

                await producer.send_and_wait("t", value, key=b"k")
                async with app:
                    if value == b"first":
                        await until(lambda: cluster.end(last) == 1)
                    else:
                        await asyncio.sleep(60)
                cluster.kill(2)
        assert attempts == [b"first", b"first"]
        assert cluster.end(last) == 2

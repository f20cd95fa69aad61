"""Apps on a fake Kafka, with faults of brokers and hosts, on virtual time."""

import asyncio
import re
from collections import Counter
from itertools import groupby
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Record, Retry, TopicPartition
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure, failure_headers
from asyncconsumer.environment import Environment
from asyncconsumer.errors import OffsetMetadataTooLarge
from asyncconsumer.events import EventBus
from asyncconsumer.group.subscription import PatternSubscription
from asyncconsumer.handlers.commit_metadata import decode
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.runtime import AppContext, HandlerRuntime
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Offset
from tests.support.fake_handlers import submit
from tests.support.worlds.handlers import make_app, until

pytestmark = pytest.mark.fast
A = TopicPartition("t", 0)


# --- a broker with a small limit for commit metadata ---------------------------------------------


class SmallMetadataCluster(GroupCluster):
    """A cluster with a small `offset.metadata.max.bytes`."""

    longest = 100

    def _keep(
        self, requested: dict[str, Any], topic: str, row: dict[str, Any], code: int
    ) -> dict[str, int]:
        too_long = len(row["metadata"] or "") > self.longest
        return super()._keep(requested, topic, row, 12 if too_long else code)


@pytest.mark.parametrize("longest", [100, 0])
@simulated(seeds=range(2))
async def test_commit_metadata_is_cut_to_the_limit_of_the_broker(longest: int) -> None:
    """A third of the records is unfinished, so the metadata is long."""
    async with SmallMetadataCluster(Random(1)) as cluster:
        cluster.longest = longest
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 2_000, batches=10)
        app = make_app(cluster, shutdown_grace_ms=100)
        chance = Random(3)

        @app.handler("t", ordering="none", concurrency=2_000)
        async def handle(record: Record) -> None:
            if record.offset >= 500 and chance.random() < 0.3:
                await asyncio.Event().wait()

        async with app:
            await until(lambda: app.consumer._rebalancer.finished().get(A, 0) >= 500)
            [done] = [Offset.of(offset) for offset in app.consumer._rebalancer.finished().values()]
            assert len(done.metadata) > 100
            assert await app.consumer.commit() == {A: int(done)}
        row = cluster.storage.offsets["g"]["t", 0]
        assert row["offset"] == done
        reported, complete = decode(done, row["metadata"]), decode(done, done.metadata)
        assert len(row["metadata"]) <= longest
        assert bool(reported) == bool(longest)
        assert list(reported) == list(complete)[: len(reported)]


@simulated(seeds=range(2))
async def test_metadata_of_the_user_is_not_cut() -> None:
    async with SmallMetadataCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 10)
        app = make_app(cluster, auto_commit_interval_ms=10**6)

        @app.handler("t")
        async def handle(record: Record) -> None: ...

        async with app:
            await app.consumer.wait_assigned()
            with pytest.raises(OffsetMetadataTooLarge):
                await app.consumer.commit({A: Offset(5, metadata="x" * 101)})
            assert "g" not in cluster.storage.offsets


# --- retry topics --------------------------------------------------------------------------------


@simulated(seeds=range(1))
async def test_an_app_waits_for_the_leader_of_a_retry_topic() -> None:
    """The leader is missing for longer than requests are repeated."""
    async with GroupCluster(Random(1), brokers=2) as cluster:
        for topic in ("t", "r"):
            cluster.add_topic(topic, 1, replicas=1)
        cluster.append("t", 0, 20)
        leader = cluster.leader(TopicPartition("r", 0))
        if cluster.coordinator("g") == leader:
            cluster.move_coordinator("g", 3 - leader)
        seen: list[int] = []
        app = make_app(cluster)

        @app.handler("t", retry=Retry(3, topic="r"))
        async def handle(record: Record) -> None:
            seen.append(record.offset)

        cluster.kill(leader)
        async with app:
            await asyncio.sleep(120)
            assert app.health()
            cluster.start(leader)
            await until(lambda: len(seen) == 20)


@pytest.mark.parametrize(("ahead_ms", "wait"), [(-500, 0.5), (0, 1.0), (3_600_000, 1.0)])
@simulated(seeds=range(1))
async def test_a_clock_of_another_host_does_not_extend_the_retry_delay(
    ahead_ms: int, wait: float
) -> None:
    """The clock of the host that wrote the record to the retry topic may be an hour ahead."""
    clock = asyncio.get_running_loop().time
    begun: list[tuple[int, float]] = []

    async def handle(record: Record) -> None:
        begun.append((record.timestamp, clock() - start))

    handler = Handler(
        handle, frozenset("t"), None, HandlerOptions(retry=Retry(topic="r", delay_ms=1000))
    )
    writer = DeadLetterProducer(
        "r", ConnectionConfig(bootstrap_servers="k:1"), randomness=Random(1)
    )
    environment = Environment(randomness=Random(1), now_ms=lambda: int(clock() * 1000))
    runtime = HandlerRuntime(
        handler,
        group="g",
        dead_letters={"r": writer},
        context=AppContext(environment, EventBus(), Recorder()),
    )
    work = runtime.queue.open(TopicPartition("r", 0), 0, None)
    reported = failure_headers(Record("t", 0, 0, 7, key=b"k"), Failure(ValueError()))
    async with Scope("workers") as scope:
        runtime.start(scope.start)
        start = clock()
        written = Record("r", 0, 0, round(start * 1000) + ahead_ms, key=b"k", headers=reported)
        submit(runtime.queue, work, [written])
        await until(lambda: bool(begun))
        assert work.count == len(work.attempts) == 0
    [(timestamp, seconds)] = begun
    assert timestamp == 7
    assert seconds == pytest.approx(wait, abs=0.01)


# --- patterns with flags -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)orders",
        re.compile("orders", re.IGNORECASE),
        re.compile("  (?s)(?i) or ders  # all of them", re.VERBOSE),
        "(?i:orders)",
    ],
)
@pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}])
@simulated(seeds=range(1))
async def test_flags_of_a_pattern_apply_to_that_pattern_only(
    pattern: str | re.Pattern[str], options: dict[str, Any]
) -> None:
    seen: Counter[str] = Counter()
    async with GroupCluster(Random(1)) as cluster:
        for topic in ("ORDERS", "x", "X"):
            cluster.add_topic(topic, 1)
            cluster.append(topic, 0, 1)
        app = make_app(cluster, **options)

        @app.handler(pattern=pattern)
        async def match(record: Record) -> None:
            seen[record.topic] += 1

        @app.handler("x")
        async def name(record: Record) -> None:
            seen[record.topic] += 10

        async with app:
            await until(lambda: len(seen) == 2)
    assert seen == {"ORDERS": 1, "x": 10}


def test_flags_of_a_pattern_are_part_of_its_text() -> None:
    assert PatternSubscription("orders.*").text == "orders.*"
    assert PatternSubscription(re.compile("a|b", re.IGNORECASE)).text == "(?i:a|b)"
    assert PatternSubscription("(?i)a|b").text == "(?i:a|b)"
    assert PatternSubscription("(?a)orders").text == "orders"


@simulated(seeds=range(1))
async def test_two_workers_of_one_static_member_do_not_fence_each_other() -> None:
    seen: Counter[tuple[int, int]] = Counter()
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)

        def worker(number: int) -> ConsumerApp:
            app = make_app(cluster, seed=number, group_instance_id="billing")
            app.set_worker_number(number)

            @app.handler("t")
            async def handle(record: Record) -> None:
                seen[number, record.partition] += 1

            return app

        async with worker(1) as app, worker(2) as two:
            await until(lambda: len(app.consumer.assignment) == len(two.consumer.assignment) == 1)
            for number in range(2):
                cluster.append("t", number, 5)
            await until(lambda: seen.total() == 10)
            assert app.health()
            assert two.health()
    assert sorted(seen.values()) == [5, 5]


# --- slow handlers -------------------------------------------------------------------------------


@simulated(seeds=range(1))
async def test_a_slow_handler_is_reported_until_it_is_faster() -> None:
    """The handler is neither healthy after each record nor idle while it runs."""
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 15)
        app = make_app(cluster, stall_timeout_ms=10_000)
        seconds_per_record = 12.0

        @app.handler("t", ordering="partition")
        async def handle(record: Record) -> None:
            await asyncio.sleep(seconds_per_record)

        def working() -> bool:
            return app.health().handlers[handle.__qualname__].running > 0

        states: list[str] = []
        async with app:
            await until(working)
            for second in range(100):
                states.append(app.status().state)
                assert app.status().ready == (states[-1] != "handler_bound")
                seconds_per_record = 12.0 if second < 70 else 1.0
                await asyncio.sleep(1)
            assert (app.status().state, app.status().ready) == ("idle", True)
    changes = [state for state, _ in groupby(states)]
    assert changes == ["consuming", "handler_bound", "consuming", "idle"]

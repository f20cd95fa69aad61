"""The topics that handlers write to are looked at when an app starts."""

import asyncio
from typing import Any

import pytest

from asyncconsumer import ConfigError, ConsumerApp, Record, Retry
from asyncconsumer.testing.virtual_time import run, simulated
from tests.handlers.test_dead_letters import producers
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


def handling(app: ConsumerApp, **how: Any) -> list[int]:
    seen: list[int] = []

    @app.handler("t", **how)
    async def handle(record: Record) -> None:
        seen.append(record.offset)

    return seen


@pytest.mark.parametrize(
    ("partitions", "message"),
    [(0, "'r' does not exist: create it with 3 partitions"), (1, "'r' has 1 partitions, but 't'")],
)
@simulated(seeds=range(2))
async def test_a_retry_topic_that_cannot_take_all_is_reported_at_once(
    partitions: int, message: str
) -> None:
    """Records wait until the content of the retry topic is known: in this test, for ever."""
    async with cluster_of(partitions=3) as cluster:
        if partitions:
            cluster.add_topic("r", partitions)
        app = make_app(cluster)
        handling(app, retry=Retry(topic="r"))
        with pytest.raises(ConfigError, match=message):
            async with asyncio.timeout(10), app:
                pass


@simulated(seeds=range(2))
async def test_a_retry_topic_that_was_just_made_is_waited_for() -> None:
    async with cluster_of(partitions=2) as cluster:
        cluster.append("t", 1, 3)
        app = make_app(cluster)
        seen = handling(app, retry=Retry(topic="r"))
        asyncio.get_running_loop().call_later(1, cluster.add_topic, "r", 2)
        async with app:
            await asyncio.sleep(10)
            assert seen == [0, 1, 2]
            assert len(await app.consumer.partitions_for("r")) == 2
            assert await app.consumer.partitions_for("nowhere") == frozenset()


def test_a_topic_for_dead_letters_that_is_not_there_is_mentioned_and_reported_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[tuple[bool, str, str | None]] = []

    async def start(dead: str, fails: bool) -> None:
        async with cluster_of() as cluster:
            cluster.add_topic("dead", 1)
            app = make_app(cluster, shutdown_grace_ms=100)

            @app.handler("t", dead_letter_topic=dead)
            async def handle(record: Record) -> None:
                raise ValueError("no")

            if fails:
                cluster.append("t", 0, 5)
            async with app:
                await until(lambda: app.consumer.health().ready)
                await asyncio.sleep(2)
                status = app.status()
                reported.append((status.ready, status.state, status.reason))
                await asyncio.sleep(600)
                status = app.status()
                reported.append((status.ready, status.state, status.reason))

    run(lambda: start("dead", False), seed=1)
    assert ([check[0] for check in reported], "is not there" in caplog.text) == (
        [True, True],
        False,
    )
    reported.clear()
    run(lambda: start("gone", False), seed=1)
    reason = "the topic is not there, and the brokers do not create it: create it"
    assert caplog.text.count(f"dead letters to gone: {reason}") == 1
    assert [(ready, reason in (why or "")) for ready, _, why in reported] == [(False, True)] * 2
    reported.clear()
    caplog.clear()
    run(lambda: start("gone", True), seed=1)
    assert [check[:2] for check in reported] == [(False, "handler_bound")] * 2
    assert all(reason in (why or "") for _, _, why in reported)
    assert len(caplog.records) < 120  # in ten minutes: at most ten a minute


@simulated(seeds=range(2))
async def test_dead_letters_that_cannot_be_written_are_why_it_is_not_ready() -> None:
    with producers() as producer:
        async with cluster_of() as cluster:
            cluster.add_topic("dead", 1)
            cluster.append("t", 0, 1)
            app = make_app(cluster, shutdown_grace_ms=100)

            @app.handler("t", dead_letter_topic="dead")
            async def handle(record: Record) -> None:
                raise ValueError("no")

            producer.down = True
            async with app:
                await asyncio.sleep(120)
                status = app.status()
                assert (status.ready, status.state) == (False, "handler_bound")
                assert "1 records cannot be written to dead: ConnectFailed" in (status.reason or "")
                producer.down = False
                await asyncio.sleep(30)
                assert (app.status().ready, app.status().reason) == (True, None)

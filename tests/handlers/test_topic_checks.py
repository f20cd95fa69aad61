"""The check of the topics that handlers write to, at the start of an app."""

import asyncio
from typing import Any

import pytest

from asyncconsumer import ConfigError, ConsumerApp, Publish, Record, Retry
from asyncconsumer.errors import TopicAlreadyExists
from asyncconsumer.protocol.admin_topics import CREATE_TOPICS
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.virtual_time import simulated
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
    [(0, "'r' does not exist. Create it with 3 partitions"), (1, "'r' has 1 partitions, but 't'")],
)
@simulated(seeds=range(2))
async def test_an_insufficient_retry_topic_is_reported_at_the_start(
    partitions: int, message: str
) -> None:
    """Records would wait forever, because the content of the retry topic is never known."""
    async with cluster_of(partitions=3) as cluster:
        if partitions:
            cluster.add_topic("r", partitions)
        app = make_app(cluster)
        handling(app, retry=Retry(topic="r"))
        with pytest.raises(ConfigError, match=message):
            async with asyncio.timeout(10), app:
                pass


@simulated(seeds=range(2))
async def test_an_app_waits_for_a_retry_topic_that_was_just_created() -> None:
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


@pytest.mark.parametrize(
    ("options", "role"),
    [
        ({"dead_letter_topic": "gone"}, "dead letter topic"),
        ({"publish": "gone"}, "topic of results"),
        ({"publish": Publish("gone", serializer=str)}, "topic of results"),
    ],
)
@simulated(seeds=range(2))
async def test_a_missing_topic_is_an_error_at_the_start(options: dict[str, Any], role: str) -> None:
    async with cluster_of() as cluster:
        app = make_app(cluster)

        @app.handler("t", **options)
        async def handle(record: Record) -> None: ...

        message = f"handle: its {role} 'gone' does not exist. Create it, or .*--create-topics"
        with pytest.raises(ConfigError, match=message):
            async with asyncio.timeout(10), app:
                pass


@simulated(seeds=range(2))
async def test_an_error_names_all_missing_topics() -> None:
    async with cluster_of() as cluster:
        app = make_app(cluster)
        handling(app, retry=Retry(topic="r"), dead_letter_topic="dead")
        with pytest.raises(ConfigError, match=r"'r' does not exist.*'dead' does not exist"):
            async with app:
                pass


@simulated(seeds=range(2))
async def test_brokers_may_create_a_dead_letter_topic_themselves() -> None:
    async with FakeKafka() as kafka:
        await kafka.create_topic("t")
        app = ConsumerApp(group_id="g", **kafka.options)
        handling(app, dead_letter_topic="dead")
        async with app:
            assert kafka.partition_count("dead") == 1


@simulated(seeds=range(2))
async def test_missing_topics_are_created_on_request() -> None:
    """A retry topic has the partitions of its source, and grows if it has fewer."""
    async with FakeKafka(auto_create_topics=False) as kafka:
        await kafka.create_topic("t", partitions=3)
        await kafka.create_topic("u.retry", partitions=1)
        await kafka.create_topic("u", partitions=2)
        app = ConsumerApp(
            group_id="g", create_topics=True, auto_offset_reset="earliest", **kafka.options
        )
        seen = handling(app, retry=Retry(topic="t.retry"), dead_letter_topic="dead")

        @app.handler("u", retry=Retry(topic="u.retry"))
        async def other(record: Record) -> None: ...

        @app.handler("new", publish="results")
        async def publish(record: Record) -> str:
            seen.append(-1)
            return "result"

        async with app:
            topics = kafka.cluster.view.topics
            counts = {name: len(topic.partitions) for name, topic in topics.items()}
            await kafka.send("new", "x")
            await until(lambda: len(kafka.published("results")) == 1)
        assert counts == {
            "t": 3, "t.retry": 3, "dead": 1, "u": 2, "u.retry": 2, "new": 1, "results": 1,
        }  # fmt: skip
    assert seen == [-1]


@simulated(seeds=range(2))
async def test_another_member_may_create_a_topic_first() -> None:
    async with FakeKafka(auto_create_topics=False) as kafka:
        app = ConsumerApp(group_id="g", create_topics=True, **kafka.options)
        handling(app, dead_letter_topic="dead")
        kafka.cluster.fail_next(CREATE_TOPICS.key, TopicAlreadyExists.code)
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, kafka.cluster.add_topic, "dead")
        async with app:
            assert kafka.partition_count("dead") == 1


@simulated(seeds=range(2))
async def test_an_app_that_cannot_write_dead_letters_is_not_ready() -> None:
    async with cluster_of() as cluster:
        cluster.add_topic("dead", 1)
        cluster.append("t", 0, 1)
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t", dead_letter_topic="dead")
        async def handle(record: Record) -> None:
            raise ValueError("no")

        cluster.producing.max_message_bytes = 10
        async with app:
            await asyncio.sleep(120)
            status = app.status()
            assert (status.ready, status.state) == (False, "handler_bound")
            assert "1 records cannot be written to dead: RecordTooLarge" in (status.reason or "")
            cluster.producing.max_message_bytes = 10_000
            await asyncio.sleep(30)
            assert (app.status().ready, app.status().reason) == (True, None)

"""The dashboard on a real cluster: groups of every kind, rebalances, dead letters, changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI

from asyncconsumer import Consumer, ConsumerApp
from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.sites import dashboard
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.web.server import serving
from tests.support.helpers import until
from tests.support.real_consumer import QUICK, make_consumer, send, take


def sum_of(group: dict[str, Any], field: str) -> int:
    return sum(row[field] or 0 for row in group.get("partitions", ()))


class Page:
    """A client of the dashboard that remembers the last snapshot."""

    def __init__(self) -> None:
        self.snapshot: dict[str, Any] = {}
        self.history: dict[str, Any] = {}

    async def follow(self, session: aiohttp.ClientSession, path: str = "/events") -> None:
        async with session.get(path, timeout=aiohttp.ClientTimeout()) as answer:
            name = ""
            async for line in answer.content:
                if line.startswith(b"event: "):
                    name = line.decode().split()[1]
                elif line.startswith(b"data: "):
                    content = json.loads(line[6:])
                    if name == "history":
                        self.history = content
                    else:
                        self.snapshot = content

    def group(self, name: str) -> dict[str, Any]:
        groups = self.snapshot.get("groups", ())
        return next((group for group in groups if group["group"] == name), {})

    def owners(self, name: str) -> set[str]:
        return {row["member_id"] for row in self.group(name).get("partitions", ())}

    def rebalances(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.snapshot.get("timeline", ()) if row["group"] == name]


@asynccontextmanager
async def opened(site: DashboardSite) -> AsyncIterator[Page]:
    async with (
        serving(site, "127.0.0.1", 0, before_stop=site.close) as port,
        watching(port) as page,
    ):
        yield page


@asynccontextmanager
async def watching(port: int, path: str = "/events") -> AsyncIterator[Page]:
    page = Page()
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(page.follow(session, path))
        try:
            yield page
        finally:
            task.cancel()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_lag_members_and_rebalances_of_a_group_are_shown(
    kafka: KafkaHandle, protocol: str
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    await send(kafka, topic, range(40))
    options: dict[str, Any] = {"group_id": group, "group_protocol": protocol}
    options["auto_commit_interval_ms"] = 200
    async with opened(dashboard(kafka.bootstrap_servers, interval=0.2)) as page:
        async with make_consumer(kafka, topic, **options) as first:
            await take(first, 40)
            await first.commit()
            await until(lambda: len(page.group(group).get("members", ())) == 1)
            await until(lambda: sum_of(page.group(group), "committed") == 40)
            seen = page.group(group)
            assert (seen["point"][1], sum_of(seen, "end")) == (0, 40)
            assert seen["kind"] == protocol
            assert seen["partitions"][0]["topic"] == topic
            async with make_consumer(kafka, topic, **options) as second:
                await second.wait_assigned()
                await until(lambda: len(page.owners(group) - {None}) == 2)
                await until(lambda: bool(page.rebalances(group)))
                await until(lambda: page.rebalances(group)[0]["seconds"] is not None)
                (rebalance,) = page.rebalances(group)[-1:]
                assert len(rebalance["joined"]) == 1
            await until(lambda: len(page.owners(group) - {None}) == 1)
        await send(kafka, topic, [7])
        await until(lambda: page.group(group)["point"][1] == 1)
        await until(lambda: page.group(group)["point"][2] is not None)
        texts = {(reason["subject"], reason["text"]) for reason in page.snapshot["health"]}
        assert (group, "No members, and 1 records are waiting") in texts


async def test_a_group_in_zookeeper_is_shown_with_its_owners(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    consumer = Consumer(
        topic,
        group_id=group,
        group_protocol="zookeeper",
        zookeeper_connect=kafka_zk.zookeeper_connect,
    )
    async with opened(dashboard(zookeeper_connect=kafka_zk.zookeeper_connect)) as page, consumer:
        await consumer.wait_assigned()
        await until(lambda: len(page.owners(group) - {None}) == 1)
        assert page.group(group)["kind"] == "zookeeper"


async def test_the_page_is_outdated_while_no_broker_answers() -> None:
    async with Kafka() as server:
        (broker,) = server.brokers.values()
        await server.admin.create_topic("orders", partitions=2, replication_factor=1)
        options: dict[str, Any] = {"bootstrap_servers": server.bootstrap_servers}
        consumer = Consumer("orders", group_id="billing", **options)
        async with opened(dashboard(server.bootstrap_servers, interval=0.2)) as page:
            async with consumer:
                await consumer.wait_assigned()
                await until(lambda: bool(page.group("billing").get("members")))
            await until(lambda: page.group("billing").get("members") == [])
            time = page.snapshot["time"]
            await broker.stop()
            await until(lambda: page.snapshot["error"] is not None)
            assert page.group("billing")["state"] == "Empty"
            assert page.snapshot["health"][0]["level"] == "error"
            await until(lambda: page.snapshot["age"] > 1)
            await broker.start()
            await until(lambda: page.snapshot["error"] is None)
            assert page.snapshot["time"] > time
            await until(lambda: bool(page.group("billing")))


async def test_failures_are_counted_and_replayed_from_a_mounted_app(
    kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "a token with enough characters"
    monkeypatch.setenv("ASYNCCONSUMER_DASHBOARD_TOKEN", token)
    topic, dead = await kafka.topic(), await kafka.topic()
    app = ConsumerApp(bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group(), **QUICK)
    attempts: list[bytes] = []

    @app.handler(topic, dead_letter_topic=dead)
    async def work(value: bytes) -> None:
        attempts.append(value)
        if len(attempts) == 1:
            raise ValueError("no such customer")

    api = FastAPI(lifespan=app.lifespan)
    api.mount("/kafka", app.asgi())

    def row(page: Page) -> dict[str, Any]:
        rows = page.snapshot.get("dead_letters", ())
        return next((each for each in rows if each["topic"] == dead), {})

    async with (
        app.lifespan(api),
        serving(api, "127.0.0.1", 0) as port,
        watching(port, "/kafka/events") as page,
    ):
        await send(kafka, topic, [5])
        await until(lambda: row(page).get("open") == 1)
        assert row(page)["last_error"] == "builtins.ValueError"
        assert row(page)["last_source"] == f"{topic}[0]@0"
        assert "no such customer" not in json.dumps(page.snapshot)
        assert page.snapshot["actions"] == ["pause", "resume", "replay"]

        async def act(name: str, target: str) -> tuple[int, str]:
            url = f"http://127.0.0.1:{port}/kafka/actions/{name}"
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json={"topic": target}, headers=headers) as answer,
            ):
                return answer.status, (await answer.json())["message"]

        assert await act("replay", topic) == (400, f"{topic!r} is not a dead letter topic.")
        assert await act("replay", dead) == (200, f"Sent back 1 dead letters of {dead}.")
        await until(lambda: len(attempts) == 2)
        await until(lambda: row(page)["open"] == 0)
        assert (await act("pause", topic))[0] == 200
        assert app.paused_topics == {topic}
        await until(lambda: page.snapshot["paused"] == [topic])
        assert (await act("resume", topic))[0] == 200
        assert app.paused_topics == frozenset()
        assert (await act("pause", "unknown"))[0] == 400

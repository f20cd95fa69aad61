"""The lifespan of an app: entered before the group is joined, exited after the drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import FastAPI

from asyncconsumer import ConfigError, ConsumerApp, Record, State
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


class RecordingLifespan:
    """A lifespan that records its steps."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.seen: list[str] = []
        self._cluster = cluster

    @asynccontextmanager
    async def open(self, app: ConsumerApp) -> AsyncIterator[dict[str, str]]:
        joined = "g" in self._cluster.groups
        self.seen.append("joined before" if joined else "enter")
        yield {"pool": "the pool"}
        self.seen.append("exit")


def app_with(cluster: GroupCluster, life: RecordingLifespan, **options: Any) -> ConsumerApp:
    app = make_app(cluster, lifespan=life.open, **options)

    @app.handler("t")
    async def handle(record: Record, pool: Annotated[str, State("pool")]) -> None:
        life.seen.append(f"begin with {pool}")
        await asyncio.sleep(2)
        life.seen.append("end")

    return app


@pytest.mark.parametrize("in_a_web_app", [False, True])
@simulated(seeds=range(2))
async def test_the_lifespan_surrounds_the_membership_and_the_drain(in_a_web_app: bool) -> None:
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1)
        life = RecordingLifespan(cluster)
        app = app_with(cluster, life)
        async with app.lifespan(FastAPI()) if in_a_web_app else app:
            await until(lambda: len(life.seen) == 2)
            assert app.state == {"pool": "the pool"}
        assert life.seen == ["enter", "begin with the pool", "end", "exit"]


@simulated(seeds=range(2))
async def test_an_error_of_the_lifespan_fails_the_start() -> None:
    @asynccontextmanager
    async def broken(app: ConsumerApp) -> AsyncIterator[None]:
        if app.state is None:
            raise OSError("no database")
        yield

    async with cluster_of() as cluster:
        app = make_app(cluster, lifespan=broken)
        app.handler("t")(lambda record: None)
        for opened in (app, app.lifespan(FastAPI())):
            with pytest.raises(OSError, match="no database") as raised:
                async with opened:
                    pass
            assert raised.value.__notes__[0].startswith("raised by the `lifespan` of the app")
        assert "g" not in cluster.groups


@simulated(seeds=range(2))
async def test_the_lifespan_ends_after_a_failure_and_restarts() -> None:
    async with cluster_of() as cluster:
        life = RecordingLifespan(cluster)
        app = make_app(cluster, lifespan=life.open)

        @app.handler("t")
        async def fail(record: Record) -> None:
            raise ValueError

        for number in (1, 2):
            cluster.append("t", 0, 1)
            with pytest.raises(Exception, match=r"handler .*fail failed"):
                async with app:
                    await app.failed()
            assert life.seen.count("exit") == number


async def test_an_invalid_lifespan_is_refused() -> None:
    options: Any = {"bootstrap_servers": "k:1", "group_id": "g"}
    with pytest.raises(ConfigError, match="`lifespan` must be a function"):
        ConsumerApp(**{**options, "lifespan": "open"})

    async def coroutine(app: ConsumerApp) -> AsyncIterator[None]:
        yield

    app = ConsumerApp(**{**options, "lifespan": coroutine})
    app.handler("t")(lambda record: None)
    with pytest.raises(ConfigError, match=r"returned async_generator.*asynccontextmanager"):
        async with app:
            pass

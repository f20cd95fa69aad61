"""The lifespan of a consumer inside a web app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any

import pytest
from aiohttp import web
from fastapi import FastAPI
from starlette.applications import Starlette

from asyncconsumer import ClosedError, ConfigError, Consumer, ConsumerApp
from asyncconsumer.aio.scope import Scope
from asyncconsumer.consumer.subscription_spec import parse_subscription
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConnectFailed, NoBrokerAnswered
from asyncconsumer.handlers.health import AppHealth, AppState, status_of
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.pages import page
from asyncconsumer.web.status import Status
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast

WELL = Status(live=True, ready=True, started=True, state="consuming")


class Thing(WebMixin):
    """Something that is opened and closed, and may die, as an app of handlers does."""

    recorder = Recorder()

    def __init__(self, *, cannot_start: Exception | None = None) -> None:
        self._scope = Scope("thing")
        self.observed: list[str] = []
        self.drained = asyncio.Event()
        self.drained.set()
        self.worse_at_the_end: Exception | None = None
        self._cannot_start = cannot_start
        self._task: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        await asyncio.sleep(0)
        if self._cannot_start:
            raise self._cannot_start
        await stack.enter_async_context(self._scope)
        self._task = asyncio.current_task()
        self.observed.append("open")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.observed.append("draining" if kind is None else "cut short")
        if self._error and self._task:
            self._task.uncancel()
        await self.drained.wait()
        await super().__aexit__(None, None, None)
        self.observed.append("closed")
        if failure := self._error or self.worse_at_the_end:
            raise failure

    def can_start(self, error: Exception | None = None) -> None:
        self._cannot_start = error

    def die(self, error: Exception) -> None:
        assert self._task
        self._error = error
        self._task.cancel()

    def status(self) -> Status:
        return WELL


async def test_it_is_open_while_the_web_app_runs() -> None:
    thing = Thing()
    async with thing.lifespan(FastAPI()):
        assert thing.observed == ["open"]
        assert await thing.current() is thing
        assert thing.status_by_worker() == {"": WELL}
    assert thing.observed == ["open", "draining", "closed"]


async def test_the_end_of_the_web_app_waits_until_all_is_drained() -> None:
    thing, over = Thing(), asyncio.Event()
    thing.drained.clear()

    async def serve() -> None:
        async with thing.lifespan():
            await over.wait()

    async with asyncio.TaskGroup() as group:
        served = group.create_task(serve())
        over.set()
        await until(lambda: "draining" in thing.observed)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not served.done()
        thing.drained.set()
    assert thing.observed[-1] == "closed"


async def test_what_cannot_start_keeps_the_web_app_from_starting() -> None:
    thing = Thing(cannot_start=ConfigError("no such option"))
    with pytest.raises(ConfigError, match="no such option"):
        async with thing.lifespan():
            pytest.fail("the web app started")
    with pytest.raises(ConfigError, match="no such option"):
        await anext(aiter(Thing(cannot_start=ConfigError("no such option")).cleanup_ctx()))


def nobody() -> NoBrokerAnswered:
    return NoBrokerAnswered((ConnectFailed("k:9092", "refused"),))


async def test_without_kafka_the_web_app_starts_and_goes_on_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    thing = Thing(cannot_start=nobody())
    async with thing.lifespan(FastAPI()):
        status = thing.status_by_worker()[""]
        assert (status.live, status.ready, status.state) == (True, False, "starting")
        assert "no broker answered" in (status.reason or "")
        assert [
            page("GET", path, thing.status_by_worker).status
            for path in ("/live", "/started", "/ready")
        ] == [200, 503, 503]
        with pytest.raises(ClosedError):
            await thing.current()
        thing.can_start()
        await until(lambda: thing.observed == ["open"])
        assert thing.status_by_worker() == {"": WELL}
        assert await thing.current() is thing
    assert thing.observed[-1] == "closed"
    assert "Thing could not be opened, next try in 0." in caplog.text


async def test_a_web_app_that_ends_before_kafka_is_there_does_not_wait() -> None:
    thing = Thing(cannot_start=nobody())
    async with asyncio.timeout(5), thing.lifespan():
        pass
    assert (thing.observed, thing.status_by_worker()[""].live) == ([], False)


async def test_a_web_app_that_ends_cancels_an_attempt_to_open() -> None:
    """A broker that accepts connections and does not respond would delay the end otherwise."""

    class SecondAttemptHangs(Thing):
        async def _open(self, stack: AsyncExitStack) -> None:
            self.observed.append("opening")
            if len(self.observed) == 1:
                raise nobody()
            stack.callback(self.observed.append, "closed again")
            await asyncio.Event().wait()

    thing = SecondAttemptHangs()
    async with asyncio.timeout(5), thing.lifespan():
        await until(lambda: len(thing.observed) == 2)
    assert thing.observed == ["opening", "opening", "closed again"]
    assert not thing.status_by_worker()[""].live


async def test_the_option_start_is_checked() -> None:
    with pytest.raises(ConfigError, match="`start` must be 'lazy' or 'connected', got 'eager'"):
        async with Thing().lifespan(start="eager"):  # type: ignore[arg-type]
            pytest.fail("the web app started")


async def test_what_is_wrong_for_good_is_reported_also_later() -> None:
    thing = Thing(cannot_start=nobody())
    async with thing.lifespan():
        thing.can_start(ConfigError("no such option"))
        await until(lambda: not thing.status_by_worker()[""].live)
        assert thing.status_by_worker()[""].reason == "no such option"


async def test_a_web_app_may_require_kafka() -> None:
    @asynccontextmanager
    async def existing(web_app: object) -> AsyncIterator[None]:
        yield

    async def in_aiohttp() -> None:
        await anext(aiter(Thing(cannot_start=nobody()).cleanup_ctx(None, start="connected")))

    with pytest.raises(NoBrokerAnswered):
        await in_aiohttp()
    resource, other = Thing(cannot_start=nobody()), Thing(cannot_start=nobody())
    for span in (
        resource.lifespan(FastAPI(), start="connected"),
        other.lifespan_with(existing, start="connected")(None),
    ):
        with pytest.raises(NoBrokerAnswered):
            async with span:
                pytest.fail("the web app started")


@pytest.mark.parametrize("kind", [ConsumerApp, Consumer])
async def test_what_failed_to_open_can_be_opened_again(kind: Any) -> None:
    """Wherever it failed: with its connections, or with what it was to read."""
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        environment = Environment(open_broker=cluster.open, randomness=Random(1))
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g"}
        resource = environment.run(kind, heartbeat_thread=False, **options)
        if kind is ConsumerApp:

            @resource.handler("t")  # type: ignore[untyped-decorator]
            async def handle(value: bytes) -> None: ...

        else:
            resource._spec = parse_subscription(["t"], None, None)
        for _ in range(2):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Consumer, "_change_to", failing)
                with pytest.raises(NoBrokerAnswered):
                    async with resource:
                        pytest.fail("it was opened")
        async with asyncio.timeout(20), resource.lifespan():
            await until(lambda: resource.status_by_worker()[""].ready)


async def failing(*_: object) -> None:
    raise nobody()


async def test_what_dies_is_reported_and_the_web_app_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    thing = Thing()
    async with thing.lifespan():
        thing.die(ConfigError("the group was deleted"))
        await until(lambda: not thing.status_by_worker()[""].live)
        assert thing.status_by_worker()[""].reason == "the group was deleted"
        with pytest.raises(ClosedError):
            await thing.current()
    assert "Thing failed, and the web app continues without it: the group was deleted" in (
        caplog.text
    )


async def test_an_error_of_the_very_end_is_raised() -> None:
    thing = Thing()
    with pytest.raises(ConfigError, match="not committed"):
        async with thing.lifespan():
            thing.worse_at_the_end = ConfigError("not committed")


async def test_errors_of_the_web_app_are_its_own() -> None:
    thing = Thing()
    with pytest.raises(KeyError):
        async with thing.lifespan():
            raise KeyError
    assert thing.observed[-1] == "closed"


async def test_a_web_app_that_is_cancelled_takes_it_along() -> None:
    thing = Thing()

    async def serve() -> None:
        async with thing.lifespan():
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        served = group.create_task(serve())
        await until(lambda: thing.observed == ["open"])
        served.cancel()
    assert thing.observed[-1] == "closed"


async def test_what_an_existing_lifespan_opens_is_there_before_it_and_after_it() -> None:
    thing, web_app = Thing(), Starlette()

    @asynccontextmanager
    async def existing(value: object) -> AsyncIterator[dict[str, int]]:
        assert value is web_app
        thing.observed.append("existing")
        yield {"answer": 42}
        thing.observed.append("existing over")

    async with thing.lifespan_with(existing)(web_app) as state:
        assert state == {"answer": 42}
    assert thing.observed == ["existing", "open", "draining", "closed", "existing over"]


async def test_aiohttp_opens_and_closes_it() -> None:
    thing, web_app = Thing(), web.Application()
    web_app.cleanup_ctx.append(thing.cleanup_ctx)
    runner = web.AppRunner(web_app)
    async with asyncio.TaskGroup() as group:  # as fixtures of tests do: each in a task of its own
        await group.create_task(runner.setup())
        assert thing.observed == ["open"]
        await group.create_task(runner.cleanup())
    assert thing.observed == ["open", "draining", "closed"]


async def test_a_second_life_is_refused() -> None:
    thing = Thing()
    async with thing.lifespan():
        pass
    with pytest.raises(ClosedError, match="create a new one"):
        async with thing.lifespan():
            pytest.fail("opened twice")


@pytest.mark.parametrize(
    ("state", "live", "ready"),
    [
        (AppState.RUNNING, True, True),
        (AppState.DRAINING, True, False),
        (AppState.FAILED, False, False),
        (AppState.CLOSED, False, False),
    ],
)
def test_an_app_stands_as_its_consumer_does_while_it_runs(
    state: AppState, live: bool, ready: bool
) -> None:
    status = status_of(AppHealth(state, "why", {}), WELL)
    assert (status.live, status.ready) == (live, ready)
    assert status.state == (WELL.state if ready else state)
    assert not status_of(AppHealth(state, None, {}), replace(WELL, ready=False)).ready


async def test_apps_and_consumers_say_when_they_are_not_open() -> None:
    app = ConsumerApp(bootstrap_servers="localhost:1", group_id="g")
    consumer = Consumer("t", bootstrap_servers="localhost:1", group_id="g")
    for resource in (app, consumer):
        assert not resource.status_by_worker()[""].ready
        with pytest.raises(ClosedError, match="not open yet"):
            await resource.current()
    assert app.status_by_worker()[""].reason == "the app was not opened yet"
    with pytest.raises(ConfigError, match="no handler"):
        async with app.lifespan():
            pytest.fail("started without a handler")


async def test_a_consumer_is_started_after_its_first_assignment() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        consumer = make_consumer(cluster)
        assert not consumer.status().started
        async with asyncio.timeout(20), consumer:
            assert not consumer.status().started
            await consumer.wait_joined()
            assert consumer.status().started
        async with make_consumer(cluster, ()) as idle:
            assert idle.status().started  # it awaits no assignment

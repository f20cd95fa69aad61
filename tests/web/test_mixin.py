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

HEALTHY = Status(live=True, ready=True, started=True, state="consuming")


class Resource(WebMixin):
    """A resource that is opened and closed and may fail, like an app of handlers."""

    recorder = Recorder()

    def __init__(self, *, start_error: Exception | None = None) -> None:
        self._scope = Scope("resource")
        self.observed: list[str] = []
        self.drained = asyncio.Event()
        self.drained.set()
        self.close_error: Exception | None = None
        self._start_error = start_error
        self._task: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        await asyncio.sleep(0)
        if self._start_error:
            raise self._start_error
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
        if failure := self._error or self.close_error:
            raise failure

    def set_start_error(self, error: Exception | None = None) -> None:
        self._start_error = error

    def fail(self, error: Exception) -> None:
        assert self._task
        self._error = error
        self._task.cancel()

    def status(self) -> Status:
        return HEALTHY


async def test_the_resource_is_open_while_the_web_app_runs() -> None:
    resource = Resource()
    async with resource.lifespan(FastAPI()):
        assert resource.observed == ["open"]
        assert await resource.current() is resource
        assert resource.status_by_worker() == {"": HEALTHY}
    assert resource.observed == ["open", "draining", "closed"]


async def test_the_end_of_the_web_app_waits_for_the_drain() -> None:
    resource, over = Resource(), asyncio.Event()
    resource.drained.clear()

    async def serve() -> None:
        async with resource.lifespan():
            await over.wait()

    async with asyncio.TaskGroup() as group:
        served = group.create_task(serve())
        over.set()
        await until(lambda: "draining" in resource.observed)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not served.done()
        resource.drained.set()
    assert resource.observed[-1] == "closed"


async def test_a_final_error_prevents_the_start_of_the_web_app() -> None:
    resource = Resource(start_error=ConfigError("no such option"))
    with pytest.raises(ConfigError, match="no such option"):
        async with resource.lifespan():
            pytest.fail("the web app started")
    with pytest.raises(ConfigError, match="no such option"):
        await anext(aiter(Resource(start_error=ConfigError("no such option")).cleanup_ctx()))


def no_broker_answered() -> NoBrokerAnswered:
    return NoBrokerAnswered((ConnectFailed("k:9092", "refused"),))


async def test_the_web_app_starts_without_kafka_and_retries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resource = Resource(start_error=no_broker_answered())
    async with resource.lifespan(FastAPI()):
        status = resource.status_by_worker()[""]
        assert (status.live, status.ready, status.state) == (True, False, "starting")
        assert "no broker answered" in (status.reason or "")
        assert [
            page("GET", path, resource.status_by_worker).status
            for path in ("/live", "/started", "/ready")
        ] == [200, 503, 503]
        with pytest.raises(ClosedError):
            await resource.current()
        resource.set_start_error()
        await until(lambda: resource.observed == ["open"])
        assert resource.status_by_worker() == {"": HEALTHY}
        assert await resource.current() is resource
    assert resource.observed[-1] == "closed"
    assert "Resource could not be opened, next try in 0." in caplog.text


async def test_a_web_app_that_ends_before_kafka_answers_does_not_wait() -> None:
    resource = Resource(start_error=no_broker_answered())
    async with asyncio.timeout(5), resource.lifespan():
        pass
    assert (resource.observed, resource.status_by_worker()[""].live) == ([], False)


async def test_the_end_of_the_web_app_cancels_an_attempt_to_open() -> None:
    """A broker that accepts connections and does not respond would delay the end otherwise."""

    class SecondAttemptHangs(Resource):
        async def _open(self, stack: AsyncExitStack) -> None:
            self.observed.append("opening")
            if len(self.observed) == 1:
                raise no_broker_answered()
            stack.callback(self.observed.append, "closed again")
            await asyncio.Event().wait()

    resource = SecondAttemptHangs()
    async with asyncio.timeout(5), resource.lifespan():
        await until(lambda: len(resource.observed) == 2)
    assert resource.observed == ["opening", "opening", "closed again"]
    assert not resource.status_by_worker()[""].live


async def test_the_option_start_is_checked() -> None:
    with pytest.raises(ConfigError, match="`start` must be 'lazy' or 'connected', got 'eager'"):
        async with Resource().lifespan(start="eager"):  # type: ignore[arg-type]
            pytest.fail("the web app started")


async def test_a_final_error_of_a_later_attempt_is_reported() -> None:
    resource = Resource(start_error=no_broker_answered())
    async with resource.lifespan():
        resource.set_start_error(ConfigError("no such option"))
        await until(lambda: not resource.status_by_worker()[""].live)
        assert resource.status_by_worker()[""].reason == "no such option"


async def test_a_web_app_may_require_kafka() -> None:
    @asynccontextmanager
    async def existing(web_app: object) -> AsyncIterator[None]:
        yield

    async def in_aiohttp() -> None:
        await anext(
            aiter(Resource(start_error=no_broker_answered()).cleanup_ctx(None, start="connected"))
        )

    with pytest.raises(NoBrokerAnswered):
        await in_aiohttp()
    resource, other = (
        Resource(start_error=no_broker_answered()),
        Resource(start_error=no_broker_answered()),
    )
    for span in (
        resource.lifespan(FastAPI(), start="connected"),
        other.lifespan_with(existing, start="connected")(None),
    ):
        with pytest.raises(NoBrokerAnswered):
            async with span:
                pytest.fail("the web app started")


@pytest.mark.parametrize("kind", [ConsumerApp, Consumer])
async def test_a_resource_can_be_opened_after_a_failed_open(kind: Any) -> None:
    """The open may fail while connections are opened or while partitions are assigned."""
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
    raise no_broker_answered()


async def test_a_failed_resource_is_reported_and_the_web_app_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resource = Resource()
    async with resource.lifespan():
        resource.fail(ConfigError("the group was deleted"))
        await until(lambda: not resource.status_by_worker()[""].live)
        assert resource.status_by_worker()[""].reason == "the group was deleted"
        with pytest.raises(ClosedError):
            await resource.current()
    assert "Resource failed, and the web app continues without it: the group was deleted" in (
        caplog.text
    )


async def test_an_error_of_close_is_raised() -> None:
    resource = Resource()
    with pytest.raises(ConfigError, match="not committed"):
        async with resource.lifespan():
            resource.close_error = ConfigError("not committed")


async def test_errors_of_the_web_app_are_raised_unchanged() -> None:
    resource = Resource()
    with pytest.raises(KeyError):
        async with resource.lifespan():
            raise KeyError
    assert resource.observed[-1] == "closed"


async def test_a_cancelled_web_app_closes_the_resource() -> None:
    resource = Resource()

    async def serve() -> None:
        async with resource.lifespan():
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        served = group.create_task(serve())
        await until(lambda: resource.observed == ["open"])
        served.cancel()
    assert resource.observed[-1] == "closed"


async def test_an_existing_lifespan_surrounds_the_resource() -> None:
    resource, web_app = Resource(), Starlette()

    @asynccontextmanager
    async def existing(value: object) -> AsyncIterator[dict[str, int]]:
        assert value is web_app
        resource.observed.append("existing")
        yield {"answer": 42}
        resource.observed.append("existing over")

    async with resource.lifespan_with(existing)(web_app) as state:
        assert state == {"answer": 42}
    assert resource.observed == ["existing", "open", "draining", "closed", "existing over"]


async def test_aiohttp_opens_and_closes_the_resource() -> None:
    resource, web_app = Resource(), web.Application()
    web_app.cleanup_ctx.append(resource.cleanup_ctx)
    runner = web.AppRunner(web_app)
    async with asyncio.TaskGroup() as group:  # like fixtures of tests, each step in its own task
        await group.create_task(runner.setup())
        assert resource.observed == ["open"]
        await group.create_task(runner.cleanup())
    assert resource.observed == ["open", "draining", "closed"]


async def test_a_closed_resource_cannot_be_opened_again() -> None:
    resource = Resource()
    async with resource.lifespan():
        pass
    with pytest.raises(ClosedError, match="create a new one"):
        async with resource.lifespan():
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
def test_a_running_app_has_the_status_of_its_consumer(
    state: AppState, live: bool, ready: bool
) -> None:
    status = status_of(AppHealth(state, "why", {}), HEALTHY)
    assert (status.live, status.ready) == (live, ready)
    assert status.state == (HEALTHY.state if ready else state)
    assert not status_of(AppHealth(state, None, {}), replace(HEALTHY, ready=False)).ready


async def test_apps_and_consumers_report_that_they_are_not_open() -> None:
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
            assert idle.status().started  # the consumer awaits no assignment

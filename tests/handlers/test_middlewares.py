"""Middlewares around handlers, and routers that compose apps."""

import logging
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from asyncconsumer import (
    Batch,
    CallNext,
    ConfigError,
    ConsumerApp,
    Context,
    Header,
    Middleware,
    Outgoing,
    OutgoingRecord,
    PublishNext,
    Record,
    Retry,
    Router,
)
from asyncconsumer.middlewares import CloudEvents, Deduplicate, StructuredLogging, Tracing
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


def recording(name: str, seen: list[str]) -> Middleware:
    async def note(call_next: CallNext, context: Context) -> Any:
        seen.append(f"{name} before {[record.offset for record in context.records]}")
        try:
            return await call_next(context)
        finally:
            seen.append(f"{name} after")

    return note


class Counting:
    """A middleware object that counts attempts."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    async def __call__(self, call_next: CallNext, context: Context) -> Any:
        self.attempts.append(context.attempt)
        return await call_next(context)


@pytest.mark.parametrize("batch", [None, Batch(3)])
@simulated(seeds=range(2))
async def test_middlewares_are_called_from_the_outermost(batch: Batch | None) -> None:
    seen: list[str] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1)
        app = make_app(cluster, middlewares=[recording("app", seen)])
        outer = Router(middlewares=[recording("outer", seen)])
        inner = Router(middlewares=[recording("inner", seen)])
        own = [recording("first", seen), recording("second", seen)]

        async def handle_all(records: list[Record]) -> None:
            seen.append("handler")

        async def handle(record: Record) -> None:
            seen.append("handler")

        inner.handler("t", batch=batch, middlewares=own)(handle_all if batch else handle)
        outer.include(inner)
        app.include(outer)
        async with app:
            await until(lambda: len(seen) == 11)
    names = ["app", "outer", "inner", "first", "second"]
    before = [f"{name} before [0]" for name in names]
    assert seen == [*before, "handler", *(f"{name} after" for name in reversed(names))]


@simulated(seeds=range(2))
async def test_a_middleware_may_skip_change_and_fail() -> None:
    counting, handled, skipped = Counting(), [], []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 4)

        async def decide(call_next: CallNext, context: Context) -> Any:
            record = context.record
            if record.offset == 1:
                skipped.append(record.offset)
                return None
            if record.offset == 2 and context.attempt == 1:
                raise ValueError("it is retried")
            place = record.topic, record.partition, record.offset, record.timestamp
            changed = Record(*place, key=record.key, value=b"changed", headers=[("h", b"1")])
            return await call_next(context.with_item(changed))

        app = make_app(cluster, middlewares=[counting, decide])

        @app.handler("t", retry=Retry(3, backoff_ms=10))
        async def handle(value: str, record: Record, h: Annotated[int, Header("h")]) -> None:
            handled.append((record.offset, value, h))

        async with app:
            await until(lambda: len(handled) == 3)
            await until(lambda: app.status().lag["t"]["0"] == 0)
    assert sorted(handled) == [(number, "changed", 1) for number in (0, 2, 3)]
    assert skipped == [1]
    assert sorted(counting.attempts) == [1, 1, 1, 1, 2]


async def plain(call_next: CallNext) -> None: ...


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        (Counting, "Counting in `middlewares` is a class"),
        (print, "is not an async function"),
        (plain, "cannot be called with call_next and context"),
        (SimpleNamespace(publish=print), "`publish` of .* is not an async function"),
        (SimpleNamespace(publish=plain), "cannot be called with call_next and record"),
    ],
)
def test_an_invalid_middleware_is_refused(middleware: Any, message: str) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    for declare in (
        lambda: app.handler("t", middlewares=[middleware]),
        lambda: Router(middlewares=[middleware]),
        lambda: ConsumerApp(bootstrap_servers="k:1", group_id="g", middlewares=[middleware]),
    ):
        with pytest.raises(ConfigError, match=message):
            declare()
    with pytest.raises(ConfigError, match="must be a list"):
        app.handler("t", middlewares=middleware)


def test_a_prefix_applies_to_all_topics_of_a_handler() -> None:
    router = Router(prefix="shop.")

    @router.handler("orders", retry=Retry(topic="again"), dead_letter_topic="dead")
    async def handle(record: Record) -> None: ...

    @router.handler(pattern="(?i)bills-.|other")
    async def by_pattern(record: Record) -> None: ...

    @router.handler(pattern="a|b")
    async def without_flags(record: Record) -> None: ...

    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    app.include(router, prefix="eu.")
    app.include(router, prefix="us.")
    assert app.dead_letter_topics == {"eu.shop.dead", "us.shop.dead"}
    names = {topic for handler in app._handlers for topic in handler.handling.retry_topics}
    assert names == {"eu.shop.again", "us.shop.again"}
    for topic in (
        "eu.shop.orders",
        "us.shop.orders",
        "us.shop.BILLS-1",
        "eu.shop.other",
        "eu.shop.b",
    ):
        assert app.reads(topic)
    for topic in ("orders", "shop.orders", "other", "b", "euxshopxbills-1", "eu.shop.bills-11"):
        assert not app.reads(topic)


def test_nested_routers_add_their_prefixes() -> None:
    inner, outer = Router(prefix="c."), Router(prefix="a.")

    @inner.handler("d")
    async def handle(record: Record) -> None: ...

    outer.include(inner, prefix="b.")
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    app.include(outer)
    assert app.reads("a.b.c.d")


def test_invalid_routers_are_refused() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    router = Router()

    @router.handler("t")
    async def handle(record: Record) -> None: ...

    app.include(router)
    with pytest.raises(ConfigError, match="'t' has two handlers"):
        app.include(router)
    with pytest.raises(ConfigError, match=r"handle is declared after its router was included"):
        router.handler("u")(handle)
    with pytest.raises(ConfigError, match="cannot include itself"):
        router.include(router)
    with pytest.raises(ConfigError, match="takes a Router"):
        app.include(app)  # type: ignore[arg-type]


class Publishing:
    """A middleware around what handlers publish, which may fail for the first record."""

    def __init__(self, name: str, seen: list[str], *, fails: bool = False) -> None:
        self.name = name
        self.seen = seen
        self.fails = fails

    async def publish(self, call_next: PublishNext, record: OutgoingRecord) -> Any:
        if self.fails:
            self.fails = False
            raise ValueError("it is retried")
        self.seen.append(f"{self.name} {record.topic} {record.index} {record.context.handler}")
        return await call_next(record.with_headers({self.name: "yes"}))


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_middlewares_are_called_for_published_results(exactly_once: bool) -> None:
    seen: list[str] = []

    class Both(Publishing):
        async def __call__(self, call_next: CallNext, context: Context) -> Any:
            result = await call_next(context)
            seen.append(f"{self.name} got {result}")
            return result

        async def publish(self, call_next: PublishNext, record: OutgoingRecord) -> Any:
            if record.value == b"dropped":
                return None
            changed = replace(record, value=(record.value or b"").upper())
            return await super().publish(call_next, changed)

    app = ConsumerApp(
        bootstrap_servers="k:1",
        group_id="g",
        middlewares=[Both("app", seen)],
        exactly_once=exactly_once,
    )
    router = Router(middlewares=[Publishing("router", seen)])

    @router.handler("t", publish="results")
    async def handle(value: str) -> list[Any]:
        return [value, "dropped", Outgoing("other", value="o", headers=[("app", b"no")])]

    app.include(router)
    async with app.testing() as kafka:
        await kafka.send("t", "a", key="k")
        await kafka.settled()
        [result], [other] = kafka.published("results"), kafka.published("other")
    assert (result.key, result.value) == (b"k", b"A")
    assert result.headers == (("app", b"yes"), ("router", b"yes"))
    assert (other.value, other.headers) == (b"O", (("app", b"yes"), ("router", b"yes")))
    name = handle.__qualname__
    assert [line.partition(" got ")[0] for line in seen] == [
        f"app results 0 {name}",
        f"router results 0 {name}",
        f"app other 2 {name}",
        f"router other 2 {name}",
        "app",
    ]


async def test_a_result_that_could_not_be_published_is_not_skipped_as_a_duplicate() -> None:
    seen: list[str] = []
    app = ConsumerApp(
        bootstrap_servers="k:1",
        group_id="g",
        middlewares=[
            Deduplicate(lambda record: str(record.offset), window=timedelta(hours=1)),
            Publishing("own", seen, fails=True),
        ],
    )

    @app.handler("t", publish="results", retry=Retry(2, backoff_ms=1))
    async def handle(value: str) -> str:
        return value

    async with app.testing() as kafka:
        await kafka.send("t", "a")
        await kafka.settled()
        assert [record.value for record in kafka.published("results")] == [b"a"]


async def test_results_become_cloud_events() -> None:
    app = ConsumerApp(
        bootstrap_servers="k:1",
        group_id="g",
        middlewares=[CloudEvents(source="/billing", type="billed", required=False)],
    )

    @app.handler("t", publish="results")
    async def handle(value: dict[str, int]) -> list[Any]:
        return [value, Outgoing("results", value=value, headers=[("ce_type", b"other")])]

    async with app.testing() as kafka:
        await kafka.send("t", {"id": 1})
        await kafka.settled()
        first, second = (dict(record.headers) for record in kafka.published("results"))
    assert first == {
        "ce_specversion": b"1.0",
        "ce_id": b"t-0-0-0",
        "ce_source": b"/billing",
        "ce_type": b"billed",
        "content-type": b"application/json",
    }
    assert (second["ce_id"], second["ce_type"]) == (b"t-0-0-1", b"other")
    with pytest.raises(ConfigError, match="`type` of CloudEvents needs the `source`"):
        CloudEvents(type="billed")


@pytest.mark.parametrize("options", [{"tracing": True}, {"middlewares": [Tracing()]}])
async def test_results_carry_the_trace_of_their_record(options: dict[str, Any]) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g", **options)

    @app.handler("t", publish="results")
    async def handle(value: str) -> str:
        return value

    trace = "0af7651916cd43dd8448eb211c80319c"
    async with app.testing() as kafka:
        await kafka.send("t", "a", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        await kafka.settled()
        [record] = kafka.published("results")
    assert trace in (record.header("traceparent") or b"").decode()


async def test_results_are_logged_without_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asyncconsumer.middlewares")
    app = ConsumerApp(
        bootstrap_servers="k:1",
        group_id="g",
        middlewares=[StructuredLogging(), Publishing("own", [], fails=True)],
    )

    @app.handler("t", publish="results", retry=Retry(2, backoff_ms=1))
    async def handle(value: str) -> str:
        return value

    async with app.testing() as kafka:
        await kafka.send("t", "secret")
        await kafka.settled()
    assert "which is dropped" not in caplog.text
    name = handle.__qualname__
    lines = [record for record in caplog.records if "structured_logging" in record.name]
    assert [record.getMessage() for record in lines] == [
        f"handler {name}: result not sent to results",
        f"handler {name} failed t[0]@0",
        f"handler {name}: result sent to results",
        f"handler {name} processed t[0]@0",
    ]
    assert [lines[0].__dict__[field] for field in ("bytes", "attempt", "error")] == [
        6,
        1,
        "ValueError",
    ]
    assert not any("secret" in str(record.__dict__) for record in lines)

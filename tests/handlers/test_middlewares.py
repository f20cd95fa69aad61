"""Middlewares around handlers, and routers that compose apps."""

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
    Record,
    Retry,
    Router,
)
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


def noting(name: str, seen: list[str]) -> Middleware:
    async def note(call_next: CallNext, context: Context) -> Any:
        seen.append(f"{name} before {[record.offset for record in context.records]}")
        try:
            return await call_next(context)
        finally:
            seen.append(f"{name} after")

    return note


class Counting:
    """A middleware that is an object."""

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
        app = make_app(cluster, middlewares=[noting("app", seen)])
        outer = Router(middlewares=[noting("outer", seen)])
        inner = Router(middlewares=[noting("inner", seen)])
        own = [noting("first", seen), noting("second", seen)]

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
    ],
)
def test_a_middleware_that_is_none_is_refused(middleware: Any, message: str) -> None:
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


def test_a_prefix_is_put_before_all_topics_of_a_handler() -> None:
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
    names = {handler.handling.retry_topic for handler in app._handlers}
    assert names == {"eu.shop.again", "us.shop.again", None}
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


def test_routers_are_checked() -> None:
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

"""Dependencies, context, state and headers as arguments of handlers."""

import enum
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import fastapi
import pytest
from pydantic import BaseModel

from asyncconsumer import (
    Batch,
    ConfigError,
    ConsumerApp,
    Context,
    Depends,
    Header,
    Key,
    Record,
    Retry,
    State,
    TopicPartition,
    Value,
)
from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.handlers.arguments import arguments_of
from asyncconsumer.handlers.handler import HandlerOptions, declared
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import CONTEXT
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast

RECORD = Record(
    "t", 0, 5, key=b"k", value=b'{"id": 7}', headers=[("v", b"1"), ("v", b"2"), ("none", None)]
)


class Order(BaseModel):
    id: int


class Colour(enum.Enum):
    RED = "2"


async def call(
    function: Callable[..., Any], *records: Record, app: ConsumerApp | None = None, **options: Any
) -> Any:
    """Call a handler as its worker does, and return what it returns."""
    app = app or ConsumerApp(bootstrap_servers="k:1", group_id="g")
    handler = declared(function, ("t",), None, HandlerOptions(**options))
    context = CONTEXT._replace(app=app)
    runtime = HandlerRuntime(handler, group="g", dead_letters={}, context=context)
    try:
        item = list(records) if "batch" in options else (records or [RECORD])[0]
        return await runtime.workers._call(item)
    finally:
        await runtime.close()


async def test_a_dependency_may_be_any_callable() -> None:
    class Pool:
        size = 3

    class Answer:
        async def __call__(self) -> int:
            return 42

    def sync(pool: Annotated[Pool, Depends()]) -> int:
        return pool.size

    async def later(size: Annotated[int, Depends(sync)]) -> int:
        return size + 1

    async def handle(
        order: Order,
        later: Annotated[int, Depends(later)],
        answer: Annotated[int, Depends(Answer())],
        size: int = Depends(sync),  # type: ignore[assignment]
    ) -> list[object]:
        return [order.id, later, answer, size]

    assert await call(handle) == [7, 4, 42, 3]


async def test_depends_of_fastapi_is_accepted() -> None:
    def db() -> str:
        return "db"

    async def handle(order: Order, db: Annotated[str, fastapi.Depends(db)]) -> str:
        return db

    assert await call(handle) == "db"


async def test_a_cached_dependency_is_created_once_per_call() -> None:
    calls = []

    def number() -> int:
        calls.append(1)
        return len(calls)

    def two(number: Annotated[int, Depends(number)]) -> int:
        return number * 2

    async def handle(
        order: Order,
        cached: Annotated[int, Depends(number)],
        double: Annotated[int, Depends(two)],
        fresh: Annotated[int, Depends(number, use_cache=False)],
    ) -> list[int]:
        return [cached, double, fresh]

    assert await call(handle) == [1, 2, 2]
    assert await call(handle) == [3, 6, 4]


@pytest.mark.parametrize("fails", [False, True])
async def test_generators_are_cleaned_up_after_the_handler(fails: bool) -> None:
    seen: list[object] = []

    async def outer() -> AsyncIterator[str]:
        seen.append("open outer")
        try:
            yield "outer"
        except ValueError as error:
            seen.append(f"outer gets {error}")
            raise
        finally:
            seen.append("close outer")

    def inner(outer: Annotated[str, Depends(outer)]) -> Iterator[str]:
        seen.append("open inner")
        try:
            yield f"{outer}, inner"
        finally:
            seen.append("close inner")

    async def handle(order: Order, both: Annotated[str, Depends(inner)]) -> None:
        seen.append(both)
        if fails:
            raise ValueError("no")

    if fails:
        with pytest.raises(ValueError, match="no"):
            await call(handle)
    else:
        await call(handle)
    failure = ["outer gets no"] if fails else []
    assert seen == [
        "open outer", "open inner", "outer, inner", "close inner", *failure, "close outer",
    ]  # fmt: skip


async def test_a_generator_that_suppresses_the_error_does_not_hide_it() -> None:
    def swallow() -> Iterator[None]:
        with pytest.raises(ValueError, match="no"):
            yield

    async def handle(order: Order, nothing: Annotated[None, Depends(swallow)]) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await call(handle)


async def test_a_plain_handler_in_a_thread_gets_dependencies() -> None:
    async def db() -> str:
        return "db"

    def handle(order: Order, timeout: int = 5, *, db: Annotated[str, Depends(db)]) -> object:
        return order.id, timeout, db

    assert await call(handle) == (7, 5, "db")


async def test_context_and_state_are_passed_to_handlers() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    app.state = {"pool": "the pool"}

    def get(context: Context, record: Record, key: Key) -> object:
        return context.record is record, key, context.records

    async def handle(
        context: Context,
        pool: Annotated[str, State("pool")],
        state: State,
        got: Annotated[object, Depends(get)],
    ) -> object:
        assert context.app is app
        return context.handler, context.attempt, context.state, pool, state, got

    name = handle.__qualname__
    expected = (name, 1, app.state, "the pool", app.state, (True, b"k", [RECORD]))
    assert await call(handle, app=app) == expected

    class Both:
        pool = "an attribute"

    app.state = Both

    async def from_object(pool: Annotated[str, State("pool")]) -> str:
        return pool

    assert await call(from_object, app=app) == "an attribute"


async def test_dependencies_are_created_once_for_a_batch() -> None:
    calls = []

    def db(records: list[Record]) -> int:
        calls.append(len(records))
        return len(records)

    async def handle(
        orders: list[Order],
        versions: Annotated[list[int], Header("v")],
        db: Annotated[int, Depends(db)],
        context: Context,
    ) -> object:
        return [order.id for order in orders], versions, db, len(context.records)

    assert await call(handle, RECORD, RECORD, batch=Batch(2)) == ([7, 7], [2, 2], 2, 2)
    assert calls == [2]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 2), (str, "2"), (bytes, b"2"), (float, 2.0), (Colour, Colour.RED), (int | None, 2)],
)
def test_a_header_is_converted(kind: Any, value: object) -> None:
    def handle(version: Annotated[kind, Header("v")]) -> None: ...

    [argument] = arguments_of("h", handle, batch=False)
    assert argument.read(RECORD) == value


async def test_a_missing_header_has_its_default_or_an_error() -> None:
    async def handle(
        order: Order,
        unused: int = 1,
        default: Annotated[int, Header("x")] = 9,
        none: Annotated[int | None, Header("x")] = None,
        empty: Annotated[str | None, Header("none")] = "default",
    ) -> object:
        return unused, default, none, empty

    async def required(order: Order, version: Annotated[int, Header("x")]) -> None: ...
    async def wrong(version: Annotated[bool, Header("v")]) -> None: ...
    async def optional(version: Annotated[int | None, Header("x")]) -> object:
        return version

    assert await call(handle) == (1, 9, None, None)
    assert await call(optional) is None
    with pytest.raises(DeserializationFailed, match=r"header 'x' of t\[0\]@5 .*does not have it"):
        await call(required)
    with pytest.raises(DeserializationFailed, match=r"header 'v' of t\[0\]@5 .*KeyError"):
        await call(wrong)


def unknown(name: str) -> None: ...
def unreadable(order: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821
def itself(again: Any = Depends(lambda: None)) -> None: ...  # noqa: B008


itself.__defaults__ = (Depends(itself),)


@pytest.mark.parametrize(
    ("dependency", "message"),
    [
        (unknown, "handler handle, parameter 'db', dependency unknown, parameter 'name': a depend"),
        (unreadable, "dependency unreadable: its annotations cannot be read"),
        (itself, "dependency itself: it depends on itself. Remove the cycle"),
        (5, "parameter 'db': the dependency 5 is not a function or class"),
    ],
)
def test_a_dependency_that_cannot_be_called_is_refused(dependency: Any, message: str) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    async def handle(order: Order, db: Annotated[str, Depends(dependency)]) -> None: ...

    handle.__qualname__ = "handle"
    with pytest.raises(ConfigError, match=message):
        app.handler("t")(handle)


def test_contradicting_markers_are_refused() -> None:
    def both(db: Annotated[str, Depends(str), Key]) -> None: ...
    def nested(order: Order, db: Annotated[str, Depends(str)] | None) -> None: ...
    def unsupported(version: Annotated[ConsumerApp, Header("v")]) -> None: ...

    for function, message in (
        (both, "parameter 'db': .* choose different arguments"),
        (nested, "parameter 'db': .* inside of another type"),
        (unsupported, "parameter 'version': "),
    ):
        with pytest.raises(ConfigError, match=message):
            arguments_of("h", function, batch=False)


async def test_the_value_is_available_to_a_dependency() -> None:
    def number(order: Annotated[Order, Value], key: Annotated[str, Key]) -> str:
        return f"{key}{order.id}"

    async def handle(number: Annotated[str, Depends(number)]) -> str:
        return number

    assert await call(handle) == "k7"


async def test_dependencies_are_replaced() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    def url() -> str:
        return "production"

    def db(url: Annotated[str, Depends(url)]) -> str:
        return f"db of {url}"

    def other(context: Context) -> str:
        return f"{context.attempt}. test"

    def wrong(name: str) -> None: ...

    async def handle(order: Order, db: Annotated[str, Depends(db)]) -> str:
        return db

    app.dependency_overrides[url] = other
    assert await call(handle, app=app) == "db of 1. test"
    app.dependency_overrides[db] = lambda: "fake"
    assert await call(handle, app=app) == "fake"
    app.dependency_overrides[db] = wrong
    with pytest.raises(ConfigError, match=r"dependency .*wrong, parameter 'name'"):
        await call(handle, app=app)


@simulated(seeds=range(2))
async def test_the_attempt_is_counted() -> None:
    attempts: dict[int, list[int]] = {}
    async with cluster_of() as cluster:
        cluster.append("t", 0, 3)
        app = make_app(cluster)

        @app.handler("t", retry=Retry(3, backoff_ms=10))
        async def handle(context: Context) -> None:
            assert context.record.topic == "t"
            attempts.setdefault(context.record.offset, []).append(context.attempt)
            if context.record.offset == 1 and context.attempt < 3:
                raise ValueError

        async with app:
            await until(lambda: attempts.get(1) == [1, 2, 3] and len(attempts) == 3)
            await until(lambda: app.status().lag["t"]["0"] == 0)
    assert attempts == {0: [1], 1: [1, 2, 3], 2: [1]}
    assert cluster.storage.offsets["g"][TopicPartition("t", 0)]["offset"] == 3

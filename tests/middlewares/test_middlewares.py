"""Built-in middlewares, on virtual time and with fakes of Redis and of a consumer."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace

from asyncconsumer import ConfigError, Context, Record, TopicPartition
from asyncconsumer.errors import DeserializationFailed, HandlerTimedOut
from asyncconsumer.middlewares import (
    CircuitBreaker,
    CloudEvents,
    Deduplicate,
    DeduplicationStore,
    MemoryStore,
    RateLimit,
    RedisStore,
    SqliteStore,
    StructuredLogging,
    Timeout,
    Tracing,
)
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast


def record(offset: int, value: bytes = b"v", **headers: str) -> Record:
    named = [(name.replace("__", "-"), text.encode()) for name, text in headers.items()]
    return Record("t", 0, offset, key=b"secret", value=value, headers=named)


def context(*records: Record) -> Context:
    app: Any = SimpleNamespace(group_id="g")
    return Context(app, "handle", records[0] if len(records) == 1 else list(records))


def by_value(record: Record) -> str | None:
    return record.value.decode() if record.value else None


class Handler:
    """A next call that stores its records."""

    def __init__(self, error: Exception | None = None, seconds: float = 0) -> None:
        self.items: list[Any] = []
        self.times: list[float] = []
        self.error = error
        self.seconds = seconds

    async def __call__(self, context: Context) -> str:
        self.items.append(context.item)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return "done"


@simulated(seeds=range(2))
async def test_the_rate_is_limited_after_a_burst() -> None:
    limit, handler = RateLimit(10, burst=3), Handler()
    start = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(limit(handler, context(record(number))))
    waits = [round(time - start, 3) for time in handler.times]
    assert waits == [0, 0, 0, 0.1, 0.2, 0.3]
    await limit(handler, context(record(6), record(7)))
    await limit(handler, context(record(8)))
    assert [round(time - start, 3) for time in handler.times[6:]] == [0.4, 0.6]


@simulated(seeds=range(2))
async def test_a_call_that_exceeds_the_timeout_is_cancelled() -> None:
    assert await Timeout(1000)(Handler(seconds=0.9), context(record(0))) == "done"
    with pytest.raises(HandlerTimedOut, match="handle took more than 1000 ms"):
        await Timeout(1000)(Handler(seconds=1.1), context(record(0)))
    with pytest.raises(TimeoutError, match="its own"):
        await Timeout(1000)(Handler(TimeoutError("its own")), context(record(0)))


async def test_logs_have_fields_and_no_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = StructuredLogging(fields=lambda record: {"size": len(record.value or b"")})
    await log(Handler(), context(record(5, b"private")))
    with pytest.raises(ValueError, match="private"):
        await log(Handler(ValueError("private")), context(record(6, b"private")))
    done, failed = caplog.records
    fields = ("handler", "topic", "partition", "offset", "records", "attempt", "outcome", "error")
    assert [getattr(done, name) for name in fields] == [
        "handle", "t", 0, 5, 1, 1, "processed", None,
    ]  # fmt: skip
    assert [getattr(failed, name) for name in fields[3:]] == [6, 1, 1, "failed", "ValueError"]
    assert (vars(done)["size"], done.levelname, failed.levelname) == (7, "INFO", "WARNING")
    assert not any(word in str(vars(each)) for each in (done, failed) for word in ("priv", "secr"))


class Redis:
    """A fake of ``redis.asyncio.Redis`` with the two methods that the store calls."""

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}

    async def exists(self, *names: str) -> int:
        [name] = names
        return int(self.ends.get(name, 0) > asyncio.get_running_loop().time())

    async def set(self, name: str, value: bytes, *, px: int) -> object:
        self.ends[name] = asyncio.get_running_loop().time() + px / 1000
        return True


class SlowRedis(Redis):
    """A Redis that takes time, so that other calls run between two keys of a batch."""

    async def exists(self, *names: str) -> int:
        await asyncio.sleep(0.1)
        return await super().exists(*names)


@pytest.mark.parametrize("make", [MemoryStore, lambda: RedisStore(Redis())])
@simulated(seeds=range(2))
async def test_a_record_is_skipped_within_the_window(
    make: Callable[[], DeduplicationStore],
) -> None:
    handler = Handler()
    deduplicate = Deduplicate(by_value, window=timedelta(seconds=10), store=make())
    for number, value in enumerate((b"a", b"a", b"b", b"")):
        await deduplicate(handler, context(record(number, value)))
    assert [item.offset for item in handler.items] == [0, 2, 3]
    await asyncio.sleep(11)
    await deduplicate(handler, context(record(4, b"a")))
    batch = [record(offset, value) for offset, value in ((5, b"a"), (6, b"c"), (7, b"c"))]
    await deduplicate(handler, context(*batch))
    assert handler.items[-1] == [batch[1]]


@simulated(seeds=range(2))
async def test_a_duplicate_runs_after_the_failure_of_the_running_record() -> None:
    deduplicate = Deduplicate(by_value, window=timedelta(seconds=10))
    failing, handler = Handler(ValueError("no"), seconds=1), Handler()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_caught(deduplicate(failing, context(record(0, b"a")))))
        await asyncio.sleep(0.1)
        second = group.create_task(deduplicate(handler, context(record(1, b"a"))))
        await asyncio.sleep(0.5)
        assert not handler.items
    assert (await first, await second) == ("no", "done")
    assert await deduplicate(handler, context(record(2, b"a"))) is None


async def _caught(call: Any) -> str:
    try:
        return str(await call)
    except ValueError as error:
        return str(error)


@simulated(seeds=range(4))
async def test_batches_that_share_keys_do_not_deadlock() -> None:
    store = RedisStore(SlowRedis())
    deduplicate = Deduplicate(by_value, window=timedelta(seconds=9), store=store)
    handler = Handler(seconds=1)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for values in ((b"a", b"b"), (b"b", b"a")):
            batch = [record(number, value) for number, value in enumerate(values)]
            group.create_task(deduplicate(handler, context(*batch)))
    assert len(handler.items) == 1


async def test_a_sqlite_store_keeps_its_keys_until_they_expire(tmp_path: Path) -> None:
    now = 1_000.0
    for number, expected in enumerate((False, True, True)):
        store = SqliteStore(tmp_path / "seen.db", now=lambda: now)
        assert await store.contains("a") is expected, number
        await store.add("a", 60)
        store.close()
    now += 61
    store = SqliteStore(tmp_path / "seen.db", now=lambda: now)
    assert not await store.contains("a")
    await store.add("b", 60)
    assert store._database.execute("SELECT key FROM seen").fetchall() == [("b",)]
    store.close()


def test_a_memory_store_is_bounded() -> None:
    async def keys() -> list[bool]:
        store = MemoryStore(2)
        for key in "abc":
            await store.add(key, 60)
        return [await store.contains(key) for key in "abc"]

    assert asyncio.run(keys()) == [False, True, True]


ATTRIBUTES = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/shop", "ce_type": "sold"}


async def test_cloud_events_are_read_in_both_modes() -> None:
    handler, events = Handler(), CloudEvents()
    binary = record(0, b"{}", **ATTRIBUTES)
    await events(handler, context(binary))
    assert handler.items == [binary]
    event = {name.removeprefix("ce_"): text for name, text in ATTRIBUTES.items()}
    kind = {"content__type": "application/cloudevents+json; charset=UTF-8", "other": "kept"}
    for body, value, content_type in (
        ({"data": {"id": 7}}, b'{"id": 7}', b"application/json"),
        ({"data_base64": "AAE=", "datacontenttype": "a/b"}, b"\0\1", b"a/b"),
        ({}, None, b"application/json"),
    ):
        structured = record(3, json.dumps({**event, **body}).encode(), **kind)
        await events(handler, context(structured, structured))
        item = handler.items[-1][1]
        assert (item.offset, item.key, item.value) == (3, b"secret", value)
        expected = {name: text.encode() for name, text in ATTRIBUTES.items()}
        assert dict(item.headers) == {**expected, "other": b"kept", "content-type": content_type}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(0), "the header ce_specversion is missing"),
        (record(0, b"{", content__type="application/cloudevents+json"), "JSONDecodeError"),
        (record(0, b"[]", content__type="application/cloudevents+json"), "not a JSON object"),
        (record(0, b"{}", content__type="application/cloudevents+json"), "attribute specversion"),
    ],
)
async def test_invalid_cloud_events_are_refused(bad: Record, reason: str) -> None:
    with pytest.raises(DeserializationFailed, match=reason):
        await CloudEvents()(Handler(), context(bad))


async def test_a_span_is_current_during_the_call() -> None:
    seen = []

    async def handle(context: Context) -> str:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        return "done"

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert await Tracing()(handle, context(record(0, traceparent=parent))) == "done"
    assert seen == [0x0AF7651916CD43DD8448EB211C80319C]


def test_invalid_options_are_refused() -> None:
    for make in (
        lambda: RateLimit(0),
        lambda: RateLimit(1, burst=0),
        lambda: Timeout(0),
        lambda: CircuitBreaker(0),
        lambda: Deduplicate(by_value, window=timedelta()),
        lambda: MemoryStore(0),
    ):
        with pytest.raises(ConfigError):
            make()


@pytest.mark.parametrize(("failures", "concurrency", "before"), [(2, 1, 2), (1, 4, 4)])
@simulated(seeds=range(3))
async def test_a_circuit_breaker_pauses_until_a_probe_succeeds(
    failures: int, concurrency: int, before: int
) -> None:
    breaker = CircuitBreaker(failures, reset_ms=10_000)
    calls: list[float] = []
    is_down, tp = True, TopicPartition("t", 0)
    async with cluster_of() as cluster:
        cluster.append("t", 0, 10)
        app = make_app(cluster, middlewares=[breaker])
        clock = asyncio.get_running_loop().time

        @app.handler("t", concurrency=concurrency, ordering="none", on_error="skip")
        async def handle(record: Record) -> None:
            calls.append(clock())
            await asyncio.sleep(0.1)
            if is_down:
                raise OSError("it is down")

        async with app:
            await until(lambda: breaker.is_open)
            assert app.consumer.paused == {tp}
            await until(lambda: len(calls) == before + 1)  # the last call is the probe
            assert calls[before] - calls[before - 1] >= 9.9
            await asyncio.sleep(5)
            assert len(calls) == before + 1
            is_down = False
            await until(lambda: not breaker.is_open)
            assert app.consumer.paused == frozenset()
            await until(lambda: len(calls) == 10)
            await until(lambda: app.status().lag["t"]["0"] == 0)
    assert calls[before + 1] - calls[before] >= 9.9

"""Logs, events, pages and reprs show the class and place of an error, and no record contents."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from asyncconsumer import ConsumerApp, Record, Retry
from asyncconsumer.consumer.dead_letters import Failure, failure_headers
from asyncconsumer.errors import (
    ConsumerError,
    DeserializationFailed,
    HandlerFailed,
    ListenerFailed,
    brief,
)
from asyncconsumer.serdes import int64, make_deserializer
from asyncconsumer.serdes.protobuf import message_path
from asyncconsumer.serdes.wire_format import Framed
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.web.pages import page
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast

CARD = "4111-1111-1111-1111"
BAD = f'{{"amount": "{CARD}"}}'.encode()


class Order(BaseModel):
    amount: int


@dataclass
class Plain:
    amount: int


def shown(error: BaseException) -> str:
    return f"{error} {error!r} {error.args!r} {brief(error)}"


def own(data: bytes) -> int:
    raise ValueError(f"no number: {data!r}")


@pytest.mark.parametrize(
    "requested",
    [Order, Plain, own, int64, list, dict[str, int]],
    ids=lambda kind: getattr(kind, "__name__", str(kind)),
)
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_deserialization_error_does_not_show_the_data(requested: Any, part: Any) -> None:
    read = make_deserializer(requested).reader(part)
    with pytest.raises(DeserializationFailed) as caught:
        read(Record("t", 3, 7, key=BAD, value=BAD))
    assert CARD not in shown(caught.value)
    assert "t[3]@7" in str(caught.value)
    assert CARD in str(caught.value.record.value)  # type: ignore[attr-defined]


def test_a_copy_of_a_deserialization_error_has_the_record() -> None:
    record = Record("t", 3, 7, value=BAD)
    error = DeserializationFailed("value", record, "t[3]@7", "ValueError", retriable=True)
    again = copy.copy(error)
    assert (again.record, again.retriable, str(again)) == (record, True, str(error))


async def test_bytes_without_a_frame_are_not_shown() -> None:
    framed: Framed[bytes] = Framed(None, "AVRO", lambda schema: bytes)  # type: ignore[arg-type]
    for data in (b"4111", b"4111-1111"):
        with pytest.raises(ConsumerError) as caught:
            await framed(data)  # type: ignore[misc]
        assert "4111" not in shown(caught.value)
        assert b"4111".hex(" ") not in shown(caught.value)
    with pytest.raises(ConsumerError) as caught:
        message_path(b"\x00\x00\x00\x00\x014111")
    assert "4111" not in shown(caught.value)


def test_the_dead_letter_has_the_complete_error_message() -> None:
    """Readers of dead letters may read the record as well."""
    with pytest.raises(DeserializationFailed) as caught:
        make_deserializer(Order).reader("value")(Record("t", 3, 7, value=BAD))
    reported = dict(failure_headers(caught.value.record, Failure(caught.value)))  # type: ignore[arg-type]
    assert CARD.encode() in reported["dlt.error.message"]


@pytest.mark.parametrize("foreign", [ValueError(CARD), KeyError(CARD), RuntimeError()])
def test_only_the_class_of_a_foreign_exception_is_shown(foreign: Exception) -> None:
    kind = type(foreign).__name__
    assert brief(foreign) == kind
    for text in (repr(foreign), f"{kind}: {foreign}"):
        error, outer = ListenerFailed("on_partitions_lost", text), ListenerFailed("x", "")
        error.__cause__ = foreign
        outer.reason, outer.__cause__ = str(error), error
        for item in (error, outer):
            assert CARD not in brief(item)
            assert kind in brief(item)


Handle = Callable[..., Any]


async def raises(record: Record) -> None:
    raise ValueError(f"cannot charge card {CARD}")


async def takes_order(order: Order) -> None: ...


async def takes_number(amount: Annotated[int, int64], record: Record) -> None: ...


def log_and_pages(caplog: pytest.LogCaptureFixture, handle: Handle, **how: Any) -> tuple[str, str]:
    """Return the log and the pages of an app whose handler failed with a record."""
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    pages: list[bytes] = []

    async def scenario() -> None:
        async with cluster_of() as cluster:
            cluster.add_topic("dead", 1)
            app = make_app(cluster, shutdown_grace_ms=100)
            app.handler("t", **how)(handle)
            events: list[Any] = []
            cluster.append("t", 0, 1)
            await watch(app, pages, events)
            pages.append(repr(events).encode())

    run(scenario, seed=1)
    return caplog.text, b"\n".join(pages).decode()


async def watch(app: ConsumerApp, pages: list[bytes], events: list[Any]) -> None:
    def read_pages() -> None:
        pages.extend(
            page("GET", path, app.status_by_worker).body for path in ("/live", "/ready", "/status")
        )

    try:
        async with app:
            received = app.events()
            await until(lambda: any(h.failed for h in app.health().handlers.values()))
            await until(lambda: not app.health() or bool(_abandoned(app)))
            read_pages()
            events.extend(received._unread)
            events.append(app.health())
    except HandlerFailed as error:
        read_pages()
        events.append(shown(error))


def _abandoned(app: ConsumerApp) -> int:
    return sum(h.dead_letters + h.skipped for h in app.health().handlers.values())


POLICIES = [{"dead_letter_topic": "dead"}, {"on_error": "skip"}, {"on_error": "stop"}]


@pytest.mark.parametrize("retry", [None, Retry(3, backoff_ms=1)], ids=["once", "three times"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda kind: getattr(kind, "__name__", str(kind)))
def test_a_handlers_traceback_is_in_the_log_once_and_on_no_page(
    policy: dict[str, Any], retry: Retry | None, caplog: pytest.LogCaptureFixture
) -> None:
    log, pages = log_and_pages(caplog, raises, retry=retry, **policy)
    assert log.count("Traceback (most recent call last)") == 1
    assert log.count(CARD) == 1
    assert "in raises" in log
    (logged,) = [each for each in caplog.records if each.exc_info]
    assert (logged.handler, logged.topic, logged.partition, logged.offset) == ("raises", "t", 0, 0)  # type: ignore[attr-defined]
    attempts = 1 if retry is None else retry.attempts
    assert log.count("; retried in") == attempts - 1
    assert CARD not in pages
    assert "ValueError" in pages
    assert "t[0]@0" in log


@pytest.mark.parametrize("handle", [takes_order, takes_number])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda kind: getattr(kind, "__name__", str(kind)))
def test_an_undeserializable_record_is_in_no_log_and_on_no_page(
    policy: dict[str, Any], handle: Handle, caplog: pytest.LogCaptureFixture
) -> None:
    log, pages = log_and_pages(caplog, handle, **policy)
    for text in (log, pages):
        assert "t/0/0" not in text  # the values of these records start with this text
        assert "cannot be deserialized" in text
        assert "t[0]@0" in text

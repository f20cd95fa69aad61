"""Spans around handlers, without an SDK. A fake tracer records them."""

import asyncio
import builtins
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Annotated, Any

import pytest
from opentelemetry import trace

from asyncconsumer import Batch, ConfigError, ConsumerApp, Record
from asyncconsumer.environment import Environment
from asyncconsumer.events import EventBus
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.runtime import AppContext, HandlerRuntime
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.serdes import make_deserializer
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import A, settle, submit

pytestmark = pytest.mark.fast

TRACE, SENDER = 0xABC, 0x123
HEADERS = [("traceparent", b"00-%032x-%016x-01" % (TRACE, SENDER)), ("odd", b"\xff"), ("no", None)]


class Span(trace.NonRecordingSpan):
    def __init__(self, name: str, parent: int, links: list[int], attributes: Any) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.parent = parent  # the id of its trace
        self.links = links
        self.attributes: dict[str, Any] = attributes
        self.observed: list[str] = []

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        self.observed.append(f"{name} {attributes}")

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        self.observed += traceback.format_exception(exception)

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.observed.append(f"{status.status_code} {status.description}")


class Tracer:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextmanager
    def start_as_current_span(
        self, name: str, *, context: Any, kind: Any, attributes: Any, links: Any, **exceptions: bool
    ) -> Iterator[Span]:
        assert kind is trace.SpanKind.CONSUMER
        assert exceptions == {"record_exception": False, "set_status_on_exception": False}
        sender = trace.get_current_span(context).get_span_context()
        linked = [link.context.span_id for link in links]
        self.spans.append(Span(name, sender.trace_id, linked, attributes))
        yield self.spans[-1]


@contextmanager
def open_tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer", lambda _: tracer)
        yield tracer


def quotes(data: bytes) -> int:
    raise ValueError(data)


own = make_deserializer(quotes)


async def handled(function: Any, records: list[Record], **how: Any) -> None:
    handler = Handler(function, frozenset({"t"}), None, HandlerOptions(concurrency=1, **how))
    around = AppContext(Environment(randomness=Random(1)), EventBus(), Recorder(), tracing=True)
    runtime = HandlerRuntime(handler, group="g", dead_letters={}, context=around)
    async with asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(runtime.workers.work())
        submit(runtime.queue, runtime.queue.open(A, 0, None), records)
        await asyncio.sleep(1)
        await settle()
        worker.cancel()


@simulated(seeds=range(2))
async def test_a_record_is_handled_in_the_trace_of_its_producer() -> None:
    async def handle(record: Record) -> None: ...

    with open_tracer() as tracer:
        await handled(handle, [Record("t", 0, 5, headers=HEADERS), Record("t", 0, 6)])
    assert [(span.name, span.parent) for span in tracer.spans] == [
        ("process t", TRACE),
        ("process t", 0),
    ]
    attributes = tracer.spans[0].attributes
    assert (attributes["messaging.system"], attributes["messaging.kafka.offset"]) == ("kafka", 5)
    assert attributes["messaging.consumer.group.name"] == "g"


@simulated(seeds=range(2))
async def test_a_batch_has_links_to_the_traces_of_its_records() -> None:
    async def handle(records: list[Record]) -> None: ...

    with open_tracer() as tracer:
        records = [Record("t", 0, n, headers=HEADERS if n else ()) for n in range(3)]
        await handled(handle, records, batch=Batch(3))
    [span] = tracer.spans
    assert (span.parent, span.links) == (0, [SENDER, SENDER])
    assert span.attributes["messaging.batch.message_count"] == 3


@simulated(seeds=range(2))
async def test_a_failed_span_does_not_quote_the_data() -> None:
    async def fails(record: Record) -> None:
        raise ValueError("mine")

    async def takes(number: Annotated[int, own]) -> None: ...

    for handle, message in ((fails, "ValueError: mine"), (takes, "cannot be deserialized")):
        with open_tracer() as tracer:
            await handled(handle, [Record("t", 0, 5, value=b"4111")], on_error="skip")
        [span] = tracer.spans
        text = "".join(span.observed)
        assert message in text
        assert "StatusCode.ERROR" in text
        assert "4111" not in text


def test_a_missing_package_is_reported_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"asyncconsumer\[otel\]"):
        ConsumerApp(bootstrap_servers="k:1", group_id="g", tracing=True)

"""OpenTelemetry spans of loops and commits, recorded by the SDK."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from asyncconsumer import Consumer, ConsumerApp, Record, TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.virtual_time import simulated

pytestmark = pytest.mark.fast

TRACE, SENDER = 0xABC, 0x123
HEADERS = {"traceparent": b"00-%032x-%016x-01" % (TRACE, SENDER)}


@pytest.fixture(autouse=True)
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def own_id(span: ReadableSpan) -> int | None:
    return None if span.context is None else span.context.span_id


def named(exporter: InMemorySpanExporter, name: str) -> Sequence[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def consumer(kafka: FakeKafka, **options: Any) -> Consumer[Any, Any]:
    options.setdefault("group_id", "billing")
    options.setdefault("tracing", True)
    return Consumer("orders", auto_offset_reset="earliest", **kafka.options, **options)


def fail(record: Any) -> None:
    raise LookupError(f"no such customer in {record.value!r}")


def current() -> int:
    return trace.get_current_span().get_span_context().span_id


async def fill(kafka: FakeKafka, count: int = 3) -> None:
    for number in range(count):
        await kafka.send("orders", str(number), headers=HEADERS if number else {})


@pytest.mark.parametrize("deserializer", [None, bytes.decode])
def test_the_body_of_a_loop_is_a_span(exporter: InMemorySpanExporter, deserializer: Any) -> None:
    @simulated(seeds=range(2))
    async def run() -> None:
        exporter.clear()
        in_body = []
        async with FakeKafka() as kafka:
            await fill(kafka)
            async with consumer(kafka, value_deserializer=deserializer) as reading:
                async for record in reading:
                    in_body.append(current())
                    assert len(named(exporter, "process orders")) == record.offset
                    if record.offset == 2:
                        break
                assert current() == 0
        spans = named(exporter, "process orders")
        assert [own_id(span) for span in spans] == in_body
        assert [parent(span) for span in spans] == [None, SENDER, SENDER]
        assert [attributes(span)["messaging.kafka.offset"] for span in spans] == [0, 1, 2]
        assert {span.status.status_code for span in spans} == {trace.StatusCode.UNSET}
        assert attributes(spans[0]) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": "billing",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 0,
        }

    run()


def test_an_error_of_a_loop_sets_the_status_of_its_span(
    exporter: InMemorySpanExporter,
) -> None:
    @simulated(seeds=range(1))
    async def run() -> None:
        async with FakeKafka() as kafka:
            await fill(kafka)
            async with consumer(kafka) as reading:
                try:
                    async for record in reading:
                        fail(record)
                except LookupError:
                    assert current() == 0

    run()
    (span,) = named(exporter, "process orders")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "customer" not in str(span.to_json())


def test_batches_have_links_to_the_producers(exporter: InMemorySpanExporter) -> None:
    @simulated(seeds=range(1))
    async def run() -> None:
        async with FakeKafka() as kafka:
            await fill(kafka)
            async with consumer(kafka) as reading:
                async for batch in reading.batches(max_wait_ms=1000):
                    assert current()
                    assert len(batch) == 3
                    break
            async with consumer(kafka, group_id="other") as reading:
                assert await reading.getmany(timeout_ms=10_000)
                assert current()
                await fill(kafka, 1)
                await reading.getone()
                assert current()
            async with consumer(kafka, group_id="third") as reading:
                async for chunk in reading.chunks():
                    assert len(list(chunk)) == 4
                    break

    run()
    first, second, third, fourth = named(exporter, "process orders")
    for span, count in ((first, 3), (second, 3), (third, 1)):
        assert attributes(span)["messaging.batch.message_count"] == count
        assert [link.context.span_id for link in span.links] == [SENDER] * (count - 1)
        assert parent(span) is None
    assert attributes(fourth)["messaging.destination.name"] == "orders"


def test_commits_are_spans_of_their_own(exporter: InMemorySpanExporter) -> None:
    @simulated(seeds=range(1))
    async def run() -> None:
        async with FakeKafka() as kafka:
            await fill(kafka)
            async with consumer(kafka) as reading:
                async for record in reading:
                    if record.offset == 2:
                        await reading.commit()
                        break
            assert kafka.committed("billing") == {TopicPartition("orders", 0): 3}

    run()
    spans = named(exporter, "commit billing")
    assert spans
    assert all(parent(span) is None and span.kind is trace.SpanKind.CLIENT for span in spans)
    assert attributes(spans[-1])["messaging.operation.type"] == "settle"
    assert attributes(spans[-1])["messaging.kafka.offset"] == 3
    assert attributes(spans[-1])["messaging.destination.name"] == "orders"


def test_an_app_traces_its_commits_too(exporter: InMemorySpanExporter) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="billing", tracing=True)

    @app.handler("orders")
    async def bill(record: Record) -> None: ...

    @simulated(seeds=range(1))
    async def run() -> None:
        async with app.testing() as kafka:
            await fill(kafka)
            await kafka.settled()

    run()
    assert len(named(exporter, "process orders")) == 3
    assert attributes(named(exporter, "commit billing")[-1])["messaging.kafka.offset"] == 3


def test_no_spans_are_created_without_the_option(exporter: InMemorySpanExporter) -> None:
    @simulated(seeds=range(1))
    async def run() -> None:
        async with FakeKafka() as kafka:
            await fill(kafka)
            async with consumer(kafka, tracing=False) as reading:
                async for _ in reading:
                    break

    run()
    assert exporter.get_finished_spans() == ()


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", None)
    with pytest.raises(ConfigError, match=r"pip install 'asyncconsumer\[otel\]'"):
        Consumer("orders", bootstrap_servers="k:1", tracing=True)

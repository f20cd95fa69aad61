"""OpenTelemetry spans for handler calls, in the traces that record headers carry.

Only the OpenTelemetry API is used. Spans are recorded only if the application sets up an SDK.
"""

from typing import TYPE_CHECKING, Any

from asyncconsumer.errors import ConfigError, DeserializationFailed
from asyncconsumer.handlers.invoke import Call
from asyncconsumer.handlers.partition_work import Item, first_of
from asyncconsumer.records.decoding import Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


def check_tracing() -> None:
    """Raise ConfigError if OpenTelemetry is not installed."""
    try:
        import opentelemetry.propagate
        import opentelemetry.trace  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "tracing=True needs OpenTelemetry: pip install 'asyncconsumer[otel]'"
        ) from error


def traced(call: Call, group: str) -> Call:
    """Return a function that makes the handler call within a span.

    The span of a record is a child of its producer's span. The span of a batch has links to them.
    """
    from opentelemetry import propagate, trace

    tracer = trace.get_tracer("asyncconsumer")

    def sent_in(record: Record) -> "Context":
        texts = {name: text.decode("latin-1") for name, text in record.headers if text is not None}
        return propagate.extract(texts)

    async def spanned(item: Item) -> Any:  # noqa: ANN401 - the result of the handler
        first = first_of(item)
        context: Context | None = None
        links: list[trace.Link] = []
        attributes = _attributes(group, first)
        if isinstance(item, list):
            senders = [
                trace.get_current_span(sent_in(record)).get_span_context() for record in item
            ]
            links = [trace.Link(sender) for sender in senders if sender.is_valid]
            attributes["messaging.batch.message_count"] = len(item)
        else:
            context = sent_in(item)
        with tracer.start_as_current_span(
            f"process {first.topic}",
            context=context,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await call(item)
            except Exception as error:
                _record(span, error)
                raise

    return spanned


def _record(span: "Span", error: Exception) -> None:
    """Record an exception in the span.

    A deserializer's traceback quotes the record, so it is omitted.
    """
    from opentelemetry.trace import Status, StatusCode

    if isinstance(error, DeserializationFailed):
        kind = {"exception.type": type(error).__qualname__, "exception.message": str(error)}
        span.add_event("exception", kind)
    else:
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))


def _attributes(group: str, first: Record) -> dict[str, str | int]:
    """Return the span attributes of the OpenTelemetry conventions for messaging."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": group,
        "messaging.destination.name": first.topic,
        "messaging.destination.partition.id": str(first.partition),
        "messaging.kafka.offset": first.offset,
    }

"""OpenTelemetry spans for handler calls, in the traces that record headers carry.

Only the OpenTelemetry API is used. Spans are recorded only if the application sets up an SDK.
"""

from typing import TYPE_CHECKING, Any

from asyncconsumer.consumer.spans import attributes, place, sender_context, sender_links
from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.handlers.invoke import CallHandler
from asyncconsumer.handlers.outgoing import OutgoingRecord, PublishNext
from asyncconsumer.handlers.partition_work import Item, first_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


def traced(call: CallHandler, group: str) -> CallHandler:
    """Return a function that makes the handler call within a span.

    The span of a record is a child of its producer's span. The span of a batch has links to the
    spans of the producers.
    """
    from opentelemetry import trace

    tracer = trace.get_tracer("asyncconsumer")

    async def spanned(item: Item) -> Any:  # noqa: ANN401 - the result of the handler
        first = first_of(item)
        context: Context | None = None
        links: list[trace.Link] = []
        described = {
            **attributes(group, "process", "process"),
            **place(first.topic, first.partition),
            "messaging.kafka.offset": first.offset,
        }
        if isinstance(item, list):
            links = sender_links(item)
            described["messaging.batch.message_count"] = len(item)
        else:
            context = sender_context(item.headers)
        with tracer.start_as_current_span(
            f"process {first.topic}",
            context=context,
            kind=trace.SpanKind.CONSUMER,
            attributes=described,
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


class TracedPublishing:
    """A middleware with a span for each record that a handler publishes.

    The span is a child of the current one. The headers of the record carry the span to the readers
    of the record.
    """

    async def publish(self, call_next: PublishNext, record: OutgoingRecord) -> Any:  # noqa: ANN401
        """Send a record in a span."""
        from opentelemetry import propagate, trace

        described = {**attributes(None, "send", "send"), "messaging.destination.name": record.topic}
        with trace.get_tracer("asyncconsumer").start_as_current_span(
            f"send {record.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes=described,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            try:
                return await call_next(record.with_headers(headers))
            except Exception as error:
                _record(span, error)
                raise


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

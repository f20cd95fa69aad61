"""OpenTelemetry spans for the items of a loop, and for commits.

Only the OpenTelemetry API is used. Spans are recorded only if the application sets up an SDK.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.records.loop import Exit
from asyncconsumer.streams.acknowledgement import ObservingSource
from asyncconsumer.streams.stream import LoopSource
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

T = TypeVar("T")
Attributes = dict[str, str | int]


def check_tracing() -> None:
    """Raise ConfigError if OpenTelemetry is not installed."""
    try:
        import opentelemetry.propagate
        import opentelemetry.trace  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "tracing=True needs OpenTelemetry: pip install 'asyncconsumer[otel]'"
        ) from error


def sender_context(headers: Iterable[tuple[str, bytes | None]]) -> "Context":
    """Return the trace context of a record's producer, from the headers of the record."""
    from opentelemetry import propagate

    texts = {name: text.decode("latin-1") for name, text in headers if text is not None}
    return propagate.extract(texts)


def sender_links(records: Iterable[Any]) -> "list[Link]":
    """Return links to the producers' spans of these records, for the span of a batch."""
    from opentelemetry import trace

    senders = (
        trace.get_current_span(sender_context(record.headers)).get_span_context()
        for record in records
    )
    return [trace.Link(sender) for sender in senders if sender.is_valid]


def attributes(group: str | None, operation: str, kind: str) -> Attributes:
    """Return the attributes of a span by OpenTelemetry's semantic conventions for messaging.

    `operation` and `kind` become ``messaging.operation.name`` and ``messaging.operation.type``.
    """
    named: Attributes = {} if group is None else {"messaging.consumer.group.name": group}
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        **named,
    }


def place(topic: str, partition: int) -> Attributes:
    """Return the span attributes that name a topic and a partition."""
    return {
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
    }


class ItemSpans:
    """The spans of the items that one reader processes, one span for each item.

    A span lasts from the delivery of an item until the next request. The span of a record is a
    child of its producer's span. The span of a batch has links to the producers' spans. While the
    body of the loop runs, the item's span is OpenTelemetry's current span.
    """

    def __init__(self, group: str | None) -> None:
        from opentelemetry import trace

        self._group: Final = group
        self._tracer: Final = trace.get_tracer("asyncconsumer")
        self._open: tuple[Span, Context] | None = None  # the span, and the context before it

    def begin(self, item: object) -> None:
        """Start the span of an item, and make it OpenTelemetry's current span."""
        from opentelemetry import context, trace

        described = attributes(self._group, "process", "process")
        parent, links = None, []
        first = item[0] if isinstance(item, list) else item
        if isinstance(item, list):
            links = sender_links(item)
            described["messaging.batch.message_count"] = len(item)
        elif hasattr(item, "headers"):  # a record or a message
            parent = sender_context(item.headers)
            described["messaging.kafka.offset"] = getattr(item, "offset", 0)
        topic = getattr(first, "topic", None)
        if topic is not None:
            described |= place(topic, getattr(first, "partition", 0))
        span = self._tracer.start_span(
            "process" if topic is None else f"process {topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=described,
            links=links,
        )
        self._open = span, context.get_current()
        context.attach(trace.set_span_in_context(span))

    def end(self, *, failed: bool = False) -> None:
        """End the span of the last item. Do nothing if it has ended already.

        With `failed`, the span gets the status ERROR.
        """
        from opentelemetry import context, trace

        if self._open is None:
            return
        (span, before), self._open = self._open, None
        if failed:
            span.set_status(trace.Status(trace.StatusCode.ERROR, "the loop ended with an error"))
        span.end()
        if trace.get_current_span() is span:  # False in another task
            context.attach(before)


class TracedSource(ObservingSource, Generic[T]):
    """A source of items for a loop, which wraps another source and starts a span for each item."""

    def __init__(self, source: LoopSource[T], spans: ItemSpans) -> None:
        self._source = source
        self._spans = spans

    @property
    def in_flight(self) -> bool:
        """Whether an item was delivered and no other item was requested since."""
        return self._source.in_flight

    async def __anext__(self) -> T:
        self._spans.end()
        item = await self._source.__anext__()
        self._spans.begin(item)
        return item

    def on_exit(self, reason: Exit) -> None:
        """End the span of the last item, because the loop was left."""
        self._spans.end(failed=reason == "error")


class TracedStore:
    """An offset store that wraps another one. Each commit has a span, in a trace of its own."""

    def __init__(self, store: OffsetStore, group: str | None) -> None:
        from opentelemetry import trace

        self._store: Final = store
        self._group: Final = group
        self._tracer: Final = trace.get_tracer("asyncconsumer")

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the stored offset of each partition, or None for a partition without one."""
        return await self._store.load(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the offset of each partition, in a span."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        described = attributes(self._group, "commit", "settle")
        if len(offsets) == 1:
            ((tp, offset),) = offsets.items()
            described |= {**place(*tp), "messaging.kafka.offset": offset}
        with self._tracer.start_as_current_span(
            "commit" if self._group is None else f"commit {self._group}",
            context=Context(),
            kind=trace.SpanKind.CLIENT,
            attributes=described,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._store.commit(offsets)
            except ConsumerError as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                raise

"""A middleware that records OpenTelemetry spans."""

from typing import Any

from asyncconsumer.consumer.spans import check_tracing
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.handlers.tracing import TracedPublishing, traced


class Tracing(TracedPublishing):
    """A middleware for single handlers or routers, with a span for each call.

    The span is in the trace of its record. A record that the handler publishes has a span, too, and
    its headers carry the trace.

    The option `tracing` of an app does the same for all handlers. It needs ``asyncconsumer[otel]``.
    """

    def __init__(self) -> None:
        check_tracing()

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Call the handler in a span."""
        result = None

        async def call(item: Any) -> None:  # noqa: ANN401 - a record or a batch
            nonlocal result
            result = await call_next(context.with_item(item))

        await traced(call, context.app.group_id)(context.item)
        return result

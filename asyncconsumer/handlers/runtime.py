"""The runtime of a handler: its work queue, workers, threads and failure policy."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from asyncconsumer.consumer.dead_letters import DeadLetterProducer
from asyncconsumer.consumer.environment import Environment
from asyncconsumer.events import EventBus
from asyncconsumer.handlers.batches import BatchQueues
from asyncconsumer.handlers.failures import Failures
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.invoke import caller, is_async
from asyncconsumer.handlers.ordering import SINGLY, Ordering
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.retry_topic import RetryTopic
from asyncconsumer.handlers.threads import HandlerThreads
from asyncconsumer.handlers.tracing import traced
from asyncconsumer.handlers.workers import Workers

Start = Callable[[Coroutine[Any, Any, None], str], object]
"""Run a coroutine in the background until it returns or the app is closed."""


class AppContext(NamedTuple):
    """The context that all handlers of an app have in common."""

    environment: Environment
    events: EventBus
    tracing: bool = False


class HandlerRuntime:
    """The runtime of one handler while its app is open."""

    def __init__(
        self,
        handler: Handler,
        *,
        group: str,
        dead_letters: Mapping[str, DeadLetterProducer],
        around: AppContext,
    ) -> None:
        how, environment = handler.handling, around.environment
        self.handler: Final = handler
        self._writers = [dead_letters[topic] for topic in how.writes_to if topic in dead_letters]
        self.parking: Final = _parking(how, dead_letters, environment)
        self.lanes: Final = (
            WorkQueue(how.limit, how.max_in_flight_bytes, partial(_order, how))
            if self.parking is None
            else self.parking.lanes
        )
        self._threads = (
            None if is_async(handler.function) else HandlerThreads(handler.name, how.concurrency)
        )
        self.failures: Final = Failures(
            handler.name,
            self.lanes,
            retry=how.retry,
            dead_letters=dead_letters[how.dead_letter_topic] if how.dead_letter_topic else None,
            on_error=how.on_error,
            group=group,
            randomness=environment.randomness,
            events=around.events,
            parking=self.parking,
        )
        call = caller(
            handler.name,
            handler.function,
            handler.arguments,
            batch=how.batch is not None,
            timeout_ms=how.handler_timeout_ms,
            threads=self._threads,
        )
        if around.tracing:
            call = traced(call, group)
        if self.parking is not None:
            call = self.parking.call(call)
        self.workers: Final = Workers(handler.name, self.lanes, call, self.failures)

    @property
    def trouble(self) -> str | None:
        """Why records cannot be written to the retry or dead letter topic; None if they can."""
        return next((told for one in self._writers if (told := one.trouble)), None)

    def start(self, start: Start) -> None:
        """Start the workers."""
        for number in range(self.handler.handling.concurrency):
            start(self.workers.work(), f"{self.handler.name}-{number}")

    async def close(self) -> None:
        """Close the threads, after the last item has ended."""
        if self._threads is not None:
            await self._threads.close()


def _parking(
    how: HandlerOptions, writers: Mapping[str, DeadLetterProducer], environment: Environment
) -> RetryTopic | None:
    if how.retry is None or how.retry.topic is None:
        return None
    return RetryTopic(
        how.retry.topic,
        writers[how.retry.topic],
        (how.limit, how.max_in_flight_bytes),
        delay_ms=how.retry.delay_ms,
        now_ms=environment.now_ms,
    )


def _order(how: HandlerOptions, wake: Callable[[], None]) -> Ordering:
    if how.batch is None:
        return SINGLY[how.ordering]()
    return BatchQueues(how.batch, how.ordering, how.concurrency, wake)

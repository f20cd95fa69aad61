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
from asyncconsumer.handlers.ordering import ORDERINGS, Ordering
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
        context: AppContext,
    ) -> None:
        options, environment = handler.handling, context.environment
        self.handler: Final = handler
        self._writers = [
            dead_letters[topic] for topic in options.writes_to if topic in dead_letters
        ]
        self.retry_topic: Final = _retry_topic(options, dead_letters, environment)
        self.queue: Final = (
            WorkQueue(options.limit, options.max_in_flight_bytes, partial(_order, options))
            if self.retry_topic is None
            else self.retry_topic.queue
        )
        self._threads = (
            None
            if is_async(handler.function)
            else HandlerThreads(handler.name, options.concurrency)
        )
        self.failures: Final = Failures(
            handler.name,
            self.queue,
            retry=options.retry,
            dead_letters=dead_letters[options.dead_letter_topic]
            if options.dead_letter_topic
            else None,
            on_error=options.on_error,
            group=group,
            randomness=environment.randomness,
            events=context.events,
            retry_topic=self.retry_topic,
        )
        call = caller(
            handler.name,
            handler.function,
            handler.arguments,
            batch=options.batch is not None,
            timeout_ms=options.handler_timeout_ms,
            threads=self._threads,
        )
        if context.tracing:
            call = traced(call, group)
        if self.retry_topic is not None:
            call = self.retry_topic.call(call)
        self.workers: Final = Workers(handler.name, self.queue, call, self.failures)

    @property
    def trouble(self) -> str | None:
        """Why records cannot be written to the retry or dead letter topic; None if they can."""
        return next((trouble for writer in self._writers if (trouble := writer.trouble)), None)

    def start(self, start: Start) -> None:
        """Start the workers."""
        for number in range(self.handler.handling.concurrency):
            start(self.workers.work(), f"{self.handler.name}-{number}")

    async def close(self) -> None:
        """Close the threads, after the last item has ended."""
        if self._threads is not None:
            await self._threads.close()


def _retry_topic(
    options: HandlerOptions, writers: Mapping[str, DeadLetterProducer], environment: Environment
) -> RetryTopic | None:
    if options.retry is None or options.retry.topic is None:
        return None
    return RetryTopic(
        options.retry.topic,
        writers[options.retry.topic],
        (options.limit, options.max_in_flight_bytes),
        delay_ms=options.retry.delay_ms,
        now_ms=environment.now_ms,
    )


def _order(options: HandlerOptions, wake: Callable[[], None]) -> Ordering:
    if options.batch is None:
        return ORDERINGS[options.ordering]()
    return BatchQueues(options.batch, options.ordering, options.concurrency, wake)

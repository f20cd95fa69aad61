"""The runtime of a handler, with its work queue, workers, threads and failure policy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, DeadLetterWriter
from asyncconsumer.environment import Environment
from asyncconsumer.events import EventBus
from asyncconsumer.handlers.batches import BatchQueues
from asyncconsumer.handlers.context import Context, attempts_elsewhere
from asyncconsumer.handlers.exactly_once import CollectedDeadLetters, ExactlyOnce
from asyncconsumer.handlers.failures import Failures
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.injection import with_overrides
from asyncconsumer.handlers.invoke import CallHandler, caller, is_async
from asyncconsumer.handlers.middleware import Middleware, around_publish, with_middlewares
from asyncconsumer.handlers.ordering import ORDERINGS, Ordering
from asyncconsumer.handlers.partition_work import Item, first_of
from asyncconsumer.handlers.publishing import collected
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.retry_topic import RetryTopic, RetryTopics
from asyncconsumer.handlers.threads import HandlerThreads
from asyncconsumer.handlers.tracing import TracedPublishing, traced
from asyncconsumer.handlers.workers import StartTask, Workers
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.handlers.app import ConsumerApp


class AppContext(NamedTuple):
    """The objects that all handlers of an app share."""

    environment: Environment
    events: EventBus
    recorder: Recorder
    tracing: bool = False
    app: "ConsumerApp | None" = None
    exactly_once: ExactlyOnce | None = None


class HandlerRuntime:
    """A handler with its work queue and workers, while its app is open."""

    def __init__(
        self,
        handler: Handler,
        *,
        group: str,
        dead_letters: Mapping[str, DeadLetterWriter],
        context: AppContext,
    ) -> None:
        options, environment, recorder = handler.handling, context.environment, context.recorder
        self.handler: Final = handler
        self._app = context.app
        self._writers = [dead_letters[name] for name in options.writes_to if name in dead_letters]
        self.retry_topics: Final = _retry_topics(options, dead_letters, environment)
        self.queue: Final = (
            _work_queue(options) if self.retry_topics is None else self.retry_topics.queue
        )
        middlewares = _middlewares(options, tracing=context.tracing)
        self.publisher: Final = handler.publisher(around_publish(middlewares))
        function = handler.function if self.publisher is None else collected(handler.function)
        self._threads = (
            None if is_async(function) else HandlerThreads(handler.name, options.concurrency)
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
            recorder=recorder,
            retry_topics=self.retry_topics,
        )
        call = self._composed(function, middlewares, group, context)
        self.workers: Final = Workers(
            handler.name,
            self.queue,
            call,
            self.failures,
            recorder,
            publishes=self.publisher is not None,
        )

    def _composed(
        self,
        function: Callable[..., Any],
        middlewares: Sequence[Middleware],
        group: str,
        context: AppContext,
    ) -> CallHandler:
        """Return the function to call with each item: the handler with the steps around it.

        The steps are publishing, middlewares, spans, retry topics and transactions, if they are
        used. The last one is the outermost.
        """
        call = self._caller(function)
        if self.publisher is not None:
            is_outermost = not middlewares and not context.tracing and context.exactly_once is None
            call = self.publisher.sent(call) if is_outermost else self.publisher.written(call)
        call = with_middlewares(call, middlewares, self._context_of)
        call = traced(call, group) if context.tracing else call
        if self.retry_topics is not None:
            call = self.retry_topics.call(call)
        if context.exactly_once is not None:
            call = self._in_transactions(call, context.exactly_once)
        return call

    def _in_transactions(self, call: CallHandler, exactly_once: ExactlyOnce) -> CallHandler:
        if self.publisher is not None:
            self.publisher.use(exactly_once.collector)
        return exactly_once.call(call, self.queue, self.failures.give_up)

    def _caller(self, function: Callable[..., Any]) -> CallHandler:
        handler, options = self.handler, self.handler.handling
        overrides = {} if self._app is None else self._app.dependency_overrides
        batch = options.batch is not None
        return caller(
            handler.name,
            function,
            with_overrides(handler.name, handler.arguments, overrides, batch=batch),
            batch=batch,
            timeout_ms=options.handler_timeout_ms,
            threads=self._threads,
            context_of=self._context_of,
        )

    def _context_of(self, item: Item) -> Context:
        """Return the context for a call with `item`. Call this in the task that calls the handler.

        In that task, a context variable has the number of attempts of a record from a retry topic.
        """
        assert self._app is not None
        first = first_of(item)
        before = attempts_elsewhere.get()
        work = self.queue.partitions.get(TopicPartition(first.topic, first.partition))
        if not before and work is not None and (tried := work.attempts.get(first.offset)):
            before = tried.times
        return Context(self._app, self.handler.name, item, before + 1)

    @property
    def trouble(self) -> str | None:
        """The reason why records cannot be written to the retry or dead letter topic, or None."""
        return next((trouble for writer in self._writers if (trouble := writer.trouble)), None)

    def start(self, start: StartTask) -> None:
        """Start the workers. `start` runs a coroutine as a background task."""
        self.workers.start(start, self.handler.handling.concurrency)

    async def close(self) -> None:
        """Close the threads of the handler, after its last item has ended."""
        if self._threads is not None:
            await self._threads.close()


async def open_runtimes(
    stack: AsyncExitStack, handlers: Sequence[Handler], config: ConsumerConfig, context: AppContext
) -> tuple[Collection[DeadLetterWriter], list[HandlerRuntime]]:
    """Open the runtimes of the handlers, and the writers for retry and dead letter topics."""
    writers: dict[str, DeadLetterWriter] = {}
    for topic in {topic for handler in handlers for topic in handler.handling.writes_to}:
        if context.exactly_once is not None:
            writers[topic] = CollectedDeadLetters(topic)
            continue
        writer = DeadLetterProducer(topic, config.connection, **network(context.environment))
        writers[topic] = await stack.enter_async_context(writer)
    group = config.member.group_id or ""
    runtimes = [
        HandlerRuntime(handler, group=group, dead_letters=writers, context=context)
        for handler in handlers
    ]
    for runtime in runtimes:
        stack.push_async_callback(runtime.close)
    return writers.values(), runtimes


def network(environment: Environment) -> dict[str, Any]:
    """Return the parts of the environment that a producer takes as keyword arguments."""
    return {
        "randomness": environment.randomness,
        "opener": environment.open_broker,
        "now_ms": environment.now_ms,
    }


def runtime_of(runtimes: Sequence[HandlerRuntime], topic: str) -> HandlerRuntime:
    """Return the runtime of the handler that names `topic`, or the first whose pattern matches."""
    named = [
        runtime
        for runtime in runtimes
        if topic in runtime.handler.topics or topic in runtime.handler.handling.retry_topics
    ]
    return (named or [runtime for runtime in runtimes if runtime.handler.handles(topic)])[0]


def queue_of(runtimes: Sequence[HandlerRuntime], topic: str) -> WorkQueue:
    """Return the work queue of the handler that reads `topic`."""
    return runtime_of(runtimes, topic).queue


def _middlewares(options: HandlerOptions, *, tracing: bool) -> list[Middleware]:
    """Return the middlewares of a handler, with one for the spans of its results."""
    traced_results = [TracedPublishing()] if tracing and options.publish is not None else []
    return [*options.middlewares, *traced_results]


def _retry_topics(
    options: HandlerOptions, writers: Mapping[str, DeadLetterWriter], environment: Environment
) -> RetryTopics | None:
    if options.retry is None or options.retry.topic is None:
        return None
    tiers = [
        RetryTopic(topic, writers[topic], delay_ms=delay_ms, now_ms=environment.now_ms)
        for topic, delay_ms in options.retry.delays_ms.items()
    ]
    return RetryTopics(tiers, (options.limit, options.max_in_flight_bytes))


def _work_queue(options: HandlerOptions) -> WorkQueue:
    limits, order = (options.limit, options.max_in_flight_bytes), partial(_order, options)
    return WorkQueue(*limits, order, options.priorities)


def _order(options: HandlerOptions, wake: Callable[[], None]) -> Ordering:
    if options.batch is None:
        return ORDERINGS[options.ordering]()
    return BatchQueues(options.batch, options.ordering, options.concurrency, wake)

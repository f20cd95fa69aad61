"""A service that reads topics, calls handlers with the records and commits processed records.

app = ConsumerApp(bootstrap_servers="k:9092", group_id="billing")

@app.handler("orders", ordering="key", concurrency=200, retry=Retry(3), dead_letter_topic="dead")
async def bill(order: Order, record: Record) -> None: ...

asyncio.run(app.run())
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack

from asyncconsumer.admin.admin import Admin
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import (
    AppOptions,
    ConnectionConfig,
    ProducerConfig,
    SendConfig,
    document_options,
)
from asyncconsumer.config.external import ExternalOptions, StrPath
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.dashboard.sites import admin_options
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ClosedError, ConfigError, ConsumerError
from asyncconsumer.events import EventBus, EventStream
from asyncconsumer.handlers.app_lifespan import enter_lifespan
from asyncconsumer.handlers.app_settings import AppKeywords, AppSettings
from asyncconsumer.handlers.block_interrupt import BlockInterrupt
from asyncconsumer.handlers.catching_up import catch_up
from asyncconsumer.handlers.declarations import Declarations
from asyncconsumer.handlers.draining import Drained, Draining
from asyncconsumer.handlers.exactly_once import ExactlyOnce
from asyncconsumer.handlers.handler import Handler, check_exactly_once
from asyncconsumer.handlers.health import (
    AppHealth,
    AppState,
    health_of,
    status_of,
    stuck,
    with_in_flight,
)
from asyncconsumer.handlers.member_removal import remove_from
from asyncconsumer.handlers.publishing import open_publishers
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.runtime import (
    AppContext,
    HandlerRuntime,
    network,
    open_runtimes,
    queue_of,
    runtime_of,
)
from asyncconsumer.handlers.signals import signals
from asyncconsumer.handlers.stream import HandlerStream, OnConsume, on_consume
from asyncconsumer.handlers.subscription import AppConsumer, reads, retry_topics, subscription
from asyncconsumer.handlers.topic_checks import check_topics, create_topics
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.producer.producer import Producer
from asyncconsumer.streams.routes import PartitionRoutes
from asyncconsumer.types import TopicPartition
from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.pages import Asgi
from asyncconsumer.web.status import Status

if TYPE_CHECKING:
    from asyncconsumer.testing.kafka import FakeKafka

_log: Final = logging.getLogger(__name__)
_SECONDS_TO_COMMIT: Final = 5.0
_REPLAY_TIMEOUT_MS: Final = 60_000


@document_options(AppOptions)
class ConsumerApp(Declarations, WebMixin):
    """A group member that calls handlers with the records that it reads.

    Declare handlers, then use ``async with app`` or ``await app.run()``.

    An offset is committed when all records before it are processed. The metadata of the commit
    lists the records processed after it, so that a restart does not repeat them.

    An error that stops the app is raised by its ``async with`` block, and by `failed`. When the app
    is closed, running handlers have `shutdown_grace_ms` to finish. With `tracing`, each handler
    call is an OpenTelemetry span in the trace of its record, and each commit is a span.

    `lifespan` is called with the app and returns an async context manager. It is entered before the
    app joins its group, and exited after running handlers have finished. Its result is the app's
    `state`.

    `middlewares` are called around each handler call. Middlewares of the app are the outermost.
    Those of a router follow, and those of a handler are the innermost.

    Topics that the handlers write to must exist. With `create_topics`, missing topics are created
    when the app is opened, also those that the handlers read. A retry topic gets the number of
    partitions of its source topic, and other topics get the default of the brokers.

    `dependency_overrides` maps dependencies to their replacements. It is read when the app is
    opened.
    """

    def __init__(self, **options: Unpack[AppKeywords]) -> None:
        environment = Environment.current()
        settings = AppSettings.of(options)
        super().__init__(middlewares=settings.middlewares)
        self._settings = settings
        recorder = Recorder(environment.now_ms)
        self._context = AppContext(environment, EventBus(), recorder, settings.tracing, self)
        self.state: Any = None
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._options = settings.options
        Consumer(**self._options)  # raises ConfigError now instead of when the app is opened
        if options.get("group_id") is None:
            raise ConfigError("an app is a member of a group: set `group_id`")
        self._running: list[HandlerRuntime] = []
        self._consumer: AppConsumer | None = None
        self._scope = Scope("the app")
        self._end = BlockInterrupt()
        self._state = AppState.NEW
        self._draining = Draining()

    def __repr__(self) -> str:
        return f"<ConsumerApp group_id={self.group_id!r}, {self._state}>"

    @classmethod
    def from_env(cls, **options: Unpack[AppKeywords]) -> Self:
        """Return an app with options from variables such as ``ASYNCCONSUMER_GROUP_ID``.

        ``ASYNCCONSUMER_CONFIG`` is the path of a file with more options. Keywords override
        variables, which override the file.
        """
        return cls.from_config(None, **options)

    @classmethod
    def from_config(cls, path: StrPath | None, **options: Unpack[AppKeywords]) -> Self:
        """Return an app with options from a TOML file or a Java properties file.

        Keywords override environment variables, which override the file. If `path` is None, it is
        read from ``ASYNCCONSUMER_CONFIG``, as in `from_env`.
        """
        external = ExternalOptions.read(options, path)
        with external.named_in_errors():
            return cls(**external.options)

    def _declare(self, handler: Handler) -> None:
        if self._state is not AppState.NEW:
            raise ConfigError("handlers must be declared before the app is opened")
        super()._declare(handler)

    def set_worker_number(self, number: int) -> None:
        """Append the worker number to `group_instance_id` and `transactional_id`, if they are set.

        Processes must not share these ids, because brokers fence the earlier user of an id.
        """
        self._settings = self._settings.for_worker(number)
        if (name := self._options.get("group_instance_id")) is not None:
            self._options["group_instance_id"] = f"{name}-{number}"

    def enable_topic_creation(self) -> None:
        """Create missing topics when the app is opened, as with ``create_topics=True``."""
        self._settings = replace(self._settings, create_topics=True)

    @property
    def shutdown_grace_ms(self) -> int:
        """The time in ms that running handlers have to finish when the app is closed."""
        return self._settings.shutdown_grace_ms

    # --- running ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if not self._handlers:
            raise ConfigError("the app has no handler: declare one with @app.handler(topic)")
        if self._scope.is_over:  # an app may be opened again, for example by each test of a web app
            self._scope, self._end = Scope("the app"), BlockInterrupt()
            self._draining = Draining()
        await super().__aenter__()
        self._state = AppState.RUNNING
        self._end.watch()
        return self

    async def _open(self, stack: AsyncExitStack) -> None:
        (topics, pattern), environment = subscription(self._handlers), self._context.environment
        exactly_once = self._transactions()
        consumer = environment.run(
            AppConsumer,
            *topics,
            pattern=pattern,
            recorder=self.recorder,
            co_assigned=retry_topics(self._handlers),
            in_transactions=None if exactly_once is None else exactly_once.store,
            **self._options,
        )
        if (lifespan := self._settings.lifespan) is not None:
            self.state = await enter_lifespan(lifespan, self, stack)
        context = self._context._replace(exactly_once=exactly_once)
        if exactly_once is not None:
            await stack.enter_async_context(exactly_once)
        config = consumer.config
        if self._settings.create_topics:
            async with environment.run(Admin, **admin_options(config)) as admin:
                await create_topics(self._handlers, admin)
        writers, self._running = await open_runtimes(stack, self._handlers, config, context)
        await stack.enter_async_context(self._scope)
        self._consumer = await stack.enter_async_context(consumer)
        await check_topics(self._handlers, self._consumer)
        for writer in writers:
            writer.reach_by(consumer.connection)
        publishers = [runtime.publisher for runtime in self._running]
        if exactly_once is None:
            await open_publishers(stack, publishers, consumer.connection, network(environment))
        routes = consumer.by_partition(
            partial(HandlerStream, partial(queue_of, self._running), self._seen_by())
        )
        for runtime in self._running:
            runtime.start(self._start)
        self._start(self._follow(routes), "partitions")

    def _transactions(self) -> ExactlyOnce | None:
        """Return a new object that runs the app's transactions, or None without `exactly_once`."""
        settings, environment = self._settings, self._context.environment
        if not settings.exactly_once:
            return None
        check_exactly_once(self._handlers)
        return ExactlyOnce(
            self.group_id,
            settings.transactions(environment.randomness),
            Consumer(**self._options).config.connection,
            network(environment),
            self._fail,
        )

    def _seen_by(self) -> OnConsume | None:
        interceptors = Interceptors(self._options["interceptors"] or ())
        waiting = {topic for each in self._handlers for topic in each.handling.retry_topics}
        return on_consume(interceptors, waiting)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run the coroutine `work` in the background. An exception that it raises stops the app."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - raised from the block and from `failed`
                self._fail(error)

        self._scope.start(guarded(), name)

    async def _follow(self, routes: PartitionRoutes[HandlerStream]) -> None:
        """Start a task for each partition when it is assigned. The task reads its stream."""
        async for partition, stream in routes.opened():
            self._start(self._read(partition, stream), f"read {partition}")

    async def _read(self, partition: TopicPartition, stream: HandlerStream) -> None:
        runtime = runtime_of(self._running, partition.topic)
        if runtime.retry_topics is not None:
            await runtime.retry_topics.caught_up(partition, self.consumer)
        await stream.pump(skip_corrupt=runtime.failures.skip_corrupt, seek=self._reader.go_back)

    def _fail(self, error: Exception) -> None:
        if self._end.error is None and self._state is not AppState.CLOSED:
            _log.error("the app stops after an error: %s", error)
            for runtime in self._running:
                runtime.queue.stop()
            self._state = AppState.FAILED
            self._end.interrupt(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupted = await self._end.over(error)
        try:
            await self._drain(self.shutdown_grace_ms)
        finally:
            self._state = AppState.CLOSED
            self._end.happened.set()
            raised = (None, None, None) if interrupted else (kind, error, traceback)
            await super().__aexit__(*raised)
        if self._end.error is not None and (interrupted or error is None):
            raise self._end.error

    async def failed(self) -> NoReturn:
        """Wait until the app fails or is closed. Raise the app's error, or ClosedError."""
        await self._end.happened.wait()
        raise self._end.error or ClosedError("the app was closed")

    async def run(self) -> Drained:
        """Run until SIGTERM or SIGINT, then drain, commit and leave the group.

        A second signal cancels the running handlers. Return the offsets that were not processed.
        """
        asked = asyncio.Event()

        def stop() -> None:
            if asked.is_set():
                self._draining.cut_short(self._queues)
            asked.set()

        with signals(stop):
            async with self:
                await asked.wait()
        assert self._draining.result is not None
        return self._draining.result

    @asynccontextmanager
    async def testing(
        self, kafka: "FakeKafka | None" = None, *, partitions: int = 1, brokers: int = 1
    ) -> AsyncIterator["FakeKafka"]:
        """Return an async context manager that runs the app on a fake Kafka, for tests.

        The fake runs within this process. Without `kafka`, a new cluster with `brokers` brokers is
        created, whose topics have `partitions` partitions. The app runs in its own task. If the app
        fails, `kafka.settled()` raises its error. Without such a call, the end of the block raises
        it.
        """
        from asyncconsumer.handlers.testing import AppUnderTest, on_fake

        before, cluster = (self._options, self._context), (partitions, brokers)
        async with on_fake(kafka, before[0], self._handlers, *cluster) as (kafka, self._options):
            self._context = self._context._replace(environment=kafka.environment)
            try:
                async with AppUnderTest(self, self._handlers, kafka, lambda: self._running):
                    yield kafka
            finally:
                self._options, self._context = before

    async def caught_up(self) -> None:
        """Wait until all records that the assigned partitions have now are processed.

        A record is processed when its handler has returned, or when it is skipped, a dead letter or
        in a retry topic. A partition that is revoked meanwhile is not waited for. If no partition
        is assigned yet, wait for the assignment.

        Raise the error of the app if it fails. Raise ClosedError if it is drained or closed.
        """
        if not await catch_up(self.consumer, self._running, self._end.happened):
            await self.failed()

    # --- pausing and draining --------------------------------------------------------------------

    def pause(self, *topics: str) -> None:
        """Start no handler calls for records of these topics until `resume`.

        Without topics, pause all. Running calls finish.

        The app remains a member of its group. Partitions that are assigned meanwhile are paused,
        too. Their records are not fetched. Retry topics are not paused with their source topics, so
        name them as well.
        """
        self._reader.pause_topics(*topics)

    def resume(self, *topics: str) -> None:
        """Start handler calls for records of these topics again. Without topics, resume all.

        Partitions that `consumer.pause` has paused remain paused. After a ``pause()`` without
        topics, calls start again only after a ``resume()`` without topics.
        """
        self._reader.resume_topics(*topics)

    @property
    def is_paused(self) -> bool:
        """Whether a ``pause()`` without topics is in effect."""
        return self._state is AppState.RUNNING and self._reader.is_all_paused

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that `pause` has paused by name."""
        return self._reader.paused_topics if self._state is AppState.RUNNING else frozenset()

    async def drain(self, grace_ms: int | None = None) -> Drained:
        """Start no more handler calls, wait for the running ones, and commit. The app stays open.

        Calls that do not finish within `grace_ms` are cancelled. Their records are not committed.
        Their offsets are logged and returned. The default of `grace_ms` is `shutdown_grace_ms`.
        """
        self._scope.check_open()
        drained = await self._drain(self.shutdown_grace_ms if grace_ms is None else grace_ms)
        try:
            async with asyncio.timeout(_SECONDS_TO_COMMIT):
                await self.consumer.commit()
        except (TimeoutError, ConsumerError) as error:
            _log.warning(
                "the app was drained, but the commit failed: %r; some records are redelivered",
                error,
            )
        return drained

    async def _drain(self, grace_ms: int) -> Drained:
        if self._state is AppState.RUNNING:
            self._state = AppState.DRAINING
        return await self._draining.run(self._queues, grace_ms / 1000)

    @property
    def _queues(self) -> list[WorkQueue]:
        return [runtime.queue for runtime in self._running]

    # --- status ----------------------------------------------------------------------------------

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads for the handlers.

        Use it to pause partitions, to seek or to see the assignment.
        """
        return self._reader

    @property
    def _reader(self) -> AppConsumer:
        self._scope.check_open()
        assert self._consumer is not None
        return self._consumer

    async def remove_member(self, member_id: str) -> None:
        """Remove a member whose process has died from the group, before its session times out."""
        await remove_from(
            self.group_id, member_id, self.consumer.connection, self._context.environment
        )

    @property
    def group_id(self) -> str:
        """The id of the group that the app is a member of."""
        return str(self._options["group_id"])

    @property
    def dead_letter_topics(self) -> set[str]:
        """The topics that the handlers write dead letters to."""
        topics = (handler.handling.dead_letter_topic for handler in self._handlers)
        return {topic for topic in topics if topic is not None}

    def reads(self, topic: str) -> bool:
        """Return whether a handler reads this topic."""
        return reads(self._handlers, topic)

    def asyncapi(self, *, title: str | None = None, version: str = "1.0.0") -> dict[str, Any]:
        """Return the AsyncAPI 3 document of the handlers as dicts and lists, for JSON.

        It has the topics, and the types of values, keys and headers. `title` and `version` are put
        into its `info`. The default title is the id of the group.
        """
        from asyncconsumer.handlers.asyncapi import document

        connection = Consumer(**self._options).config.connection
        title = self.group_id if title is None else title
        return document(self._handlers, connection, self.group_id, title=title, version=version)

    def producer(self, connection: ConnectionConfig) -> Producer:
        """Return a producer that writes to the cluster from which this app reads."""
        config = ProducerConfig(connection, SendConfig(delivery_timeout_ms=_REPLAY_TIMEOUT_MS))
        return Producer(config=config, **network(self._context.environment))

    def reader(self, suffix: str) -> Consumer:
        """Return a consumer with the options of this app that reads topics to their current ends.

        Its group id is that of the app with `suffix` appended. It starts at the committed offsets
        of that group, or at the earliest offsets. It does not commit automatically.
        """
        theirs = ("listener", "interceptors", "offsets")  # specific to the topics of the app
        options = {name: value for name, value in self._options.items() if name not in theirs}
        options |= {"group_id": f"{self.group_id}{suffix}", "auto_offset_reset": "earliest"}
        options |= {"commit_policy": "manual", "stop_at": "end"}
        return self._context.environment.run(Consumer, **options)

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""
        return self._context.recorder

    def _dashboard(self, http_hosts: Iterable[str]) -> Asgi:
        from asyncconsumer.handlers.dashboard_actions import site_of_app

        config = self._context.environment.run(Consumer, **self._options).config
        return site_of_app(self, config, http_hosts)

    def health(self) -> AppHealth:
        """Return an AppHealth object, which is true while the app runs and is not paused."""
        return health_of(self._state, self._end.error, self._running, paused=self.is_paused)

    def events(self) -> EventStream:
        """Return an iterator over future events: of the consumer, retries and abandoned records."""
        return self._context.events.listen(self.consumer.events())

    def status(self) -> Status:
        """Return health and lag as plain values, as the health pages show them."""
        if (consumer := self._consumer) is None:
            return replace(status_of(self.health(), None), group=self.group_id)
        held_up = stuck(self._running, consumer.config.engine.stall_timeout_ms)
        reading = consumer.status()
        reading = replace(reading, lag=with_in_flight(reading.lag, self._running))
        return status_of(self.health(), reading, held_up)

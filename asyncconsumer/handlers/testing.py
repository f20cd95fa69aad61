"""An app under test on a `FakeKafka`, in a task of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Protocol

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.handlers.handler import Handler
from asyncconsumer.handlers.invoke import is_async
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.handlers.subscription import retry_topics
from asyncconsumer.testing.kafka import FakeKafka
from asyncconsumer.testing.settling import is_virtual
from asyncconsumer.types import TopicPartition

_OF_REAL_BROKERS: Final = ("allowed_hosts",)
_REFRESH_MS: Final = {False: 250, True: 5_000}  # in real time, and in virtual time


@asynccontextmanager
async def on_fake(
    kafka: FakeKafka | None,
    options: Mapping[str, Any],
    handlers: Sequence[Handler],
    partitions: int,
    brokers: int,
) -> AsyncIterator[tuple[FakeKafka, dict[str, Any]]]:
    """Return a context manager of an open `FakeKafka` and the options of an app with its address.

    A given `kafka` is used and not closed. Otherwise a new one is created.
    """
    if options.get("group_protocol") == "zookeeper":
        raise ConfigError(
            "a group in ZooKeeper cannot be tested on a FakeKafka: use the fixture `kafka_zk`"
        )
    if kafka is not None:
        yield kafka, _options_for(kafka, options, handlers)
        return
    async with FakeKafka(partitions=partitions, brokers=brokers) as created:
        yield created, _options_for(created, options, handlers)


def _options_for(
    kafka: FakeKafka, options: Mapping[str, Any], handlers: Sequence[Handler]
) -> dict[str, Any]:
    """Return the options of an app with the address of a `FakeKafka`.

    The app reads from the start of its topics, because all records there are sent by the test. It
    finds topics of a pattern soon after they are created.
    """
    changed = {name: value for name, value in options.items() if name not in _OF_REAL_BROKERS}
    changed["bootstrap_servers"] = kafka.bootstrap_servers
    if any(handler.pattern is not None for handler in handlers):
        changed.setdefault("metadata_refresh_ms", _REFRESH_MS[is_virtual()])
    if changed.get("auto_offset_reset", "latest") == "latest":
        changed["auto_offset_reset"] = "earliest"
    return changed


class OpenableApp(AbstractAsyncContextManager[object, None], Protocol):
    """The methods of an app that a test of it calls: a context manager with a consumer."""

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads for the handlers."""


class AppUnderTest(AsyncResource):
    """An app that runs in a task of its own, so that its failure does not cancel the test.

    `FakeKafka.settled` raises the error of the app. Without such a call, the end of the block
    raises the error.
    """

    def __init__(
        self,
        app: OpenableApp,
        handlers: Sequence[Handler],
        kafka: FakeKafka,
        running: Callable[[], Sequence[HandlerRuntime]],
    ) -> None:
        self._app = app
        self._handlers = handlers
        self._kafka = kafka
        self._running = running
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._raised = False

    async def _open(self, stack: AsyncExitStack) -> None:
        self._check_threads()
        self._create_topics()
        scope = await stack.enter_async_context(Scope("an app under test"))
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = scope.start(self._run(started), "an app under test")
        stack.push_async_callback(self._end, task)
        await started
        self._kafka.watch(self)
        stack.callback(self._kafka.forget, self)

    async def _run(self, started: asyncio.Future[None]) -> None:
        try:
            async with self._app:
                started.set_result(None)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - raised by `settled` or at the end
            self._error = error
            if not started.done():
                self._raised = True
                started.set_exception(error)

    async def _end(self, task: asyncio.Task[None]) -> None:
        self._stop.set()
        await asyncio.wait({task})

    def _after_close(self) -> None:
        self.check()

    def _check_threads(self) -> None:
        if not is_virtual():
            return
        for handler in self._handlers:
            if not is_async(handler.function):
                raise ConfigError(
                    f"handler {handler.name} is a plain function, which runs in a thread, and "
                    "virtual time has no threads: test it in real time, or make it `async def`"
                )

    def _create_topics(self) -> None:
        """Create the topics that the app reads.

        A retry topic gets as many partitions as its source topic.
        """
        if not self._kafka.auto_create_topics:
            return
        retries = retry_topics(self._handlers)
        for topic in sorted({topic for handler in self._handlers for topic in handler.topics}):
            count = self._kafka.partition_count(topic)
            for retry in retries.get(topic, ()):
                self._kafka.ensure_partitions(retry, count)

    # --- for `settled` ---------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error of the app if it failed. Later calls do not raise the error again."""
        if self._error is not None and not self._raised:
            self._raised = True
            raise self._error

    async def commit(self) -> None:
        """Commit the processed records."""
        with suppress(ConsumerError):  # the app commits again, and `settled` waits for that
            await self._app.consumer.commit()

    def waits(self, tp: TopicPartition, committed: int) -> bool:
        """Return whether all records of a retry topic's partition wait for their next attempt.

        `committed` is the committed offset of the partition.
        """
        if not any(tp.topic in handler.handling.retry_topics for handler in self._handlers):
            return False
        end = self._kafka.cluster.end(tp)
        return any(_waits(runtime.queue, tp, committed, end) for runtime in self._running())

    def describe(self) -> Iterator[str]:
        """Yield a text about each handler that still has records in flight.

        Also yield one if a handler cannot write to its retry or dead letter topic.
        """
        for runtime in self._running():
            queue, name = runtime.queue, runtime.handler.name
            if trouble := runtime.trouble:
                yield f"handler {name}: {trouble}"
            if queue.load.count:
                counts = ", ".join(
                    f"{n} {outcome}" for outcome, n in runtime.failures.counts.items()
                )
                yield (
                    f"handler {name}: {len(queue.running)} calls run, {queue.load.count} records "
                    f"are in flight" + (f"; so far: {counts}" if counts else "")
                )


def _waits(queue: WorkQueue, tp: TopicPartition, committed: int, end: int) -> bool:
    """Return whether a partition is read to its end, and its first records wait for a timer."""
    work = queue.partitions.get(tp)
    if work is None or not work.timers or work.ledger.position != end:
        return False
    starts = work in queue.startable or any(other is work for other, _ in queue.ready)
    return committed >= work.ledger.first and not starts and not queue.is_running(work)

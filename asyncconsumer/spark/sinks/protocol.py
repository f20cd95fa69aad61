"""The interface of sinks, and the threads in which they are called."""

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from asyncconsumer.aio.threads import DaemonThreads
from asyncconsumer.errors import SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch
from asyncconsumer.types import TopicPartition


class Sink(Protocol):
    """The target of a feeder. Methods may be coroutines; plain functions run in threads.

    A sink whose property `remembers` is True stores offsets in the same commit as the data. The
    feeder loads these offsets before it reads records. `publish` refuses the part of a partition
    that does not begin at the stored offset, because another writer has written meanwhile.
    """

    @property
    def remembers(self) -> bool:
        """Return whether the sink stores offsets with the data."""

    @property
    def apart(self) -> bool:
        """Return whether each batch must contain records of one partition only."""

    def open(self) -> object:
        """Prepare the sink. The feeder calls this before all other methods."""

    def load(self, partitions: Iterable[TopicPartition]) -> Any:  # noqa: ANN401 - or awaitable
        """Return a dict with the offset after each partition's data, or None without data."""

    def prepare(self, batch: FeedBatch) -> Any:  # noqa: ANN401 - passed to `publish`
        """Do the part of a write that readers of the sink cannot see, such as writing files.

        Several batches may be prepared at once. The result is passed to `publish` or `discard`.
        """

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:  # noqa: ANN401
        """Store the batch's data and offsets durably and atomically.

        Return the partitions whose part the sink refuses.

        Batches of the same partition are published in order. The feeder repeats the call after an
        error. `prepared` is the result of `prepare`.
        """

    def discard(self, prepared: Any) -> object:  # noqa: ANN401
        """Clean up after a prepared batch that will not be published."""


class PreparedBatch(NamedTuple):
    """A batch of records, and the result of the sink's method `prepare` for it."""

    batch: FeedBatch
    prepared: Any


@runtime_checkable
class MergingSink(Protocol):
    """A sink that can merge waiting batches, because one large commit costs less than several.

    Batches are merged only if the sink's property `remembers` is True. For other sinks the feeder
    commits the end of each batch before it is written, so the end must not change.
    """

    def join_batches(self, first: PreparedBatch, second: PreparedBatch) -> PreparedBatch | None:
        """Return both batches as one prepared batch, or None if they cannot be merged.

        This must be a plain function that returns quickly, because it runs on the event loop.
        """


class SinkThreads:
    """A limited number of threads for sink methods that would block the event loop."""

    def __init__(self, limit: int) -> None:
        self._pool = DaemonThreads(limit, "feeder")
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call a function in a thread and return its result. If the result is awaitable, await it.

        Cancellation does not stop a call that a thread has begun.
        """
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        future = asyncio.wrap_future(self._pool.submit(function, *arguments))
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        result = await asyncio.shield(future)
        return await result if inspect.isawaitable(result) else result

    async def end(self) -> None:
        """Wait until all running calls have returned. Cancel this coroutine to stop waiting."""
        try:
            while self._running:
                await asyncio.wait(self._running)
        finally:
            self._pool.close(wait=not self._running)


def check_topic(
    sink: object, part: BatchPart, end: int | None, recorded_id: object, part_id: object
) -> None:
    """Raise SinkOffsetConflict if `recorded_id`, the topic id in the sink, is not `part_id`.

    Different ids mean that the topic was re-created. None stands for an unknown id, which fits any
    other. `end` is the partition's offset in the sink, for the error message.
    """
    if recorded_id is not None and part_id is not None and recorded_id != part_id:
        raise SinkOffsetConflict(str(sink), part.partition, end or 0, part.start)


def refused(
    batch: FeedBatch, recorded: Mapping[TopicPartition, int | None]
) -> Collection[TopicPartition]:
    """Return the partitions whose part does not begin at the partition's offset in the sink.

    `recorded` maps partitions to this offset. A partition without an offset is not refused.
    """
    return {
        tp
        for tp, part in batch.parts.items()
        if (offset := recorded.get(tp)) is not None and offset != part.start
    }

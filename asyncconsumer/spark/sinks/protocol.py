"""Where batches go, whatever it is, and the threads in which that happens."""

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from asyncconsumer.aio.threads import DaemonThreads
from asyncconsumer.errors import SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch
from asyncconsumer.types import TopicPartition


class Sink(Protocol):
    """Takes batches. Methods may be coroutines; plain functions run in threads of the feeder.

    A sink that `remembers` keeps offsets in the same commit as the data, and is asked for them
    before anything is read. `publish` refuses a part that does not begin where the part before it
    ended, as the sink itself has recorded it: somebody else wrote meanwhile.
    """

    @property
    def remembers(self) -> bool:
        """Whether it knows what it holds."""

    @property
    def apart(self) -> bool:
        """Whether each batch must be of one partition."""

    def open(self) -> object:
        """Make what is needed. Before everything else."""

    def load(self, partitions: Iterable[TopicPartition]) -> Any:  # noqa: ANN401 - or awaitable
        """The offset behind what it holds of each, a mapping; None where that is nothing."""

    def prepare(self, batch: FeedBatch) -> Any:  # noqa: ANN401 - what `publish` is to be given
        """Do what nobody can see yet. Several batches may be prepared at the same time."""

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:  # noqa: ANN401
        """Make it there, durably, data and offsets at once; return the partitions it refuses.

        Batches that share a partition come one after another. After an error it is asked again.
        """

    def discard(self, prepared: Any) -> object:  # noqa: ANN401
        """It will not be published."""


class PreparedBatch(NamedTuple):
    """A batch, and what was prepared of it."""

    batch: FeedBatch
    prepared: Any


@runtime_checkable
class MergingSink(Protocol):
    """A sink to which one large commit is better than several small ones, where they wait anyway.

    Only for one that `remembers`: what was promised to be one batch stays one.
    """

    def join_batches(self, first: PreparedBatch, then: PreparedBatch) -> PreparedBatch | None:
        """Both as one, as if it was prepared so; None if that cannot be.

        A plain function, and quick: the event loop waits for it.
        """


class SinkThreads:
    """A bounded number of threads for what would block the event loop."""

    def __init__(self, most: int) -> None:
        self._pool = DaemonThreads(most, "feeder")
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """What a function returns, or what it returns to be awaited.

        Who gives up waiting does not end what a thread has begun.
        """
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        future = asyncio.wrap_future(self._pool.submit(function, *arguments))
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        result = await asyncio.shield(future)
        return await result if inspect.isawaitable(result) else result

    async def end(self) -> None:
        """Wait for all that is running; who does not want to wait cancels this."""
        try:
            while self._running:
                await asyncio.wait(self._running)
        finally:
            self._pool.close(wait=not self._running)


def check_topic(
    sink: object, part: BatchPart, end: int | None, kept: object, given: object
) -> None:
    """Raise if the sink holds records of another topic of that name; None is an id not known."""
    if kept is not None and given is not None and kept != given:
        raise SinkOffsetConflict(str(sink), part.partition, end or 0, part.start)


def refused(
    batch: FeedBatch, recorded: Mapping[TopicPartition, int | None]
) -> Collection[TopicPartition]:
    """The parts that do not begin where the sink's data ends."""
    return {
        one
        for one, part in batch.parts.items()
        if (at := recorded.get(one)) is not None and at != part.start
    }

"""Handler calls whose published results the brokers have not acknowledged yet."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.producer.batch import RecordDelivery, call_when_done

if TYPE_CHECKING:
    from asyncconsumer.handlers.queue import WorkQueue


class Sent:
    """The published results of one handler call, which the brokers have not acknowledged yet.

    The object is its own callback: a delivery that is done calls it. There may be many of these
    objects, so each refers to few others, which saves the garbage collector work.
    """

    __slots__ = ("_deliveries", "_done", "_on_sent", "has_failed", "item", "work")

    def __init__(self, deliveries: Sequence[RecordDelivery]) -> None:
        self._deliveries = deliveries
        self._done = 0  # deliveries at the beginning that are done
        self.has_failed = False  # one of the results could not be written
        self._on_sent: Callable[[Sent], object]
        self.work: PartitionWork
        self.item: Item

    async def wait(self) -> None:
        """Wait until all results are written. Raise the error of the first result that failed."""
        for delivery in self._deliveries:
            await delivery

    def begin(self, work: PartitionWork, item: Item, on_sent: "Callable[[Sent], object]") -> None:
        """Call ``then(self)`` when all results of an item are written or have failed.

        If they are done already, `on_sent` is called at once.
        """
        self.work, self.item, self._on_sent = work, item, on_sent
        self()

    def __call__(self) -> None:
        """Have the next unfinished delivery call this object. If all are done, call `on_sent`.

        The deliveries of a producer batch are done together, so one callback suffices for them.
        """
        deliveries = self._deliveries
        while self._done < len(deliveries):
            delivery = deliveries[self._done]
            if call_when_done(delivery, self):
                return
            self._done += 1
            if delivery.error is not None:
                self.has_failed = True
        self._on_sent(self)


class Acknowledgements:
    """The items (records or batches) of a work queue whose results are not acknowledged yet.

    Such an item needs no worker, so the number of workers does not limit the results on their way
    to the brokers. The item remains in flight: it counts for the limits of its queue, and records
    with its key wait for it. Its partition is not idle.

    `deal_with` is called with results of which at least one could not be written.
    """

    def __init__(self, queue: "WorkQueue", deal_with: Callable[[Sent], object]) -> None:
        self._queue: Final = queue
        self._deal_with: Final = deal_with
        self._note: Final = self._note_done
        self._done: list[Sent] = []

    def wait_for(self, work: PartitionWork, item: Item, sent: Sent) -> None:
        """Return at once, and finish an item later, when its results are written.

        If a result cannot be written, `deal_with` is called instead.
        """
        work.unacknowledged[sent] = None
        sent.begin(work, item, self._note)

    def _note_done(self, sent: Sent) -> None:
        """Note that results are done, and finish their items in the next iteration of the loop."""
        if not self._done:
            asyncio.get_running_loop().call_soon(self._finish)
        self._done.append(sent)

    def _finish(self) -> None:
        """Finish the items whose results are done, except those that were cancelled meanwhile."""
        queue, done = self._queue, self._done
        self._done = []
        finished: defaultdict[PartitionWork, list[Item]] = defaultdict(list)
        for sent in done:
            work = sent.work
            if sent not in work.unacknowledged:
                continue
            if sent.has_failed:
                self._deal_with(sent)
                continue
            del work.unacknowledged[sent]
            finished[work].append(sent.item)
        for work, items in finished.items():
            queue.finish(work, *items)
            queue.note_end(work)
            queue.finished += len(items)
            queue.completions.end(asyncio.get_running_loop().time(), len(items))
        if finished:
            queue.wake()

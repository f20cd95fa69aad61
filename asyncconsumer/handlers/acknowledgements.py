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

    When a delivery (a sent result) is done, it calls this object. Many of these objects may exist,
    so each refers to few others to spare the garbage collector.
    """

    __slots__ = ("_deliveries", "_done", "_on_sent", "has_failed", "item", "work")

    def __init__(self, deliveries: Sequence[RecordDelivery]) -> None:
        self._deliveries = deliveries
        self._done = 0  # how many deliveries, from the first on, are done
        self.has_failed = False  # whether a result could not be written
        self._on_sent: Callable[[Sent], object]
        self.work: PartitionWork
        self.item: Item

    async def wait(self) -> None:
        """Wait until all results are written. Raise the error of the first result that failed."""
        for delivery in self._deliveries:
            await delivery

    def begin(self, work: PartitionWork, item: Item, on_sent: "Callable[[Sent], object]") -> None:
        """Call ``on_sent(self)`` when all results of `item` are written or have failed.

        If that is so already, `on_sent` is called before this method returns.
        """
        self.work, self.item, self._on_sent = work, item, on_sent
        self()

    def __call__(self) -> None:
        """Register this object with the next unfinished delivery, which will then call it again.

        If all deliveries are done, call `on_sent`. The deliveries of a producer batch are done
        together, so one callback suffices for them.
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

    Such an item occupies no worker, so the number of workers does not limit the results that are on
    their way to the brokers. The item remains in flight: it counts toward the limits of its queue,
    and records with its key wait for it.

    `deal_with` is called with a `Sent` of which at least one result could not be written.
    """

    def __init__(self, queue: "WorkQueue", deal_with: Callable[[Sent], object]) -> None:
        self._queue: Final = queue
        self._deal_with: Final = deal_with
        self._note: Final = self._note_done
        self._done: list[Sent] = []

    def wait_for(self, work: PartitionWork, item: Item, sent: Sent) -> None:
        """Mark an item as processed later, when its results are written. Return at once.

        If a result cannot be written, `deal_with` is called instead.
        """
        work.unacknowledged[sent] = None
        sent.begin(work, item, self._note)

    def _note_done(self, sent: Sent) -> None:
        """Schedule `_finish` for the next iteration of the event loop, because results are done."""
        if not self._done:
            asyncio.get_running_loop().call_soon(self._finish)
        self._done.append(sent)

    def _finish(self) -> None:
        """Mark items as processed, because their results are written.

        Pass results of which one failed to `deal_with`. Skip items that were cancelled meanwhile.
        """
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

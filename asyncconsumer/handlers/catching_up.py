"""The wait until an app has processed the records that were in its partitions."""

import asyncio
from collections.abc import Sequence
from functools import partial

from asyncconsumer.aio.interrupt import cancel_when
from asyncconsumer.aio.wait import POLL_SECONDS, wait_until
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ClosedError, NotAssigned
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.runtime import HandlerRuntime, runtime_of
from asyncconsumer.types import TopicPartition


async def catch_up(
    consumer: Consumer, runtimes: Sequence[HandlerRuntime], over: asyncio.Event
) -> bool:
    """Wait until the handlers have processed all records that the assigned partitions have now.

    Return True. If `over` is set before that, because the app ends, return False.
    """
    try:
        async with cancel_when(over.is_set, every=POLL_SECONDS):
            assigned = await consumer.wait_assigned()
            queues = {
                tp: runtime.queue
                for tp in assigned
                if tp.topic
                not in (runtime := runtime_of(runtimes, tp.topic)).handler.handling.retry_topics
            }
            for tp, end in (await consumer.end_offsets(queues)).items():
                await wait_until(partial(_is_processed, tp, end, consumer, queues[tp]))
    except ClosedError:
        if not over.is_set():
            raise
    return not over.is_set()


async def _is_processed(tp: TopicPartition, end: int, consumer: Consumer, queue: WorkQueue) -> bool:
    """Return whether all records before `end` are processed, or the partition is not assigned.

    Raise ClosedError if the app is drained, so that they will not be processed.
    """
    if tp not in consumer.assignment:
        return tp not in await consumer.wait_assigned()  # a rebalance may assign it
    try:
        position = await consumer.position(tp)
    except NotAssigned:
        return False
    work = queue.partitions.get(tp)
    first = position if work is None or work.ledger.position is None else work.ledger.first
    if min(position, first) >= end:
        return True
    if queue.stopped and queue.is_idle:
        raise ClosedError(
            f"the app was drained before the records of {tp} up to offset {end} were processed"
        )
    return False

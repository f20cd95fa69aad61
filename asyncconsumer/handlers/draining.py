"""The draining of an app: start no handler calls, wait for running ones, and cancel slow ones."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_TO_END: Final = 2.0  # for cancelled handlers to clean up
_SHOWN: Final = 10


class Drained(NamedTuple):
    """The result of draining. `cut_short` has the offsets of records that were not processed.

    Their handler calls were cancelled, or had failed and waited for a retry. These records are not
    committed and will be redelivered.
    """

    cut_short: Mapping[TopicPartition, list[int]]

    def __bool__(self) -> bool:
        """Return whether all records whose handler calls were started are processed."""
        return not self.cut_short

    def __str__(self) -> str:
        shown = [f"{tp}@{offset}" for tp, offsets in self.cut_short.items() for offset in offsets]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        return f"{len(shown)} records: {', '.join(shown[:_SHOWN])}{more}"


class Draining:
    """The draining of an app, which happens only once. The object keeps its result."""

    def __init__(self) -> None:
        self.result: Drained | None = None
        self._cut: dict[TopicPartition, list[int]] = {}

    async def run(self, queues: Collection[WorkQueue], grace: float) -> Drained:
        """Drain the work queues. A later call returns the first result.

        Handler calls that still run after `grace` seconds are cancelled.
        """
        if self.result is None:
            drained = await drain(queues, grace)
            self._note(drained.cut_short)
            self.result = Drained(self._cut)
        return self.result

    def cut_short(self, queues: Collection[WorkQueue]) -> None:
        """Cancel the handler calls that are running. The result of `run` then has their offsets."""
        for queue in queues:
            self._note(queue.cancel())

    def _note(self, cut: Mapping[TopicPartition, list[int]]) -> None:
        for partition, offsets in cut.items():
            known = self._cut.setdefault(partition, [])
            known += [offset for offset in offsets if offset not in known]


async def drain(queues: Collection[WorkQueue], grace: float) -> Drained:
    """Stop the work queues, and wait for running handler calls.

    After `grace` seconds, cancel the calls that are still running.
    """
    for queue in queues:
        queue.stop()
    cut: dict[TopicPartition, list[int]] = {}
    try:
        async with asyncio.timeout(grace):
            await _wait_all_idle(queues)
    except TimeoutError:
        cut = await _cut_short(queues, grace)
    return Drained(_with_pending_retries(cut, queues))


async def _cut_short(
    queues: Collection[WorkQueue], grace: float
) -> dict[TopicPartition, list[int]]:
    cut: dict[TopicPartition, list[int]] = {}
    for queue in queues:
        cut |= queue.cancel()
    drained = Drained(cut)
    _log.warning(
        "handler calls did not end within %g s and were cancelled; not committed: %s",
        grace,
        drained,
    )
    try:
        async with asyncio.timeout(_SECONDS_TO_END):
            await _wait_all_idle(queues)
    except TimeoutError:
        names = sorted(task.get_name() for queue in queues for task in queue.running)
        _log.error(
            "handlers still run after their cancellation: %s. The app cannot close before they "
            "end: a handler must not suppress CancelledError",
            ", ".join(names[:_SHOWN]),
        )
    return cut


def _with_pending_retries(
    cut: dict[TopicPartition, list[int]], queues: Collection[WorkQueue]
) -> dict[TopicPartition, list[int]]:
    """Return `cut` extended by the offsets of records that failed and wait for a retry in a queue.

    They are added because this process will not retry these records.
    """
    pending = {tp: offsets for queue in queues for tp, offsets in queue.pending_retries().items()}
    if pending:
        _log.warning(
            "failed records are not retried, because the app is drained; not committed: %s",
            Drained(pending),
        )
    return {tp: sorted({*cut.get(tp, ()), *pending.get(tp, ())}) for tp in cut.keys() | pending}


async def _wait_all_idle(queues: Collection[WorkQueue]) -> None:
    for queue in queues:
        await queue.wait_all_idle()

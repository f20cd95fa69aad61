"""Draining: start no more items, wait for running ones, and cancel those that take too long."""

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
    """The result of draining. `cut_short` has the offsets that were begun and not processed.

    Their handlers were cancelled, or had failed and waited for a retry. These records are not
    committed and will be redelivered.
    """

    cut_short: Mapping[TopicPartition, list[int]]

    def __bool__(self) -> bool:
        """Return whether all records that were begun are processed."""
        return not self.cut_short

    def __str__(self) -> str:
        places = [f"{one}@{offset}" for one, some in self.cut_short.items() for offset in some]
        more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        return f"{len(places)} records: {', '.join(places[:_SHOWN])}{more}"


async def drain(all_lanes: Collection[WorkQueue], grace: float) -> Drained:
    """Stop the work queues and wait for running items. Cancel those left after `grace` seconds."""
    for lanes in all_lanes:
        lanes.stop()
    cut: dict[TopicPartition, list[int]] = {}
    try:
        async with asyncio.timeout(grace):
            await _quiet(all_lanes)
    except TimeoutError:
        cut = await _cut_short(all_lanes, grace)
    return Drained(_with_repeats(cut, all_lanes))


async def _cut_short(
    all_lanes: Collection[WorkQueue], grace: float
) -> dict[TopicPartition, list[int]]:
    cut: dict[TopicPartition, list[int]] = {}
    for lanes in all_lanes:
        cut |= lanes.cancel()
    what = Drained(cut)
    _log.warning("not finished within %g s, cancelled and not committed: %s", grace, what)
    try:
        async with asyncio.timeout(_SECONDS_TO_END):
            await _quiet(all_lanes)
    except TimeoutError:
        names = sorted(task.get_name() for lanes in all_lanes for task in lanes.running)
        _log.error(
            "cancelled, and still running: %s. Nothing can end before them: a handler must let a "
            "CancelledError pass",
            ", ".join(names[:_SHOWN]),
        )
    return cut


def _with_repeats(
    cut: dict[TopicPartition, list[int]], all_lanes: Collection[WorkQueue]
) -> dict[TopicPartition, list[int]]:
    """Add the records that failed and will not be retried by this process."""
    repeats = {one: some for lanes in all_lanes for one, some in lanes.pending_retries().items()}
    if repeats:
        _log.warning("failed, not tried again before the end, not committed: %s", Drained(repeats))
    return {one: sorted({*cut.get(one, ()), *repeats.get(one, ())}) for one in cut.keys() | repeats}


async def _quiet(all_lanes: Collection[WorkQueue]) -> None:
    for lanes in all_lanes:
        await lanes.quiet()

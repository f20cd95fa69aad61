"""Coming to an end: begin nothing more, let finish what runs, and cut short what takes too long."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_TO_END: Final = 2.0  # for handlers that were cancelled, to clean up
_SHOWN: Final = 10


class Drained(NamedTuple):
    """How it ended. `cut_short` are the records that were begun and not finished, by partition.

    Their handlers had to be cancelled, or had failed and were to be called again later. They are
    not committed and come again.
    """

    cut_short: Mapping[TopicPartition, list[int]]

    def __bool__(self) -> bool:
        """Whether all that was begun was finished."""
        return not self.cut_short

    def __str__(self) -> str:
        places = [f"{one}@{offset}" for one, some in self.cut_short.items() for offset in some]
        more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        return f"{len(places)} records: {', '.join(places[:_SHOWN])}{more}"


async def drain(all_lanes: Collection[WorkQueue], grace: float) -> Drained:
    """Return when nothing is worked on; what is left after `grace` seconds is cancelled."""
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
    """And what failed: nobody tries it again here."""
    repeats = {one: some for lanes in all_lanes for one, some in lanes.pending_retries().items()}
    if repeats:
        _log.warning("failed, not tried again before the end, not committed: %s", Drained(repeats))
    return {one: sorted({*cut.get(one, ()), *repeats.get(one, ())}) for one in cut.keys() | repeats}


async def _quiet(all_lanes: Collection[WorkQueue]) -> None:
    for lanes in all_lanes:
        await lanes.quiet()

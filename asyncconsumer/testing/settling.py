"""The part of `settled` that waits until all sent records are processed and committed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff

SETTLE_SECONDS: Final = 30.0
"""The default time limit of `settled`, on the clock of the event loop."""

_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = {False: 0.05, True: 1.0}  # in real time, and in virtual time


class NotSettled(AssertionError):
    """Records were not processed and committed within the time limit of `settled`."""


async def settle(pending: Callable[[], Awaitable[Sequence[str]]], seconds: float) -> None:
    """Wait until `pending` returns an empty list.

    `pending` returns a line of text for each partition with unprocessed records. After `seconds`,
    raise `NotSettled` with the last lines.
    """
    remaining: Sequence[str] = ["nothing was checked"]
    pauses = backoff(_FIRST_PAUSE, _LONGEST_PAUSE[is_virtual()], Random(0))  # noqa: S311
    try:
        async with asyncio.timeout(seconds):
            while remaining := await pending():
                await asyncio.sleep(next(pauses))
    except TimeoutError:
        lines = "".join(f"\n- {line}" for line in remaining)
        raise NotSettled(
            f"records were not processed and committed within {seconds:g} s (`timeout`):{lines}"
        ) from None


def is_virtual() -> bool:
    """Return whether the event loop runs in virtual time."""
    return getattr(asyncio.get_running_loop(), "virtual_time", False)


def unread(group: str, place: object, count: int, first: int) -> str:
    """Return a line of text about the `count` records that a group has not committed.

    `place` is their partition, and `first` the offset of the first of them.
    """
    records = "1 record" if count == 1 else f"{count} records"
    return f"group {group!r} has not committed {records} of {place}, from offset {first}"

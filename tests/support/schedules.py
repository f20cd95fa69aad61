"""Schedules of faults, and planted bugs that they must find."""

import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from asyncconsumer.testing.virtual_time import run

Schedule = Callable[[int], Coroutine[Any, Any, None]]
Bug = Callable[[pytest.MonkeyPatch], None]

_SEEDS: Final = range(int(os.environ.get("ASYNCCONSUMER_SCHEDULES", "30")))
_ENOUGH_TO_FIND_A_BUG: Final = range(100)


def play(schedule: Schedule, seed: int) -> None:
    """Run one schedule on virtual time."""
    run(schedule(seed), seed=seed, lag=0.001, limit=1000)


def play_all(schedule: Schedule) -> None:
    """Run the schedules of a test run. A failed one has a note with its seed."""
    for seed in _SEEDS:
        try:
            play(schedule, seed)
        except BaseException as error:
            error.add_note(f"This was seed {seed}: play({schedule.__module__}, {seed}) replays it.")
            raise


def must_find(schedule: Schedule) -> None:
    """Fail unless one of the schedules detects the planted bug."""
    for seed in _ENOUGH_TO_FIND_A_BUG:
        try:
            play(schedule, seed)
        except BaseException:  # noqa: BLE001 - any error detects the bug
            return
    pytest.fail(f"{len(_ENOUGH_TO_FIND_A_BUG)} schedules did not detect the bug")

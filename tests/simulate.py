"""Thousands of simulated schedules: `python -m tests.simulate [WORLD...] [--schedules N]`.

Each seed is one run of production code on virtual time, with its own faults. A seed
that fails is printed. Replay it alone with `--first SEED --schedules 1`.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from functools import partial
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.support import schedules
from tests.support.worlds import (
    classic_group,
    exactly_once,
    fetch,
    handlers,
    kip848_group,
    zookeeper_group,
)

WORLDS: Final[dict[str, schedules.Schedule]] = {
    "fetch": fetch.run_schedule,
    "zookeeper": zookeeper_group.run_schedule,
    "kip848": kip848_group.run_schedule,
    "classic": classic_group.run_schedule,
    "handlers": handlers.run_schedule,
    "exactly-once": exactly_once.run_schedule,
}


def play(world: str, seed: int) -> str:
    """Run one schedule. Return the error as text, or an empty string."""
    logging.disable(logging.CRITICAL)
    try:
        schedules.play(WORLDS[world], seed)
    except Exception as error:  # noqa: BLE001 - reported with the seed
        return f"{world}, seed {seed}:\n{''.join(traceback.format_exception(error))}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", default=list(WORLDS), help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if unknown := set(options.worlds) - WORLDS.keys():
        parser.error(f"no such world: {', '.join(unknown)}; there are {', '.join(WORLDS)}")
    failed = 0
    for world in options.worlds:
        failed += _play_all(world, range(options.first, options.first + options.schedules), options)
    sys.exit(bool(failed))


def _play_all(world: str, seeds: range, options: argparse.Namespace) -> int:
    started, failed = time.monotonic(), 0
    columns = "[bold]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress, multiprocessing.Pool(options.processes) as pool:
        bar = progress.add_task(world, total=len(seeds))
        for trouble in pool.imap_unordered(partial(play, world), seeds, chunksize=10):
            progress.advance(bar)
            if trouble:
                failed += 1
                progress.console.print(trouble, markup=False, highlight=False)
    minutes = (time.monotonic() - started) / 60
    print(f"{world}: {len(seeds)} schedules, {failed} failed, {len(seeds) / minutes:,.0f} a minute")
    return failed


if __name__ == "__main__":
    main()

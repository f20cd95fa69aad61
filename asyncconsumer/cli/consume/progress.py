"""The progress bar of `asyncconsumer consume`, for reads that have an end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


class ReadProgress:
    """The number of offsets that were read, and the total to read."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("read", total=0)
        self._total = 0

    def expect(self, count: int) -> None:
        """Add `count` offsets to the total."""
        self._total += count
        if self._bar is not None:
            self._bar.update(self._known_task, total=self._total)

    def advance(self, count: int) -> None:
        """Count `count` more offsets as read."""
        if self._bar is not None:
            self._bar.update(self._known_task, advance=count)

    @property
    def _known_task(self) -> TaskID:
        assert self._task is not None
        return self._task


def wants_bar(*, bounded: bool, to_file: bool, quiet: bool) -> bool:
    """Return whether to show a progress bar.

    It needs a terminal on which no records are printed.
    """
    records_in_terminal = sys.stdout.isatty() and not to_file
    return bounded and not quiet and sys.stderr.isatty() and not records_in_terminal


@contextmanager
def show_progress(*, enabled: bool) -> Iterator[ReadProgress]:
    """Return a context manager that shows a progress bar on standard error, if `enabled`."""
    if not enabled:
        yield ReadProgress(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield ReadProgress(bar)

"""A progress bar on standard error, for commands that know the number of records to process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import rich.progress
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


class ProgressDisplay:
    """The number of records that are processed, and the total number."""

    def __init__(self, bar: rich.progress.Progress | None, title: str) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(title, total=0)
        self._total = 0

    def expect(self, count: int) -> None:
        """Add `count` to the total."""
        self._total += count
        if self._bar is not None:
            self._bar.update(self._known_task, total=self._total)

    def advance(self, count: int) -> None:
        """Add `count` to the number of processed records."""
        if self._bar is not None:
            self._bar.update(self._known_task, advance=count)

    @property
    def _known_task(self) -> TaskID:
        assert self._task is not None
        return self._task


def wants_bar(*, bounded: bool, to_file: bool, quiet: bool) -> bool:
    """Return whether a command shows a progress bar.

    A command shows one if the number of records is known (`bounded`), and standard error is a
    terminal to which no records are printed.
    """
    records_in_terminal = sys.stdout.isatty() and not to_file
    return bounded and not quiet and sys.stderr.isatty() and not records_in_terminal


@contextmanager
def show_progress(title: str, *, enabled: bool) -> Iterator[ProgressDisplay]:
    """Return a context manager that shows a progress bar on standard error, if `enabled`."""
    if not enabled:
        yield ProgressDisplay(None, title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=Console(stderr=True)) as bar:
        yield ProgressDisplay(bar, title)

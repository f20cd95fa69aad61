"""A progress bar on the terminal, with the number of offsets read and the total."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from asyncconsumer.errors import ConfigError, NotAssigned
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.rebalance import Rebalancer

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition

_REFRESH_SECONDS: Final = 0.2


def check_terminal() -> None:
    """Raise ConfigError if the package `rich`, which draws the bar, is not installed."""
    try:
        import rich.progress  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "`progress=True` needs the rich package: run `pip install rich`"
        ) from error


class Bar:
    """A progress bar that polls the positions of partitions.

    The total counts offsets up to the end offsets of the option `stop_at`. Without that option, it
    counts offsets up to the last known high watermarks.
    """

    def __init__(self, title: str, rebalancer: Rebalancer, manager: FetchManager) -> None:
        self._title = title
        self._rebalancer = rebalancer
        self._manager = manager
        self._seen: dict[TopicPartition, tuple[int, int]] = {}  # first and last known position

    async def run(self) -> NoReturn:
        """Draw the bar until cancelled."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:,.0f}/s"),
            TimeRemainingColumn(),
        )
        now = asyncio.get_running_loop().time
        began = now()
        with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as shown:
            task = shown.add_task(self._title, total=None, rate=0.0)

            def show() -> None:
                done, total = self.look()
                rate = done / max(0.001, now() - began)
                shown.update(task, completed=done, total=total or None, rate=rate, refresh=True)

            try:
                while True:
                    show()
                    await asyncio.sleep(_REFRESH_SECONDS)
            finally:
                show()

    def look(self) -> tuple[int, int]:
        """Return the number of offsets read so far, and the total to read."""
        progress, to_come = self._manager.progress(), 0
        for tp, routed in self._rebalancer.reading.items():
            with suppress(NotAssigned):
                if (position := self._rebalancer.position(tp)) is None or tp not in progress:
                    continue
                end = routed.target.end
                end = progress[tp].high_watermark if end is None else end
                begun = progress[tp].start_offset
                first, _ = self._seen.get(tp, (position if begun is None else begun, position))
                self._seen[tp] = first, position
                to_come += max(0, end - position)
        done = sum(last - first for first, last in self._seen.values())
        return done, done + to_come

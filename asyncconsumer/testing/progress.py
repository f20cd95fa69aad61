"""A bar while jars are fetched, and nothing at all when they are in the cache."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from asyncconsumer.testing.servers import maven


@contextmanager
def fetching(console: Console) -> Iterator[maven.Progress]:
    """What a server calls while it fetches jars; the bar appears with the first call."""
    with ExitStack() as stack:
        bar = Progress(
            TextColumn("fetching jars"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.description}"),
            console=console,
            transient=True,
        )
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            if not bar.live.is_started:
                stack.enter_context(bar)
            bar.update(task, description=what, completed=done, total=total or None)

        yield show

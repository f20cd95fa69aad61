"""A progress bar for downloads of jars. It does not appear for cached jars."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from asyncconsumer.testing.servers import maven


@contextmanager
def fetching(console: Console) -> Iterator[maven.Progress]:
    """Return a context manager that yields the progress callback for a server's downloads.

    The bar appears with the first call of the callback.
    """
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

        def show(file: str, done: int, total: int) -> None:
            if not bar.live.is_started:
                stack.enter_context(bar)
            bar.update(task, description=file, completed=done, total=total or None)

        yield show

"""Reloads of workers when source files change, for development."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

_SHOWN: Final = 3  # file names in a message


def check_watchfiles() -> None:
    """Raise ConfigError if watchfiles is not installed."""
    try:
        import watchfiles  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--reload needs the package watchfiles, which is not installed. "
            "Install it with: pip install 'asyncconsumer[reload]'"
        ) from error


async def watch_sources(folders: Iterable[Path], changed: Callable[[str], None]) -> None:
    """Watch the Python files in these folders until cancelled.

    Call `changed` with the names of the changed files, as text, at each change.
    """
    from watchfiles import PythonFilter, awatch

    async for changes in awatch(*folders, watch_filter=PythonFilter()):
        names = sorted({Path(path).name for _, path in changes})
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        changed(", ".join(names[:_SHOWN]) + more)

"""Reloads when a source file changes."""

import sys
from pathlib import Path

import pytest

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ConfigError
from asyncconsumer.workers.watching import check_watchfiles, watch_sources
from tests.support.helpers import until

pytestmark = pytest.mark.fast


async def test_changes_of_python_files_are_reported(tmp_path: Path) -> None:
    reported: list[str] = []
    async with Scope("test") as scope:
        scope.start(watch_sources([tmp_path], reported.append), "watch")

        def noticed() -> bool:  # the watcher may start after a change
            (tmp_path / "notes.txt").write_text("not source")
            (tmp_path / "orders.py").write_text(f"number = {len(reported)}")
            return len(reported) > 1

        await until(noticed)

        def summed_up() -> bool:
            for number in range(5):
                (tmp_path / f"new{number}.py").write_text(f"number = {len(reported)}")
            return reported[-1] == "new0.py, new1.py, new2.py and 2 more"

        await until(summed_up)
    assert reported[0] == "orders.py"


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ConfigError, match=r"pip install 'asyncconsumer\[reload\]'"):
        check_watchfiles()

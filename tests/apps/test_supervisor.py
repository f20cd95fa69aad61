"""The supervisor, with workers that are a line of Python each and need no broker."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from asyncconsumer.apps.process import Job, WorkerProcess
from asyncconsumer.tasks.scope import Scope
from tests.helpers import until

pytestmark = pytest.mark.fast

LEAVES_A_CHILD = """
import os, signal, time
if child := os.fork():
    open({pid!r}, "w").write(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(Job):
    """A worker that is as bad as the test wants it to be; its end of the line is `line`."""

    target: str = ""
    grace: float = 1.0
    uvloop: bool = False

    def command(self, number: int, descriptor: int) -> list[str]:
        line = f"import socket; number = {number}; line = socket.socket(fileno={descriptor})"
        return [sys.executable, "-S", "-c", f"{line}\n{self.target}"]


@asynccontextmanager
async def watched(script: str) -> AsyncIterator[WorkerProcess]:
    async with Scope("test") as scope:
        worker = await WorkerProcess.start(1, Script(target=script), lambda _: None)
        scope.start(worker.watch(), "watch")
        try:
            yield worker
        finally:
            worker.kill()
            await until(worker.ended.is_set)


async def test_a_worker_is_gone_though_its_child_holds_the_line(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with watched(LEAVES_A_CHILD.format(pid=str(pid))) as worker:
        try:
            await until(worker.ended.is_set)
            assert worker.reason == "SIGKILL"
        finally:
            os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_the_last_words_of_a_worker_are_heard() -> None:
    async with watched("""line.sendall(b'{"failed": "no disk"}\\n')""") as worker:
        await until(worker.ended.is_set)
        assert worker.reason == "no disk"


async def test_a_signal_without_a_name_has_its_number() -> None:
    async with watched("import os; os.kill(os.getpid(), 40)") as worker:
        await until(worker.ended.is_set)
        assert worker.reason == "signal 40"

"""A server process that runs under a guard process."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.testing.servers import guard
from asyncconsumer.testing.servers.errors import ServerError, StartFailed

_POLL_SECONDS: Final = 0.05
_LOG_LINES_SHOWN: Final = 25
_SECONDS_TO_PAUSE: Final = 5.0  # a thread that waits for a disk stops when the disk has answered
_SECONDS_BETWEEN_CHECKS: Final = 0.001
_TROUBLE: Final = re.compile(r" (ERROR|FATAL) |^(Exception in|Error:|\S*(Exception|Error)\b)")

Probe = Callable[[], Awaitable[bool]]


class ServerProcess:
    """A process that can be started, paused, killed and restarted, on any event loop."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, cleanup: Path) -> None:
        self.name = name
        self.log = folder / "server.log"
        self._command = command
        self._cleanup = cleanup  # the guard removes it if this process dies
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._log_start = 0
        self._paused = False

    def __repr__(self) -> str:
        return f"<{self.name}, {self.state}>"

    @property
    def state(self) -> str:
        """The state of the process: `running`, `paused` or `down`."""
        if not self.running:
            return "down"
        return "paused" if self._paused else "running"

    @property
    def running(self) -> bool:
        """Whether the process exists, which is also true while it is paused."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def guard_pid(self) -> int | None:
        """The process id of the guard, which is the direct child process, or None if it ended."""
        return self._guard.pid if self._guard is not None else None

    @property
    def pid(self) -> int:
        """The process id of the server. Raise ServerError if it is down."""
        if not self.running:
            raise ServerError(f"{self.name} is down")
        return self._pid

    async def start(self, ready: Probe, timeout: float = 60.0) -> None:
        """Start the process, and wait until `ready` returns True.

        Kill the process and raise StartFailed if it ends before, or after `timeout` seconds.
        """
        if self.running:
            raise ServerError(f"{self.name} is already running")
        self._launch()
        try:
            await self._wait_until(ready, timeout)
        except BaseException:
            await self.kill()
            raise

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(self._cleanup), *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not reach the server
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdout:
            first_line = process.stdout.readline()
        if not first_line:
            process.stdin.close()
            process.wait()
            raise StartFailed(f"{self.name} could not be started", self.log_tail())
        self._guard, self._paused = process, False
        self._pid = int(first_line)

    async def _wait_until(self, ready: Probe, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not await ready():
                    if not self.running:
                        assert self._guard is not None
                        code = self._guard.returncode
                        raise StartFailed(
                            f"{self.name} ended with exit code {code}", self.log_tail()
                        )
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StartFailed(
                f"{self.name} was not ready within {timeout:.0f} s", self.log_tail()
            ) from None

    def log_tail(self) -> str:
        """Return the log since the last start, from its first error on.

        Without an error, return its last lines.
        """
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        trouble = [n for n, line in enumerate(lines) if _TROUBLE.search(line)]
        start = trouble[0] if trouble else len(lines) - _LOG_LINES_SHOWN
        return "\n".join(f"  | {line}" for line in lines[max(start, 0) :][:_LOG_LINES_SHOWN])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server process."""
        with contextlib.suppress(ProcessLookupError):  # the process has just ended
            os.kill(self.pid, number)

    def pause(self) -> None:
        """Pause the process with SIGSTOP, and block until all of its threads have stopped.

        Its sockets stay open. A thread stops only when the system schedules it next.
        """
        self.signal(signal.SIGSTOP)
        self._paused = True
        deadline = time.monotonic() + _SECONDS_TO_PAUSE
        while not _is_stopped(self.pid) and time.monotonic() < deadline:
            time.sleep(_SECONDS_BETWEEN_CHECKS)

    def resume(self) -> None:
        """Resume the process with SIGCONT."""
        self.signal(signal.SIGCONT)
        self._paused = False

    async def stop(self, timeout: float = 30.0) -> None:
        """Stop the process with SIGTERM, or with SIGKILL if it runs after `timeout` seconds."""
        if not self.running:
            return self._forget()
        if self._paused:
            self.resume()
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout):
                await self._ended()
        except TimeoutError:
            await self.kill()
        return self._forget()

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.running:
            self.signal(signal.SIGKILL)
            await self._ended()
        self._forget()

    async def _ended(self) -> None:
        while self.running:
            await asyncio.sleep(_POLL_SECONDS)

    def _forget(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard = None


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped. Without /proc, assume that they are."""
    try:
        states = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    # the state follows the name of the thread, which is in parentheses and may contain spaces
    return all(text.rpartition(")")[2].split()[0] in "TtXZ" for text in states)


async def together(*steps: Awaitable[None]) -> None:
    """Run coroutines concurrently. The first error cancels the others and is raised."""

    async def run(step: Awaitable[None]) -> None:
        await step

    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                start_task(group, run(step))
    except BaseExceptionGroup as troubles:
        raise troubles.exceptions[0] from None

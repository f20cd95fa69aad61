"""A worker process, as seen by its supervisor."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from asyncconsumer.aio.scope import Scope
from asyncconsumer.web.status import Status
from asyncconsumer.workers.control_pipe import ControlPipe

ENDED_WELL: Final = "exit code 0"  # a value of `reason`
GRACE_OF_APP: Final = "app"  # passed instead of milliseconds
_SECONDS_FOR_LAST_WORDS: Final = 1.0
_USUAL_GRACE: Final = 20.0  # seconds, the default of `shutdown_grace_ms`

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The settings of every worker: app, grace period and event loop."""

    target: str
    grace: float | None  # seconds for running handlers at the end; None if the app decides
    uvloop: bool

    def command(self, number: int, descriptor: int) -> list[str]:
        """Return the command line, with a new interpreter so that a reload sees new code."""
        loop = "uvloop" if self.uvloop else "asyncio"
        grace = GRACE_OF_APP if self.grace is None else int(self.grace * 1000)
        words = (self.target, number, descriptor, grace, loop)
        return [sys.executable, "-m", "asyncconsumer.workers.worker", *map(str, words)]


class StartupFailure(str):
    """The reason of a worker that failed because its app is unusable."""

    __slots__ = ()


class WorkerProcess:
    """A worker process that runs until `ended` is set, with its last reports."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, line: ControlPipe, say: Say
    ) -> None:
        self.number: Final = number
        self.started: Final = asyncio.get_running_loop().time()
        self.up_or_ended = asyncio.Event()
        self.ended = asyncio.Event()
        self._told: dict[str, Any] = {}  # the last reports, except the status
        self.status: Status | None = None
        self.silent = 0  # seconds without a report, counted by the `Slot`
        self.reason: str | None = None  # why it ended
        self._process = process
        self._line = line
        self._say = say

    @classmethod
    async def start(cls, number: int, job: WorkerSpec, say: Say) -> Self:
        """Start a worker in a new session, so that signals of a terminal reach only the supervisor.

        A new process group would be enough, but uvloop cannot start a process in one.
        """
        ours, theirs = socket.socketpair()
        with ExitStack() as unless_started, theirs:
            unless_started.enter_context(ours)
            process = await asyncio.create_subprocess_exec(
                *job.command(number, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            try:
                line = await ControlPipe.on(ours)
            except BaseException:  # no caller would know of the process
                process.kill()
                await process.wait()
                raise
            unless_started.pop_all()
        return cls(number, process, line, say)

    async def watch(self) -> None:
        """Receive reports until the process has exited.

        The end of the control pipe is no sign of that. Processes forked by the worker may hold the
        other end open and outlive the worker.
        """
        try:
            async with Scope(f"worker {self.number}") as scope:
                listening = scope.start(self._listen(), "listen")
                code = await self._process.wait()
                await asyncio.wait({listening}, timeout=_SECONDS_FOR_LAST_WORDS)
        finally:
            await self._line.close()
        if self.reason is None:
            self.reason = f"exit code {code}" if code >= 0 else _name_of_signal(-code)
        self.status = None
        self.ended.set()
        self.up_or_ended.set()

    async def _listen(self) -> None:
        try:
            async for told in self._line.heard():
                self._hear(told)
        except (TypeError, ValueError) as error:  # not a report of a worker
            self.kill(f"what it tells is not understood, it was killed: {error}")

    def _hear(self, told: dict[str, Any]) -> None:
        self.silent = 0
        match told:
            case {"up": True}:
                self._told.update(told)
                self._say(f"worker {self.number} is up: process {self.pid}")
                self.up_or_ended.set()
            case {"status": dict(status)}:
                self.status = Status.from_dict(status)
            case {"member": _} | {"cut_short": _}:
                self._told.update(told)
            case {"unusable": reason}:
                self.reason = StartupFailure(reason)
            case {"failed": reason}:
                self.reason = reason

    @property
    def up(self) -> bool:
        """Whether the worker has joined the group."""
        return "up" in self._told

    @property
    def member_id(self) -> str | None:
        """The last reported member id."""
        return self._told.get("member")

    @property
    def cut_short(self) -> str | None:
        """The records that were not processed when it ended, as text; None if all were."""
        return self._told.get("cut_short")

    @property
    def static(self) -> bool:
        """Whether the worker is a static member, of which two cannot exist at the same time."""
        return bool(self._told.get("static"))

    @property
    def grace(self) -> float:
        """The grace period of the worker in seconds."""
        told = self._told.get("grace")
        return told if isinstance(told, int | float) else _USUAL_GRACE

    @property
    def unusable(self) -> bool:
        """Whether the worker failed because its app is unusable."""
        return isinstance(self.reason, StartupFailure)

    @property
    def drained(self) -> bool:
        """Whether the worker exited with code 0, or was never up."""
        return not self.up or self.reason == ENDED_WELL

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    async def let_go(self) -> None:
        """Close the control pipe. The worker then drains as if its supervisor had died."""
        await self._line.close()

    def remove(self, member_id: str) -> None:
        """Ask the worker to remove a member of the group whose process has died."""
        self._line.tell(departed=member_id)

    def drain(self) -> None:
        """Ask the worker to drain within its grace period."""
        self._line.tell(drain=True)

    def hurry(self) -> None:
        """Ask the worker to end without waiting for running handlers."""
        self._line.tell(hurry=True)

    def kill(self, reason: str | None = None) -> None:
        """Kill the process."""
        self.reason = self.reason or reason
        with suppress(ProcessLookupError):
            self._process.kill()


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"

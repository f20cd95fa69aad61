"""A worker process as its supervisor sees it."""

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

ENDED_WELL: Final = "exit code 0"  # as a reason
GRACE_OF_APP: Final = "app"  # in place of milliseconds
_SECONDS_FOR_LAST_WORDS: Final = 1.0
_USUAL_GRACE: Final = 20.0  # seconds, as an app has it that says nothing else

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What every worker is to do."""

    target: str
    grace: float | None  # seconds for what is being worked on at the end; None: its app knows
    uvloop: bool

    def command(self, number: int, descriptor: int) -> list[str]:
        """A fresh interpreter, so that a reload sees the code as it is then."""
        loop = "uvloop" if self.uvloop else "asyncio"
        grace = GRACE_OF_APP if self.grace is None else int(self.grace * 1000)
        words = (self.target, number, descriptor, grace, loop)
        return [sys.executable, "-m", "asyncconsumer.workers.worker", *map(str, words)]


class StartupFailure(str):
    """The reason of a worker that could not even begin."""

    __slots__ = ()


class WorkerProcess:
    """It runs until `ended` is set; what it tells meanwhile is kept."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, line: ControlPipe, say: Say
    ) -> None:
        self.number: Final = number
        self.started: Final = asyncio.get_running_loop().time()
        self.up_or_ended = asyncio.Event()
        self.ended = asyncio.Event()
        self._told: dict[str, Any] = {}  # what it said of itself, apart from how it stands
        self.status: Status | None = None
        self.silent = 0  # seconds, as counted by who waits for it
        self.reason: str | None = None  # for its end
        self._process = process
        self._line = line
        self._say = say

    @classmethod
    async def start(cls, number: int, job: WorkerSpec, say: Say) -> Self:
        """Start a worker in a session of its own: a terminal's signals reach only the supervisor.

        uvloop cannot start a process in a process group of its own.
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
            except BaseException:  # nobody would know of it
                process.kill()
                await process.wait()
                raise
            unless_started.pop_all()
        return cls(number, process, line, say)

    async def watch(self) -> None:
        """Listen to it until it is gone.

        The line does not tell: what the worker has forked may hold the other end, and outlive it.
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
        except (TypeError, ValueError) as error:  # it is no worker of ours, or has lost its mind
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
        """Whether it has come as far as to read something."""
        return "up" in self._told

    @property
    def member_id(self) -> str | None:
        """How its group knows it, as last told."""
        return self._told.get("member")

    @property
    def cut_short(self) -> str | None:
        """What it did not finish, if something."""
        return self._told.get("cut_short")

    @property
    def static(self) -> bool:
        """Whether its name in the group is its own: there cannot be two of it at the same time."""
        return bool(self._told.get("static"))

    @property
    def grace(self) -> float:
        """Seconds that it takes for what it works on at the end."""
        told = self._told.get("grace")
        return told if isinstance(told, int | float) else _USUAL_GRACE

    @property
    def unusable(self) -> bool:
        """Whether what it was to run is no app."""
        return isinstance(self.reason, StartupFailure)

    @property
    def drained(self) -> bool:
        """Whether it ended as it should, after it was up."""
        return not self.up or self.reason == ENDED_WELL

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    async def let_go(self) -> None:
        """Hear no more of it: it ends as if its supervisor had died."""
        await self._line.close()

    def remove(self, member_id: str) -> None:
        """Have it remove a member of its group whose process is gone."""
        self._line.tell(departed=member_id)

    def drain(self) -> None:
        """Ask it to end, with all the time that it may take."""
        self._line.tell(drain=True)

    def hurry(self) -> None:
        """Ask it to end without waiting for what it works on."""
        self._line.tell(hurry=True)

    def kill(self, reason: str | None = None) -> None:
        """End it."""
        self.reason = self.reason or reason
        with suppress(ProcessLookupError):
            self._process.kill()


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of those for real time have none
        return f"signal {number}"

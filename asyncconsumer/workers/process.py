"""A worker process from the supervisor's side: its start, its reports and its end."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from asyncconsumer.aio.scope import Scope
from asyncconsumer.web.status import Status
from asyncconsumer.workers.control_pipe import ControlPipe
from asyncconsumer.workers.logs import LogFormat
from asyncconsumer.workers.recycling import Usage

SUCCESS: Final = "exit code 0"  # a value of `reason`
CREATE_TOPICS: Final = "create-topics"
APP_GRACE: Final = "app"  # passed instead of milliseconds if the app decides
_SECONDS_FOR_LAST_MESSAGES: Final = 1.0
_DEFAULT_GRACE: Final = 20.0  # seconds, the default of `shutdown_grace_ms`

Echo = Callable[[str], None]
"""A function that prints a message to the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The settings that all workers share: app, grace period, event loop and log format."""

    target: str
    grace: float | None  # seconds for running handlers at shutdown; None if the app decides
    uvloop: bool
    log_format: LogFormat = LogFormat.TEXT
    create_topics: bool = False

    def command(self, number: int, descriptor: int) -> list[str]:
        """Return the command line of a worker.

        It starts a new interpreter, which imports changed code.
        """
        loop = "uvloop" if self.uvloop else "asyncio"
        grace = APP_GRACE if self.grace is None else int(self.grace * 1000)
        arguments = [self.target, number, descriptor, grace, loop, self.log_format]
        if self.create_topics:
            arguments.append(CREATE_TOPICS)
        return [sys.executable, "-m", "asyncconsumer.workers.worker", *map(str, arguments)]


class StartupFailure(str):
    """The reason why an app cannot run. Restarting the worker would not help."""

    __slots__ = ()


class WorkerProcess:
    """A worker process and its last reports.

    The event `ended` is set when the process has exited.
    """

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, pipe: ControlPipe, echo: Echo
    ) -> None:
        self.number: Final = number
        self.started: Final = asyncio.get_running_loop().time()
        self.up_or_ended = asyncio.Event()
        self.ended = asyncio.Event()
        self._reported: dict[str, Any] = {}  # the last report of each kind, except the status
        self.status: Status | None = None
        self.silent_seconds = 0  # seconds without a report, counted by the `Slot`
        self.reason: str | None = None  # why the process ended
        self._process = process
        self._pipe = pipe
        self._echo = echo

    @classmethod
    async def start(cls, number: int, spec: WorkerSpec, echo: Echo) -> Self:
        """Start a worker in a new session, so that signals of a terminal reach only the supervisor.

        A new process group would be enough, but uvloop cannot start a process in one.
        """
        parent, child = socket.socketpair()
        with ExitStack() as unless_started, child:
            unless_started.enter_context(parent)
            process = await asyncio.create_subprocess_exec(
                *spec.command(number, child.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[child.fileno()],
                start_new_session=True,
            )
            try:
                pipe = await ControlPipe.open(parent)
            except BaseException:  # otherwise the process would run without a supervisor
                process.kill()
                await process.wait()
                raise
            unless_started.pop_all()
        return cls(number, process, pipe, echo)

    async def watch(self) -> None:
        """Receive reports until the process has exited.

        Processes that the worker has forked may outlive it and keep the control pipe open. So the
        exit is not detected by the end of the pipe.
        """
        try:
            async with Scope(f"worker {self.number}") as scope:
                receiving = scope.start(self._receive(), "receive")
                code = await self._process.wait()
                await asyncio.wait({receiving}, timeout=_SECONDS_FOR_LAST_MESSAGES)
        finally:
            await self._pipe.close()
        if self.reason is None:
            self.reason = f"exit code {code}" if code >= 0 else _signal_name(-code)
        self.status = None
        self.ended.set()
        self.up_or_ended.set()

    async def _receive(self) -> None:
        try:
            async for message in self._pipe.messages():
                self._on_message(message)
        except (TypeError, ValueError) as error:
            self.kill(f"killed after an invalid report: {error}")

    def _on_message(self, message: dict[str, Any]) -> None:
        self.silent_seconds = 0
        match message:
            case {"up": True}:
                self._reported.update(message)
                self._echo(f"worker {self.number} is up, process {self.pid}")
                self.up_or_ended.set()
            case {"status": dict(status)}:
                self.status = Status.from_dict(status)
            case {"member": _} | {"unfinished": _} | {"records": int(), "memory": int()}:
                self._reported.update(message)
            case {"unusable": reason}:
                self.reason = StartupFailure(reason)
            case {"failed": reason}:
                self.reason = reason

    @property
    def up(self) -> bool:
        """Whether the worker has joined the group."""
        return "up" in self._reported

    @property
    def member_id(self) -> str | None:
        """The member id that the worker reported last, or None."""
        return self._reported.get("member")

    def usage(self, now: float) -> Usage:
        """Return the resources that the worker has used until the loop time `now`."""
        records, memory = (self._reported.get(name, 0) for name in ("records", "memory"))
        return Usage(now - self.started, records, memory)

    @property
    def unfinished(self) -> str | None:
        """The records that were started and not processed, as text, or None if there are none."""
        return self._reported.get("unfinished")

    @property
    def static(self) -> bool:
        """Whether the worker is a static member. Another member with the same id would fence it."""
        return bool(self._reported.get("static"))

    @property
    def grace(self) -> float:
        """The grace period of the worker in seconds."""
        seconds = self._reported.get("grace")
        return seconds if isinstance(seconds, int | float) else _DEFAULT_GRACE

    @property
    def unusable(self) -> bool:
        """Whether the worker failed because its app cannot run, so that it is not restarted."""
        return isinstance(self.reason, StartupFailure)

    @property
    def drained(self) -> bool:
        """Whether the worker exited with code 0, or before it had joined the group."""
        return not self.up or self.reason == SUCCESS

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    async def detach(self) -> None:
        """Close the control pipe, after which the worker drains as if its supervisor had died."""
        await self._pipe.close()

    def remove(self, member_id: str) -> None:
        """Ask this worker to remove from the group a member whose process has died."""
        self._pipe.send(dead_member=member_id)

    def pause_only(self, topics: Iterable[str]) -> None:
        """Ask the worker to pause these topics, and to resume all others."""
        self._pipe.send(paused_topics=sorted(topics))

    def drain(self) -> None:
        """Ask the worker to drain within its grace period."""
        self._pipe.send(drain=True)

    def stop_now(self) -> None:
        """Ask the worker to exit without waiting for running handlers."""
        self._pipe.send(stop_now=True)

    def kill(self, reason: str | None = None) -> None:
        """Kill the process.

        `reason` says why in messages, unless the process has reported a reason itself.
        """
        self.reason = self.reason or reason
        with suppress(ProcessLookupError):
            self._process.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"

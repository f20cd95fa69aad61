"""A process that is a member of a group: started, watched, frozen, ended."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.errors import ServerError
from asyncconsumer.testing.servers.java import find_java, java_command
from asyncconsumer.testing.servers.process import ServerProcess, together

_POLL_SECONDS: Final = 0.02
EVENTS: Final = "events"
_PROGRAMS: Final = Path(__file__).parent / "programs"


class MemberProcess(ABC):
    """A process that is a member of a group. Belongs to no event loop."""

    def __init__(self, group: str, name: str, properties: Mapping[str, str]) -> None:
        self.group = group
        self.name = name
        self._properties = properties
        self._process: ServerProcess | None = None
        self._folder: Path | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._title}, {self.state}>"

    @property
    def _title(self) -> str:
        return f"{self.group}_{self.name}"

    @property
    def state(self) -> str:
        """`running`, `paused` or `down`."""
        return self._process.state if self._process is not None else "down"

    @property
    def process(self) -> ServerProcess:
        """The process while there is one; its `log` tells what happens inside."""
        if self._process is None:
            raise ServerError(f"{self!r} has not been started")
        return self._process

    @abstractmethod
    async def _command(self, folder: Path, properties: Path) -> list[str]:
        """The command that runs it."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether its first rebalance is over."""

    async def start(self) -> None:
        """Start it; returns once it has been through its first rebalance."""
        if self._process is not None:
            raise ServerError(f"{self!r} has been started already: stop or kill it first")
        self._folder = folder = Path(tempfile.mkdtemp(prefix="asyncconsumer-member-"))
        try:
            properties = folder / "consumer.properties"
            properties.write_text(
                "".join(f"{name}={value}\n" for name, value in self._properties.items())
            )
            command = await self._command(folder, properties)
            self._process = ServerProcess(f"consumer {self._title}", command, folder, folder)
            await self._process.start(self._ready)
        except BaseException:
            await self.kill()
            raise

    async def _ready(self) -> bool:
        return self._is_ready()

    async def stop(self) -> None:
        """End it in good order (SIGTERM): it commits and lets go of what it owns."""
        if self._process is not None:
            await self._process.stop()
        self._forget()

    async def kill(self) -> None:
        """SIGKILL it: what it owns is free only when its session is over."""
        if self._process is not None:
            await self._process.kill()
        self._forget()

    def _forget(self) -> None:
        self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def freeze(self) -> None:
        """SIGSTOP it: beyond its session timeout the others take over what it believes to own."""
        self.process.pause()

    def thaw(self) -> None:
        """SIGCONT it."""
        self.process.resume()

    async def until(self, condition: Callable[[Self], bool], timeout: float = 60.0) -> None:
        """Return once the condition holds of it; raise when it ends before, or after `timeout`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition(self):
                    if self.state == "down":
                        break
                    await asyncio.sleep(_POLL_SECONDS)
        if not condition(self):
            log = self._process.log_tail() if self._process is not None else ""
            raise ServerError(f"{self!r} did not get there within {timeout:.0f} s\n{log}")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.kill()


class Told(ABC):
    """What a member's program has told of itself, and how far that has been read."""

    def __init__(self) -> None:
        self.ready = False
        self._position = 0

    def anew(self) -> None:
        """The program is about to start again, or it has ended."""
        self.ready, self._position = False, 0

    def read(self, events: Path) -> None:
        """Take in what was written since; the last line may still be on its way."""
        if not events.exists():
            return
        with events.open("rb") as file:
            file.seek(self._position)
            lines = [line for line in file if line.endswith(b"\n")]
        self._position += sum(map(len, lines))
        for line in lines:
            event = json.loads(line)
            self._take(event.pop("event"), event)

    @abstractmethod
    def _take(self, kind: str, event: dict[str, Any]) -> None:
        """One thing that happened."""


def of_record(event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record as a program tells of it, its key and value as bytes again."""
    texts = {name: event[name] for name in ("key", "value")}
    return {**event, **{n: None if t is None else bytes.fromhex(t) for n, t in texts.items()}}


class TellingMember(MemberProcess):
    """A member that one of our own programs runs, which writes what happens into a file."""

    _told: Told

    async def _program(
        self, name: str, jars: Sequence[Path], progress: maven.Progress, *arguments: object
    ) -> list[str]:
        """The command that runs a program of ours, compiled when it is first needed."""
        java, source = find_java(), _PROGRAMS / f"{name}.java"
        classes = await compiled(source, java, jars, progress)
        return java_command(java, [classes, *jars], name, *map(str, arguments), heap="128m")

    def _is_ready(self) -> bool:
        self._look()
        return self._told.ready

    def _look(self) -> None:
        if self._folder is not None:
            self._told.read(self._folder / EVENTS)

    def _forget(self) -> None:
        self._look()
        self._told.anew()
        super()._forget()


M = TypeVar("M", bound=MemberProcess)


class MemberProcesses:
    """Members that are ended together at the end of an `async with`."""

    def __init__(self) -> None:
        self._members: list[MemberProcess] = []

    async def _started(self, member: M) -> M:
        self._members.append(member)
        await member.start()
        return member

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await together(*(member.kill() for member in self._members))
        self._members.clear()

"""A process that is a member of a consumer group. Tests can stop, kill and freeze it."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.errors import ServerError
from asyncconsumer.testing.servers.java import find_java, java_command
from asyncconsumer.testing.servers.process import ServerProcess, together

_POLL_SECONDS: Final = 0.02
EVENTS: Final = "events"
_PROGRAMS: Final = Path(__file__).parent / "programs"


class MemberProcess(AsyncResource):
    """A process that is a member of a consumer group. It is not bound to an event loop."""

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
        """The state of the process: `running`, `paused` or `down`."""
        return self._process.state if self._process is not None else "down"

    @property
    def process(self) -> ServerProcess:
        """The current process. Its `log` has the output. Raise ServerError if it is not started."""
        if self._process is None:
            raise ServerError(f"{self!r} has not been started")
        return self._process

    @abstractmethod
    async def _command(self, folder: Path, properties: Path) -> list[str]:
        """Return the command that starts the process.

        `folder` is the folder of the process, and `properties` the file with its configuration.
        """

    @abstractmethod
    def _is_ready(self) -> bool:
        """Return whether the member's first rebalance is complete."""

    async def start(self) -> None:
        """Start the process, and wait until its first rebalance is complete."""
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
        """Stop the process with SIGTERM. It commits and releases its partitions."""
        if self._process is not None:
            await self._process.stop()
        self._forget()

    async def kill(self) -> None:
        """Kill the process with SIGKILL. Its partitions are free after its session timeout."""
        if self._process is not None:
            await self._process.kill()
        self._forget()

    def _forget(self) -> None:
        self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def freeze(self) -> None:
        """Freeze the process with SIGSTOP. After the session timeout, others get its partitions."""
        self.process.pause()

    def thaw(self) -> None:
        """Resume the frozen process with SIGCONT."""
        self.process.resume()

    async def until(self, condition: Callable[[Self], bool], timeout: float = 60.0) -> None:
        """Wait until `condition`, called with this member, returns True.

        Raise ServerError if the process ends before, or after `timeout` seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition(self):
                    if self.state == "down":
                        break
                    await asyncio.sleep(_POLL_SECONDS)
        if not condition(self):
            log = self._process.log_tail() if self._process is not None else ""
            raise ServerError(f"{self!r} did not meet the condition within {timeout:.0f} s\n{log}")

    async def _open(self, stack: AsyncExitStack) -> None:
        await self.start()
        stack.push_async_callback(self.kill)


class MemberLog(ABC):
    """A reader of the events that a member's program writes to a file.

    A subclass derives the member's state, such as its partitions, from the events.
    """

    def __init__(self) -> None:
        self.ready = False
        self._position = 0

    def reset(self) -> None:
        """Clear the member's state. Call this after the program has ended."""
        self.ready, self._position = False, 0

    def read(self, events: Path) -> None:
        """Read the new lines of the file `events`, except an incomplete last line."""
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
        """Update the state by an event of the kind `kind` with these fields."""


def of_record(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event about a record, with its key and value decoded to bytes."""
    texts = {name: event[name] for name in ("key", "value")}
    return {**event, **{n: None if t is None else bytes.fromhex(t) for n, t in texts.items()}}


class TellingMember(MemberProcess):
    """A member whose Java program writes its events to a file."""

    _events: MemberLog

    async def _program(
        self, name: str, jars: Sequence[Path], progress: maven.Progress, *arguments: object
    ) -> list[str]:
        """Return the command that runs a Java program. Compile it if it is not in the cache."""
        java, source = find_java(), _PROGRAMS / f"{name}.java"
        classes = await compiled(source, java, jars, progress)
        return java_command(java, [classes, *jars], name, *map(str, arguments), heap="128m")

    def _is_ready(self) -> bool:
        self._look()
        return self._events.ready

    def _look(self) -> None:
        if self._folder is not None:
            self._events.read(self._folder / EVENTS)

    def _forget(self) -> None:
        self._look()
        self._events.reset()
        super()._forget()


M = TypeVar("M", bound=MemberProcess)


class MemberProcesses(AsyncResource):
    """A group of member processes, which are killed at the end of the `async with` block."""

    def __init__(self) -> None:
        self._members: list[MemberProcess] = []

    async def _started(self, member: M) -> M:
        self._members.append(member)
        await member.start()
        return member

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._kill)

    async def _kill(self) -> None:
        await together(*(member.kill() for member in self._members))
        self._members.clear()

"""One server, to be steered by itself, and several, started and ended together."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from asyncconsumer.testing.servers.ports import Ports
from asyncconsumer.testing.servers.process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path


class Node(ABC):
    """`stop`, `kill`, `pause`, `resume` it, and `start` it again on the same port."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process

    @abstractmethod
    async def is_serving(self) -> bool:
        """Whether it answers clients as a member of its cluster."""

    async def start(self) -> None:
        """Start it; ready once it serves clients."""
        await self.process.start(self.is_serving, timeout=90)

    async def stop(self) -> None:
        """End it in good order: a broker hands its partitions over first."""
        await self.process.stop()

    async def kill(self) -> None:
        """SIGKILL it."""
        await self.process.kill()

    def pause(self) -> None:
        """SIGSTOP it."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT it."""
        self.process.resume()

    async def restart(self) -> None:
        """Stop it and start it again on the same port."""
        await self.stop()
        await self.start()


class Servers(ABC):
    """Nodes with a folder and ports of their own, from `start` to `stop` or as an `async with`."""

    def __init__(self) -> None:
        self._ports = Ports()
        self._folder: Path | None = None

    @abstractmethod
    async def start(self) -> None:
        """Start every node and wait until they serve; on failure nothing is left."""

    @abstractmethod
    def _members(self) -> Sequence[Node]:
        """The nodes there are now."""

    @abstractmethod
    def _forget(self) -> None:
        """Let go of the nodes: they have ended."""

    async def stop(self) -> None:
        """End every node, remove their folder, give the ports back."""
        for node in self._members():
            await node.kill()  # nothing of it is kept, so there is nothing to end in good order
        self._forget()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._ports.close()

    def process_ids(self) -> set[int]:
        """The child processes that it consists of now."""
        guards = (node.process.guard_pid for node in self._members())
        return {pid for pid in guards if pid is not None}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

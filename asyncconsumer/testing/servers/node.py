"""A server process, and a group of servers that start and stop together."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.testing.servers.ports import Ports
from asyncconsumer.testing.servers.process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path


class Node(ABC):
    """A server that can be stopped, killed, paused, resumed and restarted on the same port."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process

    @abstractmethod
    async def is_serving(self) -> bool:
        """Return whether the server answers clients as a member of its cluster."""

    async def start(self) -> None:
        """Start the server and wait until it serves clients."""
        await self.process.start(self.is_serving, timeout=90)

    async def stop(self) -> None:
        """Stop the server with SIGTERM. A broker first moves its leaderships to other brokers."""
        await self.process.stop()

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        await self.process.kill()

    def pause(self) -> None:
        """Pause the server with SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """Resume the server with SIGCONT."""
        self.process.resume()

    async def restart(self) -> None:
        """Stop the server and start it again on the same port."""
        await self.stop()
        await self.start()


class Servers(AsyncResource):
    """A group of servers with a common folder and reserved ports.

    The servers run from `start` to `stop`, or in the `async with` block.
    """

    def __init__(self) -> None:
        self._ports = Ports()
        self._folder: Path | None = None

    @abstractmethod
    async def start(self) -> None:
        """Start all servers, and wait until they serve clients. A failure stops all of them."""

    @abstractmethod
    def _members(self) -> Sequence[Node]:
        """Return the servers that were created and not stopped yet."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop the references to the servers. `stop` calls this after it has killed them."""

    async def stop(self) -> None:
        """Stop all servers, remove their folder and release their ports."""
        for node in self._members():
            await node.kill()  # the data is removed, so a clean shutdown is not needed
        self._forget()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._ports.close()

    def process_ids(self) -> set[int]:
        """Return the process ids of the guards, which are this process's children."""
        guards = (node.process.guard_pid for node in self._members())
        return {pid for pid in guards if pid is not None}

    async def _open(self, stack: AsyncExitStack) -> None:
        await self.start()
        stack.push_async_callback(self.stop)

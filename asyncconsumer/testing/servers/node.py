"""One server among several, to be steered by itself."""

from abc import ABC, abstractmethod

from asyncconsumer.testing.servers.process import ServerProcess


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

"""A process that is a member of a group as Kafka 1.1 and older have it, on ZooKeeper."""

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.errors import ServerError
from asyncconsumer.testing.servers.java import LOGGING
from asyncconsumer.testing.servers.process import ServerProcess

CLASSIC_KAFKA: Final = "1.1.1"
"""The last release line that has the classic consumer."""

_POLL_SECONDS: Final = 0.02

# not Kafka's: a test does not wait a minute for a commit, and a member that joins may have to
# outwait the session of one that died (6 s) before its tries are over
_DEFAULTS: Final = {
    "auto.commit.interval.ms": "200",
    "rebalance.backoff.ms": "300",
    "rebalance.max.retries": "40",
}


async def fetch(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """The jars of the classic consumer, fetched unless the cache has them."""
    coordinates = (LOGGING, f"org.apache.kafka:kafka_2.12:{CLASSIC_KAFKA}")
    return await maven.class_path(f"Kafka {CLASSIC_KAFKA}", coordinates, progress)


class ClassicMember(ABC):
    """A process that is a member of a group."""

    def __init__(
        self, zookeeper: str, group: str, name: str, properties: Mapping[str, str]
    ) -> None:
        self.group = group
        self.name = name or f"scala-{secrets.token_hex(3)}"
        self._properties = {
            **_DEFAULTS,
            "zookeeper.connect": zookeeper,
            "group.id": group,
            "consumer.id": self.name,
            **properties,
        }
        self._process: ServerProcess | None = None
        self._folder: Path | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.consumer_id}, {self.state}>"

    @property
    def consumer_id(self) -> str:
        """Its name in ZooKeeper, below `/consumers/GROUP/ids`."""
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
        self._folder = folder = Path(tempfile.mkdtemp(prefix="asyncconsumer-scala-"))
        try:
            properties = folder / "consumer.properties"
            properties.write_text(
                "".join(f"{name}={value}\n" for name, value in self._properties.items())
            )
            command = await self._command(folder, properties)
            self._process = ServerProcess(f"consumer {self.consumer_id}", command, folder, folder)
            await self._process.start(self._ready)
        except BaseException:
            await self.kill()
            raise

    async def _ready(self) -> bool:
        return self._is_ready()

    async def stop(self) -> None:
        """End it in good order (SIGTERM): it commits and frees what it owns."""
        if self._process is not None:
            await self._process.stop()
        self._forget()

    async def kill(self) -> None:
        """SIGKILL it: what it owns is free only when its ZooKeeper session expires."""
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

"""The classic consumer of Kafka 1.1 and older, which lives on ZooKeeper: the peer to agree with.

async with ScalaConsumer(zookeeper.connect, "billing", {"orders": 2}) as member:
    await member.until_received(100)
    member.owned, member.records

Runs on a broker in ZooKeeper mode, up to Kafka 3.9. Belongs to no event loop.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.assign import part_of
from asyncconsumer.model import TopicPartition
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.classic import ClassicMember, fetch
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.java import find_java, java_command
from asyncconsumer.testing.servers.process import together
from asyncconsumer.testing.servers.scala_console import ScalaConsole

PATTERNS: Final = ("static", "white_list", "black_list")

_PROGRAM: Final = Path(__file__).parent / "programs" / "ClassicConsumer.java"
_EVENTS: Final = "events"
_FROM_THE_START: Final = {"auto.offset.reset": "smallest"}

Member = TypeVar("Member", bound=ClassicMember)


class ScalaRecord(NamedTuple):
    """A record as one of the consumer's streams gave it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    stream: int
    at_ms: int  # when, since the epoch


class _Told:
    """What a member's program has told of itself, and how far that has been read."""

    def __init__(self) -> None:
        self.records: list[ScalaRecord] = []
        self.releases: list[set[TopicPartition]] = []
        self.owners: dict[TopicPartition, str] = {}
        self.ready = False
        self._position = 0

    def anew(self) -> None:
        """The program is about to start again, or it has ended."""
        self.owners, self.ready, self._position = {}, False, 0

    def read(self, events: Path) -> None:
        """Take in what was written since; the last line may still be on its way."""
        if not events.exists():
            return
        with events.open("rb") as file:
            file.seek(self._position)
            lines = [line for line in file if line.endswith(b"\n")]
        self._position += sum(map(len, lines))
        for line in lines:
            self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        match event.pop("event"):
            case "record":
                for name in ("key", "value"):
                    event[name] = None if event[name] is None else bytes.fromhex(event[name])
                self.records.append(ScalaRecord(**event))
            case "releasing":
                owned = event["partitions"].items()
                self.releases.append({TopicPartition(t, p) for t, ps in owned for p in ps})
                self.owners = {}
            case "starting":
                self.owners = {
                    TopicPartition(topic, int(partition)): thread
                    for topic, threads in event["owners"].items()
                    for partition, thread in threads.items()
                }
            case "ready":
                self.ready = True


class ScalaConsumer(ClassicMember):
    """A member that reads `streams`: topics, or one filter, and how many streams of each.

    `pattern` says which: `static`, `white_list` or `black_list`. `properties` are the classic
    consumer's; `name` is its `consumer.id`. What `owned`, `owners` and `releases` say is what the
    consumer told its rebalance listener.
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        streams: Mapping[str, int],
        *,
        pattern: str = "static",
        name: str = "",
        properties: Mapping[str, str] | None = None,
        progress: maven.Progress = maven.no_progress,
    ) -> None:
        super().__init__(zookeeper, group, name, {**_FROM_THE_START, **(properties or {})})
        if pattern not in PATTERNS:
            raise ConfigError(f"pattern must be one of {', '.join(PATTERNS)}, got {pattern!r}")
        if not streams or (pattern != "static" and len(streams) > 1):
            raise ConfigError(f"streams has {len(streams)} entries: give topics, or one filter")
        self._subscription = [pattern, *(word for pair in streams.items() for word in pair)]
        self._progress = progress
        self._told = _Told()

    @property
    def records(self) -> Sequence[ScalaRecord]:
        """What its streams have given out since it was first started."""
        self._look()
        return self._told.records

    @property
    def owned(self) -> dict[TopicPartition, str]:
        """Its own partitions and the threads that read them; none while it rebalances."""
        return part_of(self.consumer_id, self.owners)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """Its whole group's partitions; with range, those of its own topics only."""
        self._look()
        return self._told.owners

    @property
    def releases(self) -> Sequence[set[TopicPartition]]:
        """What it let go of in each rebalance since it was first started."""
        self._look()
        return self._told.releases

    async def until_received(self, count: int, timeout: float = 60.0) -> None:
        """Return once its streams have given out so many records."""
        await self.until(lambda member: len(member.records) >= count, timeout)

    async def until_owning(
        self, partitions: Collection[TopicPartition], timeout: float = 60.0
    ) -> None:
        """Return once it owns these partitions and no others."""
        await self.until(lambda member: member.owned.keys() == set(partitions), timeout)

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        java = find_java()
        jars = await fetch(self._progress)
        classes = await compiled(_PROGRAM, java, jars, self._progress)
        arguments = map(str, (properties, folder / _EVENTS, *self._subscription))
        return java_command(java, [classes, *jars], _PROGRAM.stem, *arguments, heap="128m")

    def _is_ready(self) -> bool:
        self._look()
        return self._told.ready

    def _look(self) -> None:
        if self._folder is not None:
            self._told.read(self._folder / _EVENTS)

    def _forget(self) -> None:
        self._look()
        self._told.anew()
        super()._forget()


class ScalaConsumers:
    """Members of groups on one ZooKeeper, ended together at the end of an `async with`."""

    def __init__(self, zookeeper: str, *, progress: maven.Progress = maven.no_progress) -> None:
        self._zookeeper = zookeeper
        self._progress = progress
        self._members: list[ClassicMember] = []

    async def start(
        self,
        group: str,
        streams: Mapping[str, int],
        *,
        pattern: str = "static",
        name: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> ScalaConsumer:
        """A started `ScalaConsumer`."""
        member = ScalaConsumer(
            self._zookeeper,
            group,
            streams,
            pattern=pattern,
            name=name,
            properties=properties,
            progress=self._progress,
        )
        return await self._started(member)

    async def start_console(
        self,
        group: str,
        white_list: str,
        *,
        name: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> ScalaConsole:
        """A started `ScalaConsole`."""
        member = ScalaConsole(
            self._zookeeper,
            group,
            white_list,
            name=name,
            properties=properties,
            progress=self._progress,
        )
        return await self._started(member)

    async def _started(self, member: Member) -> Member:
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

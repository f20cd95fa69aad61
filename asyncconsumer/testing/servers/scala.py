"""The classic consumer of Kafka 1.1 and older, which lives on ZooKeeper: the peer to agree with.

async with ScalaConsumer(zookeeper.connect, "billing", {"orders": 2}) as member:
    await member.until_received(100)
    member.owned, member.records

Runs on a broker in ZooKeeper mode, up to Kafka 3.9. Belongs to no event loop.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.assignors import part_of
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.classic import ClassicMember, fetch
from asyncconsumer.testing.servers.member import (
    EVENTS,
    MemberProcesses,
    TellingMember,
    Told,
    of_record,
)
from asyncconsumer.testing.servers.scala_console import ScalaConsole
from asyncconsumer.types import TopicPartition

PATTERNS: Final = ("static", "white_list", "black_list")

_FROM_THE_START: Final = {"auto.offset.reset": "smallest"}


class ScalaRecord(NamedTuple):
    """A record as one of the consumer's streams gave it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    stream: int
    at_ms: int  # when, since the epoch


class _Told(Told):
    """What a member has told of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[ScalaRecord] = []
        self.releases: list[set[TopicPartition]] = []
        self.owners: dict[TopicPartition, str] = {}

    def anew(self) -> None:
        """Nothing is owned by a program that does not run."""
        super().anew()
        self.owners = {}

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "record":
                self.records.append(ScalaRecord(**of_record(event)))
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


class ScalaConsumer(TellingMember, ClassicMember):
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
        self._told: _Told = _Told()

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
        jars, progress = await fetch(self._progress), self._progress
        arguments = (properties, folder / EVENTS, *self._subscription)
        return await self._program("ClassicConsumer", jars, progress, *arguments)


class ScalaConsumers(MemberProcesses):
    """Members of groups on one ZooKeeper, ended together at the end of an `async with`."""

    def __init__(self, zookeeper: str, *, progress: maven.Progress = maven.no_progress) -> None:
        super().__init__()
        self._zookeeper = zookeeper
        self._progress = progress

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

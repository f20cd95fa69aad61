"""The ZooKeeper consumer of Kafka 1.1 and older, as a reference for compatibility tests.

async with ScalaConsumer(zookeeper.connect, "billing", {"orders": 2}) as member:
    await member.until_received(100)
    member.owned, member.records

It needs a broker in ZooKeeper mode, up to Kafka 3.9, and is not bound to an event loop.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.assignors import partitions_of_consumer
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.classic import ClassicMember, fetch
from asyncconsumer.testing.servers.member import (
    EVENTS,
    MemberLog,
    MemberProcesses,
    TellingMember,
    of_record,
)
from asyncconsumer.testing.servers.scala_console import ScalaConsole
from asyncconsumer.types import TopicPartition

PATTERNS: Final = ("static", "white_list", "black_list")

_FROM_THE_START: Final = {"auto.offset.reset": "smallest"}


class ScalaRecord(NamedTuple):
    """A record that a stream of the Scala consumer has returned."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    stream: int
    at_ms: int  # milliseconds since the epoch


class _ScalaMemberLog(MemberLog):
    """A reader of the events that a Scala consumer has written to its file of events."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[ScalaRecord] = []
        self.releases: list[set[TopicPartition]] = []
        self.owners: dict[TopicPartition, str] = {}

    def reset(self) -> None:
        """Clear the owned partitions. Call this after the Scala program has ended."""
        super().reset()
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
    """A Scala consumer, which reads topics in one or more message streams.

    `streams` maps topics to their number of streams. With the `pattern` `white_list` or
    `black_list`, in place of `static`, it has one regular expression instead of topics.
    `properties` are those of the classic consumer. `name` is its `consumer.id`. `owned`, `owners`
    and `releases` come from the calls of the consumer's rebalance listener.
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
            raise ConfigError(f"`streams` has {len(streams)} entries: give topics, or one filter")
        self._subscription = [pattern, *(word for pair in streams.items() for word in pair)]
        self._progress = progress
        self._events: _ScalaMemberLog = _ScalaMemberLog()

    @property
    def records(self) -> Sequence[ScalaRecord]:
        """The records that the member's streams have returned since its first start."""
        self._look()
        return self._events.records

    @property
    def owned(self) -> dict[TopicPartition, str]:
        """The owned partitions, each with its consumer thread. Empty during a rebalance."""
        return partitions_of_consumer(self.consumer_id, self.owners)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The consumer thread of each partition in the group.

        With the range assignor, the mapping has only the topics of this member.
        """
        self._look()
        return self._events.owners

    @property
    def releases(self) -> Sequence[set[TopicPartition]]:
        """The partitions released in each rebalance since the first start."""
        self._look()
        return self._events.releases

    async def until_received(self, count: int, timeout: float = 60.0) -> None:
        """Wait until the member's streams have returned `count` records."""
        await self.until(lambda member: len(member.records) >= count, timeout)

    async def until_owning(
        self, partitions: Collection[TopicPartition], timeout: float = 60.0
    ) -> None:
        """Wait until the member owns exactly these partitions."""
        await self.until(lambda member: member.owned.keys() == set(partitions), timeout)

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        jars, progress = await fetch(self._progress), self._progress
        arguments = (properties, folder / EVENTS, *self._subscription)
        return await self._program("ClassicConsumer", jars, progress, *arguments)


class ScalaConsumers(MemberProcesses):
    """The Scala consumers on one ZooKeeper. The end of the `async with` block stops them."""

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
        """Return a started `ScalaConsumer`."""
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
        """Return a started `ScalaConsole`."""
        member = ScalaConsole(
            self._zookeeper,
            group,
            white_list,
            name=name,
            properties=properties,
            progress=self._progress,
        )
        return await self._started(member)

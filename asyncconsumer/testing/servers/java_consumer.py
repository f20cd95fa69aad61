"""The consumer of the Java client, a member of a group of Kafka's own: the peer to agree with.

async with JavaConsumer(kafka.bootstrap_servers, "billing", ["orders"]) as member:
    await member.until_received(100)
    member.owned, member.records, member.changes

Belongs to no event loop.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.kafka import Kafka
from asyncconsumer.testing.servers.member import (
    EVENTS,
    MemberProcesses,
    TellingMember,
    Told,
    of_record,
)
from asyncconsumer.types import TopicPartition

# not Kafka's: a test does not wait 45 s for the session of a member that died, which is as short
# as brokers allow, nor five minutes for a new topic to be seen
_DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": "500",
}
_CLASSIC_DEFAULTS: Final = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


class JavaRecord(NamedTuple):
    """A record as the consumer gave it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int  # when, since the epoch


class JavaChange(NamedTuple):
    """What the consumer told its rebalance listener: `assigned`, `revoked` or `lost`."""

    kind: str
    partitions: frozenset[TopicPartition]


class _Told(Told):
    """What a member has told of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[JavaRecord] = []
        self.changes: list[JavaChange] = []
        self.failed_commits: list[str] = []
        self.owned: set[TopicPartition] = set()

    def anew(self) -> None:
        """Nothing is owned by a program that does not run."""
        super().anew()
        self.owned = set()

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "record":
                self.records.append(JavaRecord(**of_record(event)))
            case "assigned" | "revoked" | "lost":
                numbers = event["partitions"].items()
                partitions = frozenset(TopicPartition(t, p) for t, ps in numbers for p in ps)
                self.changes.append(JavaChange(kind, partitions))
                self.owned = (
                    self.owned | partitions if kind == "assigned" else self.owned - partitions
                )
            case "commit failed":
                self.failed_commits.append(event["error"])
            case "ready":
                self.ready = True


class JavaConsumer(TellingMember):
    """A member that reads topics, or those that match a pattern (one of Java's).

    `properties` are the consumer's own, such as `partition.assignment.strategy`,
    `group.protocol` (`classic` or `consumer`) or `group.instance.id`; `name` is its `client.id`.
    It commits what it has given out, after each poll or every `commit_ms` milliseconds.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        topics: Collection[str] = (),
        *,
        pattern: str = "",
        name: str = "",
        properties: Mapping[str, str] | None = None,
        commit_ms: int = 0,
        progress: maven.Progress = maven.no_progress,
    ) -> None:
        if bool(topics) == bool(pattern):
            raise ConfigError("a consumer subscribes to topics or to a pattern: give one of them")
        if isinstance(topics, str):
            raise ConfigError(f"topics must be a list of names, got the text {topics!r}")
        name, given = name or f"java-{secrets.token_hex(3)}", properties or {}
        # in the new protocol sessions are the broker's affair, and a client that has one is refused
        classic = given.get("group.protocol", "classic").lower() == "classic"
        defaults = {**_DEFAULTS, **(_CLASSIC_DEFAULTS if classic else {})}
        known = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": name}
        super().__init__(group, name, {**defaults, **known, **given})
        subscription = ("pattern", pattern) if pattern else ("topics", *topics)
        self._arguments = (commit_ms, *subscription)
        self._progress = progress
        self._told: _Told = _Told()

    @property
    def records(self) -> Sequence[JavaRecord]:
        """What it has given out since it was first started."""
        self._look()
        return self._told.records

    @property
    def owned(self) -> set[TopicPartition]:
        """Its partitions, by what it told its listener; what it is losing, it still has."""
        self._look()
        return self._told.owned

    @property
    def changes(self) -> Sequence[JavaChange]:
        """What its listener was told since it was first started."""
        self._look()
        return self._told.changes

    @property
    def failed_commits(self) -> Sequence[str]:
        """The errors of commits that failed, in Java's words."""
        self._look()
        return self._told.failed_commits

    async def until_received(self, count: int, timeout: float = 60.0) -> None:
        """Return once it has given out so many records."""
        await self.until(lambda member: len(member.records) >= count, timeout)

    async def until_owning(
        self, partitions: Collection[TopicPartition], timeout: float = 60.0
    ) -> None:
        """Return once it owns these partitions and no others."""
        await self.until(lambda member: member.owned == set(partitions), timeout)

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        # those of the broker, which has the client's among them, and a writer of JSON
        jars = await Kafka().fetch(self._progress)
        arguments = (properties, folder / EVENTS, *self._arguments)
        return await self._program("JavaConsumer", jars, self._progress, *arguments)


class JavaConsumers(MemberProcesses):
    """Members of groups on one cluster, ended together at the end of an `async with`."""

    def __init__(
        self, bootstrap_servers: str, *, progress: maven.Progress = maven.no_progress
    ) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers
        self._progress = progress

    async def start(
        self,
        group: str,
        topics: Collection[str] = (),
        *,
        pattern: str = "",
        name: str = "",
        properties: Mapping[str, str] | None = None,
        commit_ms: int = 0,
    ) -> JavaConsumer:
        """A started `JavaConsumer`."""
        member = JavaConsumer(
            self._bootstrap_servers,
            group,
            topics,
            pattern=pattern,
            name=name,
            properties=properties,
            commit_ms=commit_ms,
            progress=self._progress,
        )
        return await self._started(member)

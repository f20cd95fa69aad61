"""The consumer of the Java client, as a reference for compatibility tests.

async with JavaConsumer(kafka.bootstrap_servers, "billing", ["orders"]) as member:
    await member.until_received(100)
    member.owned, member.records, member.changes

It is not bound to an event loop.
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
    MemberLog,
    MemberProcesses,
    TellingMember,
    of_record,
)
from asyncconsumer.types import TopicPartition

# not the defaults: a test waits neither 45 s for the session of a dead member, here the minimum
# that brokers allow, nor five minutes for a new topic
_DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": "500",
}
_CLASSIC_DEFAULTS: Final = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


class JavaRecord(NamedTuple):
    """A record that the Java consumer has returned."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int  # milliseconds since the epoch


class JavaChange(NamedTuple):
    """A call of the Java consumer's rebalance listener: `assigned`, `revoked` or `lost`."""

    kind: str
    partitions: frozenset[TopicPartition]


class _JavaMemberLog(MemberLog):
    """A reader of the events that a Java consumer has written to its file of events."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[JavaRecord] = []
        self.changes: list[JavaChange] = []
        self.failed_commits: list[str] = []
        self.owned: set[TopicPartition] = set()

    def reset(self) -> None:
        """Clear the owned partitions. Call this after the Java program has ended."""
        super().reset()
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
    """A Java consumer that reads `topics`, or all topics that match the Java `pattern`.

    `properties` are those of the consumer, such as `partition.assignment.strategy`,
    `group.protocol` (`classic` or `consumer`) or `group.instance.id`. `name` is its `client.id`.
    The consumer commits every `commit_ms` milliseconds, or after each poll if that is 0.
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
        name, overrides = name or f"java-{secrets.token_hex(3)}", properties or {}
        # in the new protocol the broker sets session timeouts and rejects those of clients
        classic = overrides.get("group.protocol", "classic").lower() == "classic"
        defaults = {**_DEFAULTS, **(_CLASSIC_DEFAULTS if classic else {})}
        known = {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": name}
        super().__init__(group, name, {**defaults, **known, **overrides})
        subscription = ("pattern", pattern) if pattern else ("topics", *topics)
        self._arguments = (commit_ms, *subscription)
        self._progress = progress
        self._events: _JavaMemberLog = _JavaMemberLog()

    @property
    def records(self) -> Sequence[JavaRecord]:
        """The records that the member has returned since its first start."""
        self._look()
        return self._events.records

    @property
    def owned(self) -> set[TopicPartition]:
        """The owned partitions, according to the calls of the member's rebalance listener.

        A partition is owned until the listener has returned from the call about its revocation.
        """
        self._look()
        return self._events.owned

    @property
    def changes(self) -> Sequence[JavaChange]:
        """The calls of the member's rebalance listener since its first start."""
        self._look()
        return self._events.changes

    @property
    def failed_commits(self) -> Sequence[str]:
        """The Java error messages of failed commits."""
        self._look()
        return self._events.failed_commits

    async def until_received(self, count: int, timeout: float = 60.0) -> None:
        """Wait until the member has returned `count` records."""
        await self.until(lambda member: len(member.records) >= count, timeout)

    async def until_owning(
        self, partitions: Collection[TopicPartition], timeout: float = 60.0
    ) -> None:
        """Wait until the member owns exactly these partitions."""
        await self.until(lambda member: member.owned == set(partitions), timeout)

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        # those of the broker, which include the client and a JSON writer
        jars = await Kafka().fetch(self._progress)
        arguments = (properties, folder / EVENTS, *self._arguments)
        return await self._program("JavaConsumer", jars, self._progress, *arguments)


class JavaConsumers(MemberProcesses):
    """The Java consumers on one cluster. The end of the `async with` block stops them."""

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
        """Return a started `JavaConsumer`."""
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

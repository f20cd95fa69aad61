"""What a feeder reads from: a consumer, or a connector of a group that ZooKeeper coordinates."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from asyncconsumer.connector import ConsumerConnector, RebalanceListener
from asyncconsumer.consumer import Consumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.fetch.manager import Progress
from asyncconsumer.group.filters import TopicFilter
from asyncconsumer.model import TopicPartition
from asyncconsumer.streams.stream import Stream

Topics = Iterable[str] | TopicFilter
_SECONDS_BETWEEN_LOOKS: Final = 0.02
_PATIENCE_OF_A_CONNECTOR: Final = 30.0  # it waits for its listeners as long as they take


class Told(Protocol):
    """Who is told what is ours."""

    @property
    def lanes(self) -> Mapping[TopicPartition, object]:
        """What was taken up."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are ours, and are read when this is over."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are no longer read, and are ours until this is over."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These are somebody else's by now."""


class Reads(Protocol):
    """One kind of consumer as a feeder needs it."""

    commits: bool  # whether there is a place to keep offsets
    patience: float  # seconds that it waits for who is told

    @property
    def auto_commits(self) -> bool:
        """Whether it commits by itself, and should not."""

    @property
    def opened(self) -> AbstractAsyncContextManager[object] | None:
        """What is to be opened; None if it is open."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours."""

    def tell(self, told: Told) -> None:
        """Tell of all changes."""

    async def streams(self) -> Sequence[Stream]:
        """What is to be read."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there."""

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to hand out; None if that is not known."""

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """How far each partition is fetched."""

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Where the logs of what is ours end."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns what was committed."""

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """What the group has."""


class OfConsumer:
    """A consumer."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self.commits: bool = consumer.commits
        self.patience: float = consumer.config.member.listener_timeout_ms / 1000
        self.seek = consumer.seek
        self.progress = consumer.progress
        self.tell = consumer.listen
        self.commit = consumer.commit
        self.committed = consumer.committed
        self._consumer = consumer

    @property
    def auto_commits(self) -> bool:
        """Whether it commits by itself."""
        return self.commits and self._consumer.config.member.enable_auto_commit

    @property
    def opened(self) -> AbstractAsyncContextManager[object] | None:
        """What is to be opened."""
        return None if self._consumer.is_open else self._consumer

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours."""
        return self._consumer.assignment

    async def streams(self) -> Sequence[Stream]:
        """There is one for everything."""
        return [self._consumer.records]

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to hand out."""
        return self._consumer.position_now(partition)

    async def ends(self) -> Mapping[TopicPartition, int]:
        """By asking the brokers."""
        return await self._consumer.end_offsets(await self._consumer.assigned())


class OfConnector:
    """A connector, whose streams are made here, for they are made once."""

    def __init__(self, connector: ConsumerConnector, topics: Topics | None) -> None:
        if not topics:
            raise ConfigError("a feeder of a ConsumerConnector needs topics, or a Whitelist")
        if isinstance(topics, str):
            raise ConfigError(f"topics={topics!r}: give a list of them, or a Whitelist")
        self.commits = True
        self.patience = _PATIENCE_OF_A_CONNECTOR
        self.seek = connector.seek
        self.progress = connector.progress
        self.commit = connector.commit_offsets
        self.committed = connector.committed
        self.position = connector.position
        self._connector = connector
        self._topics = topics

    @property
    def auto_commits(self) -> bool:
        """Whether it commits by itself."""
        return self._connector.config.auto_commit_enable

    @property
    def opened(self) -> AbstractAsyncContextManager[object] | None:
        """What is to be opened."""
        return None if self._connector.is_open else self._connector

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours."""
        return self._connector.assignment

    def tell(self, told: Told) -> None:
        """Tell of all changes."""
        self._connector.listen(_Listener(self._connector, told))

    async def streams(self) -> Sequence[Stream]:
        """One a topic, or one for all that pass."""
        if isinstance(self._topics, TopicFilter):
            found = await self._connector.create_message_streams_by_filter(self._topics)
            return [stream.records for stream in found]
        of_topics = await self._connector.create_message_streams(dict.fromkeys(self._topics, 1))
        return [stream.records for streams in of_topics.values() for stream in streams]

    async def ends(self) -> Mapping[TopicPartition, int]:
        """As far as the fetchers were told, by now."""
        while any(far.high_watermark < 0 for far in self.progress().values()):  # noqa: ASYNC110
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return {one: far.high_watermark for one, far in self.progress().items()}


class _Listener(RebalanceListener):
    """Tells what a connector's listener hears in the words of a consumer's."""

    def __init__(self, connector: ConsumerConnector, told: Told) -> None:
        self._connector = connector
        self._told = told

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        await self._told.on_partitions_revoked(partitions)

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        new = self._connector.assignment - self._told.lanes.keys()
        await self._told.on_partitions_assigned(new)

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._told.on_partitions_lost(partitions)


def reads(consumer: Consumer[Any, Any] | ConsumerConnector, topics: Topics | None) -> Reads:
    """The one that fits."""
    if isinstance(consumer, ConsumerConnector):
        return OfConnector(consumer, topics)
    if topics is not None:
        raise ConfigError("topics are for a ConsumerConnector: a Consumer knows its own")
    return OfConsumer(consumer)

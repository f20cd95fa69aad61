"""The classic high-level consumer: streams of topics, in a group that ZooKeeper coordinates.

async with ConsumerConnector(zookeeper_connect="zk:2181", group_id="billing") as connector:
    streams = await connector.create_message_streams({"orders": 2}, value_decoder=json.loads)
"""

import asyncio
import logging
import socket
import uuid
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from asyncconsumer.config import ClassicConfig
from asyncconsumer.connector.listener import RebalanceListener
from asyncconsumer.connector.seeds import Seeds
from asyncconsumer.errors import ConfigError, StreamsExist
from asyncconsumer.fetch.events import Events, Stalled
from asyncconsumer.fetch.manager import FetchManager, Progress
from asyncconsumer.fetch.session import Session
from asyncconsumer.following import Following
from asyncconsumer.group.filters import Subscription, TopicFilter
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.topics import KafkaTopics, Topics, ZooKeeperTopics
from asyncconsumer.group.zookeeper import MemberConfig, ZooKeeperMembership
from asyncconsumer.model import OUTSIDER, TopicPartition
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.outside import Outside
from asyncconsumer.rebalancer import Listeners, Rebalancer
from asyncconsumer.streams.messages import Decoder, K, MessageStream, V
from asyncconsumer.streams.routes import Routes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.tasks.scope import Scope
from asyncconsumer.zk.session import ZooKeeperSession

_log: Final = logging.getLogger(__name__)
_GRACE: Final = 10.0  # seconds for the last commit and the farewell


class ConsumerConnector:
    """Kafka's ZookeeperConsumerConnector, with streams to iterate over asynchronously.

    Takes the options of `ClassicConfig`. Brokers are those that ZooKeeper names, or, of a newer
    Kafka, the ``bootstrap_servers``. Streams are made once; they end with `shutdown`, or with the
    ``async with`` block.
    """

    def __init__(
        self,
        config: ClassicConfig | None = None,
        *,
        listener: RebalanceListener | None = None,
        outside: Outside | None = None,
        **options: Any,  # noqa: ANN401 - checked by the config
    ) -> None:
        if config is not None and options:
            raise ConfigError(f"give a config or options, not both: {', '.join(sorted(options))}")
        self.config: Final = config or ClassicConfig(**options)
        self._listeners = [listener or RebalanceListener()]
        outside = self._outside = outside or Outside()
        self._zookeeper = ZooKeeperSession(
            self.config.zookeeper(), randomness=outside.randomness, opener=outside.open_zookeeper
        )
        self._scope = Scope("connector")
        self._stack = AsyncExitStack()
        self._kafka: Session  # these two from the beginning of the block on
        self._manager: FetchManager
        self._member: ZooKeeperMembership | None = None  # once there are streams
        self._following: Following | None = None  # and until the shutdown

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, listener: RebalanceListener | None = None
    ) -> Self:
        """With the classic consumer's names, e.g. ``{"zookeeper.connect": "zk:2181"}``."""
        return cls(ClassicConfig.from_properties(properties), listener=listener)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._zookeeper)
            seeds = Seeds(self._zookeeper, self.config.security_protocol)
            told = self.config.bootstrap_servers  # then ZooKeeper is not asked
            found = () if told else [str(address) for address in await seeds.first()]
            self._kafka = Session(
                self.config.connection(found),
                patience_ms=30_000,
                randomness=self._outside.randomness,
                opener=self._outside.open_broker,
            )
            await stack.enter_async_context(self._kafka)
            self._manager = FetchManager(
                self._kafka.brokers,
                self._kafka.cluster,
                self.config.fetch(),
                self.config.engine(),
                randomness=self._outside.randomness,
            )
            await stack.enter_async_context(self._manager)
            await stack.enter_async_context(self._scope)
            if not told:
                self._scope.start(seeds.follow(self._kafka.cluster), "follow brokers")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        try:
            await self.shutdown()
        finally:
            await self._stack.__aexit__(kind, error, where)

    # --- streams ---------------------------------------------------------------------------------

    async def create_message_streams(
        self,
        topics: Mapping[str, int],
        *,
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> dict[str, list[MessageStream[K, V]]]:
        """So many streams of each topic. Returns once the first share is known.

        Partitions are divided among all streams of the group; a stream too many gets none.
        """
        if not topics:
            raise ConfigError("create_message_streams needs a topic, e.g. {'orders': 2}")
        for topic, count in topics.items():
            _check_count(count, f"topic {topic!r}")
        membership = self._membership(Subscription(MappingProxyType(dict(topics))))
        streams = {topic: self._streams(membership, count) for topic, count in topics.items()}
        await self._join(membership, Routes(streams))
        return {
            topic: [self._message_stream(one, key_decoder, value_decoder) for one in of_topic]
            for topic, of_topic in streams.items()
        }

    async def create_message_streams_by_filter(
        self,
        topics: TopicFilter,
        num_streams: int = 1,
        *,
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> list[MessageStream[K, V]]:
        """So many streams of all topics that a `Whitelist` or `Blacklist` lets pass, also later."""
        _check_count(num_streams, str(topics))
        membership = self._membership(topics.subscription(num_streams))
        streams = self._streams(membership, num_streams)
        await self._join(membership, Routes(streams))
        return [self._message_stream(one, key_decoder, value_decoder) for one in streams]

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Commit what is finished, or these offsets; returns what was committed.

        Only of partitions that are ours: others are left out, for their owners would read again, or
        skip, what they have.
        """
        return {} if self._following is None else await self._following.commit(offsets)

    @property
    def consumer_id(self) -> str | None:
        """What we are called in the group; None before there are streams and after the end."""
        if self._member is None or self._following is None:
            return None
        return self._member.consumer_id

    @property
    def events(self) -> Events:
        """What was skipped, truncated, re-created, stalls, or moves again: counted, and told."""
        self._scope.check_open()
        return self._manager.events

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Partitions of ours that should move and do not, each with the reason: is it healthy?"""
        self._scope.check_open()
        return self._manager.stalled()

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """How far each partition of ours is fetched, the end of its log, and its broker."""
        self._scope.check_open()
        return self._manager.progress()

    @property
    def rebalances(self) -> int:
        """How often a share was claimed so far; what only turned out to be the same is not one."""
        return 0 if self._member is None else self._member.rebalances

    # --- for those who build on it ---------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether its block is running."""
        return self._scope.is_open

    def listen(self, listener: RebalanceListener) -> None:
        """Tell this one as well, from the next change on."""
        self._listeners.append(listener)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        there = self._following
        return frozenset() if there is None else frozenset(there.rebalancer.reading)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there; nothing that was fetched before is handed out any more."""
        if self._following is not None:
            self._following.rebalancer.seek({partition: offset})

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to be handed out; None while that is being looked up."""
        there = self._following
        return None if there is None else there.rebalancer.position(partition)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed of these."""
        there = self._following
        return {} if there is None else await there.committer.load(partitions)

    async def shutdown(self) -> None:
        """Commit, leave the group, and end all streams. Harmless when done before."""
        following, self._following = self._following, None
        if following is not None:
            await following.end()

    # --- joining ---------------------------------------------------------------------------------

    def _membership(self, subscription: Subscription) -> ZooKeeperMembership:
        self._scope.check_open()
        if self._member is not None:
            raise StreamsExist(self.config.group_id)
        config, bell = self.config, asyncio.Event()
        now_ms = self._outside.now_ms()
        who = config.consumer_id or f"{socket.gethostname()}-{now_ms}-{uuid.uuid4().hex[:8]}"
        topics: Topics = (
            KafkaTopics(self._kafka.cluster, bell, config.engine().metadata_refresh_ms)
            if config.bootstrap_servers
            else ZooKeeperTopics(self._zookeeper, bell)
        )
        self._scope.start(topics.run(), "watch topics")
        return ZooKeeperMembership(
            self._zookeeper,
            topics,
            MemberConfig(
                group_id=config.group_id,
                consumer_id=f"{config.group_id}_{who}",
                subscription=subscription,
                registered_ms=now_ms,
                strategy=config.partition_assignment_strategy,
                max_retries=config.rebalance_max_retries,
                backoff_ms=config.rebalance_backoff_ms,
                exclude_internal_topics=config.exclude_internal_topics,
            ),
            bell,
        )

    def _streams(self, membership: ZooKeeperMembership, count: int) -> list[Stream]:
        timeout = self.config.consumer_timeout_ms
        return [
            Stream(
                self._manager.channel(),
                membership,  # what is not certainly ours is not handed out
                self._outside.clock,
                timeout_ms=None if timeout < 0 else timeout,
            )
            for _ in range(count)
        ]

    def _message_stream(
        self, stream: Stream, key_decoder: Decoder[K] | None, value_decoder: Decoder[V] | None
    ) -> MessageStream[K, V]:
        return MessageStream(stream, self._read_again, key_decoder, value_decoder)

    def _read_again(self, stream: Stream) -> None:
        if self._following is not None:
            self._following.rebalancer.read_again(stream)

    async def _join(self, membership: ZooKeeperMembership, routes: Routes) -> None:
        config = self.config
        committer = Committer(self._store(membership))

        async def before_releasing(partitions: Collection[TopicPartition]) -> None:
            for listener in self._listeners:
                await listener.before_releasing_partitions(partitions)

        async def before_starting(assignment: Assignment, new: Collection[TopicPartition]) -> None:
            for listener in self._listeners:
                await listener.before_starting_fetchers(membership.consumer_id, assignment.owners)

        async def lost(partitions: Collection[TopicPartition]) -> None:
            for listener in self._listeners:
                await listener.partitions_lost(partitions)

        rebalancer = Rebalancer(
            membership,
            self._manager,
            committer,
            routes,
            auto_offset_reset=config.engine().auto_offset_reset,
            auto_commit=config.auto_commit_enable,
            listeners=Listeners(
                before_releasing=before_releasing, before_starting=before_starting, lost=lost
            ),
        )
        self._member = membership
        following = self._following = Following(
            f"group {config.group_id}", membership, committer, rebalancer
        )
        interval = config.auto_commit_interval_ms if config.auto_commit_enable else None
        following.start(self._scope, interval)
        try:
            await following.joined()
        except BaseException:
            await self.shutdown()  # nobody will ever read these streams
            self._member = None
            raise

    def _store(self, membership: ZooKeeperMembership) -> OffsetStore:
        config, loop = self.config, asyncio.get_running_loop()
        in_zookeeper = ZooKeeperOffsets(
            self._zookeeper, config.group_id, epoch=lambda: membership.epoch
        )
        if config.offsets_storage == "zookeeper":
            return in_zookeeper
        in_kafka = KafkaOffsets(
            Coordinator(config.group_id, self._kafka.brokers, self._kafka.cluster),
            patience_ms=config.commit_patience_ms,
            randomness=self._outside.randomness,
            identity=lambda: OUTSIDER if loop.time() < membership.deadline else None,
        )
        return DualOffsets(in_kafka, in_zookeeper) if config.dual_commit_enabled else in_kafka


def _check_count(count: object, of: str) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{count!r} streams of {of}: need 1 or more")

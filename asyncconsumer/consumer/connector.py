"""The classic high-level consumer: streams of topics, in a group coordinated by ZooKeeper.

async with ConsumerConnector(zookeeper_connect="zk:2181", group_id="billing") as connector:
    streams = await connector.create_message_streams({"orders": 2}, value_decoder=json.loads)
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Final, Self, Unpack

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ClassicConfig, ClassicOptions, document_options, refuse_both
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.consumer.health import Health, HealthState, health_of, status_of
from asyncconsumer.consumer.measuring import measurements_of
from asyncconsumer.consumer.monitoring import MonitoringOperations
from asyncconsumer.consumer.zookeeper_backend import ZooKeeperGroup
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError, StreamsExist, brief
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.zookeeper.filters import StreamSubscription, TopicFilter
from asyncconsumer.group.zookeeper.membership import ZooKeeperMembership
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.rebalance import Listeners, Rebalancer
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.messages import DecodeBytes, K, MessageStream, V
from asyncconsumer.streams.routes import TopicRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition
from asyncconsumer.web.measured import Measured
from asyncconsumer.web.status import Status

_log: Final = logging.getLogger(__name__)
_GRACE: Final = 10.0  # seconds for the last commit and for leaving the group


@document_options(ClassicOptions)
class ConsumerConnector(MonitoringOperations, Measured, AsyncResource):
    """A consumer like Kafka's ZookeeperConsumerConnector, with asynchronous streams.

    The broker addresses are read from ZooKeeper, unless ``bootstrap_servers`` is set. Newer Kafka
    versions, which do not register in ZooKeeper, need that option. Streams can be created once.
    They end with `shutdown` or with the ``async with`` block.
    """

    def __init__(
        self,
        config: ClassicConfig | None = None,
        *,
        listener: RebalanceListener | None = None,
        **options: Unpack[ClassicOptions],
    ) -> None:
        refuse_both(config, options)
        self.config: Final = config or ClassicConfig(**options)
        self._listener = listener or RebalanceListener()
        environment = self._outside = Environment.current()
        self._group = ZooKeeperGroup(self.config, environment)
        self._recorder = Recorder(environment.now_ms)
        self._scope = Scope("connector")
        self._kafka: KafkaClient  # set within the ``async with`` block, as is `_manager`
        self._manager: FetchManager
        self._member: ZooKeeperMembership | None = None  # set when streams are created
        self._runner: MembershipRunner | None = None  # set until `shutdown`

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, listener: RebalanceListener | None = None
    ) -> Self:
        """Return a connector for properties such as ``{"zookeeper.connect": "zk:2181"}``."""
        return cls(ClassicConfig.from_properties(properties), listener=listener)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._group)
        self._kafka = KafkaClient(
            self.config.connection(await self._group.brokers()),
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
            recorder=self._recorder,
        )
        await stack.enter_async_context(self._manager)
        await stack.enter_async_context(self._scope)
        self._group.follow_brokers(self._kafka, self._scope)

    async def _before_close(self, error: BaseException | None) -> None:
        if error is None and self._runner is not None:
            self._runner.acknowledge_at_exit()
        await self.shutdown()

    # --- streams ---------------------------------------------------------------------------------

    async def create_message_streams(
        self,
        topics: Mapping[str, int],
        *,
        key_decoder: DecodeBytes[K] | None = None,
        value_decoder: DecodeBytes[V] | None = None,
    ) -> dict[str, list[MessageStream[K, V]]]:
        """Create the given number of streams of each topic, and wait for the first assignment.

        Return the streams by topic. Partitions are divided among all streams of the group. If a
        topic has fewer partitions than streams, some streams get no partition.
        """
        if not topics:
            raise ConfigError("create_message_streams needs a topic, for example {'orders': 2}")
        for topic, count in topics.items():
            _check_count(count, f"topic {topic!r}")
        membership = self._membership(StreamSubscription(MappingProxyType(dict(topics))))
        streams = {topic: self._streams(membership, count) for topic, count in topics.items()}
        await self._join(membership, TopicRoutes(streams))
        return {
            topic: [self._message_stream(stream, key_decoder, value_decoder) for stream in of_topic]
            for topic, of_topic in streams.items()
        }

    async def create_message_streams_by_filter(
        self,
        topics: TopicFilter,
        num_streams: int = 1,
        *,
        key_decoder: DecodeBytes[K] | None = None,
        value_decoder: DecodeBytes[V] | None = None,
    ) -> list[MessageStream[K, V]]:
        """Create `num_streams` streams of all topics that a `Whitelist` or `Blacklist` accepts.

        Topics that are created later are included.
        """
        _check_count(num_streams, str(topics))
        membership = self._membership(topics.subscription(num_streams))
        streams = self._streams(membership, num_streams)
        await self._join(membership, TopicRoutes(streams))
        return [self._message_stream(stream, key_decoder, value_decoder) for stream in streams]

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Commit the acknowledged records, or the given offsets. Return the committed offsets.

        Without offsets, a call by the task that reads acknowledges the records that this task has
        in flight. Partitions that are not assigned are left out, because their owners would read
        records again or skip some.
        """
        return {} if self._runner is None else await self._runner.commit(offsets)

    @property
    def consumer_id(self) -> str | None:
        """The consumer id in the group, or None before there are streams and after `shutdown`."""
        if self._member is None or self._runner is None:
            return None
        return self._member.consumer_id

    def _fetch_manager(self) -> FetchManager:
        return self._manager

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""
        return self._recorder

    def status(self) -> Status:
        """Return health and lag as plain values, as the metrics show them."""
        health, group_id = self.health(), self.config.group_id
        if not self._scope.is_open:
            return status_of(health, {}, group_id)
        rebalancer = None if self._runner is None else self._runner.rebalancer
        measurements = measurements_of(self._manager, rebalancer, health.lag)
        return status_of(health, self.counts, group_id, measurements)

    def health(self) -> Health:
        """Return the health: the state, its reason, the lag and the last activity."""
        if not self._scope.is_open:
            return Health(state=HealthState.CLOSED, reason="the connector is not open")
        if self._member is None or self._runner is None:
            return Health(state=HealthState.IDLE, reason="there are no streams", started=True)
        if (failure := self._runner.failure) is not None:
            return Health(state=HealthState.CLOSED, reason=brief(failure))
        return health_of(self._member, self._runner.rebalancer, self._manager)

    @property
    def rebalances(self) -> int:
        """The number of changes of this member's assignment so far."""
        return 0 if self._member is None else self._member.rebalances

    async def shutdown(self) -> None:
        """Commit, leave the group, and end all streams. Repeated calls do nothing."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.end()

    # --- joining ---------------------------------------------------------------------------------

    def _membership(self, subscription: StreamSubscription) -> ZooKeeperMembership:
        self._scope.check_open()
        if self._member is not None:
            raise StreamsExist(self.config.group_id)
        return self._group.member(subscription, self._kafka, self._scope)

    def _streams(self, membership: ZooKeeperMembership, count: int) -> list[Stream]:
        timeout = self.config.consumer_timeout_ms
        return [
            Stream(
                self._manager.channel(),
                membership,  # delivers only before the deadline
                self._outside.virtual_clock(),
                None if timeout < 0 else IdleTimeout(timeout),
            )
            for _ in range(count)
        ]

    def _message_stream(
        self,
        stream: Stream,
        key_decoder: DecodeBytes[K] | None,
        value_decoder: DecodeBytes[V] | None,
    ) -> MessageStream[K, V]:
        return MessageStream(stream, self._read_again, key_decoder, value_decoder)

    def _read_again(self, stream: Stream) -> None:
        if self._runner is not None:
            self._runner.rebalancer.read_again(stream)

    async def _join(self, membership: ZooKeeperMembership, routes: TopicRoutes) -> None:
        config, listener = self.config, self._listener
        store = self._group.offsets(membership, self._kafka)
        manager = self._manager
        committer = Committer(store, manager.events.counts, manager.recorder)

        async def before_starting(assignment: Assignment, new: Collection[TopicPartition]) -> None:
            consumer_id = membership.consumer_id
            await listener.before_starting_fetchers(consumer_id, assignment.owners)

        rebalancer = Rebalancer(
            membership,
            self._manager,
            committer,
            routes,
            auto_offset_reset=config.engine().auto_offset_reset,
            auto_commit=config.auto_commit_enable,
            listeners=Listeners(
                before_releasing=listener.before_releasing_partitions,
                before_starting=before_starting,
                lost=listener.partitions_lost,
            ),
        )
        self._member = membership
        runner = self._runner = MembershipRunner(
            f"group {config.group_id}", membership, committer, rebalancer
        )
        interval = config.auto_commit_interval_ms if config.auto_commit_enable else None
        runner.start(self._scope, interval)
        try:
            await runner.joined()
        except BaseException:
            await self.shutdown()  # the caller never gets these streams
            self._member = None
            raise


def _check_count(count: object, of: str) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"the number of streams of {of} must be 1 or more, got {count!r}")

"""The parts of a consumer for a ZooKeeper group: session, brokers, members and offset store."""

import asyncio
import socket
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.config import ClassicConfig
from asyncconsumer.consumer.zookeeper_brokers import ZooKeeperBrokers
from asyncconsumer.environment import Environment
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.membership import ZooKeeperMemberConfig, ZooKeeperMembership
from asyncconsumer.group.zookeeper.topic_source import KafkaTopics, TopicSource, ZooKeeperTopics
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.types import NO_MEMBER
from asyncconsumer.zookeeper.session import ZooKeeperSession


class ZooKeeperGroup(AsyncResource):
    """The connection of one consumer to a ZooKeeper group, within an ``async with`` block.

    It makes the member and the offset store, and reads the addresses of brokers.
    """

    def __init__(self, config: ClassicConfig, environment: Environment) -> None:
        self._config = config
        self._outside = environment
        self.session = ZooKeeperSession(
            config.zookeeper(),
            randomness=environment.randomness,
            opener=environment.open_zookeeper,
            suspensions=Suspensions(environment.clock_offsets),
        )
        self._seeds = ZooKeeperBrokers(self.session, config.security_protocol)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.session)

    async def brokers(self) -> Sequence[str]:
        """Return the broker addresses in ZooKeeper, or none if `bootstrap_servers` is set."""
        if self._config.bootstrap_servers:
            return ()
        return [str(address) for address in await self._seeds.first()]

    def follow_brokers(self, kafka: KafkaClient, scope: Scope) -> None:
        """Start a task that passes changed broker addresses to the Kafka client."""
        if not self._config.bootstrap_servers:
            scope.start(self._seeds.follow(kafka.cluster), "follow brokers")

    def member(
        self, subscription: StreamSubscription, kafka: KafkaClient, scope: Scope
    ) -> ZooKeeperMembership:
        """Return a new member of the group. Start the watch of its topics in `scope`."""
        config, wakeup = self._config, asyncio.Event()
        now_ms = self._outside.now_ms()
        consumer_id = (
            config.consumer_id or f"{socket.gethostname()}-{now_ms}-{uuid.uuid4().hex[:8]}"
        )
        topics: TopicSource = (
            KafkaTopics(kafka.cluster, wakeup, config.engine().metadata_refresh_ms)
            if config.bootstrap_servers
            else ZooKeeperTopics(self.session, wakeup)
        )
        scope.start(topics.run(), "watch topics")
        return ZooKeeperMembership(
            self.session,
            topics,
            ZooKeeperMemberConfig(
                group_id=config.group_id,
                consumer_id=f"{config.group_id}_{consumer_id}",
                subscription=subscription,
                registered_ms=now_ms,
                strategy=config.partition_assignment_strategy,
                max_retries=config.rebalance_max_retries,
                backoff_ms=config.rebalance_backoff_ms,
                exclude_internal_topics=config.exclude_internal_topics,
            ),
            wakeup,
        )

    def offsets(self, membership: ZooKeeperMembership, kafka: KafkaClient) -> OffsetStore:
        """Return the offset store of the group that the options select."""
        config, loop = self._config, asyncio.get_running_loop()
        in_zookeeper = ZooKeeperOffsets(
            self.session, config.group_id, epoch=lambda: membership.epoch
        )
        if config.offsets_storage == "zookeeper":
            return in_zookeeper
        in_kafka = KafkaOffsets(
            Coordinator(config.group_id, kafka.brokers, kafka.cluster),
            patience_ms=config.commit_patience_ms,
            randomness=self._outside.randomness,
            identity=lambda: NO_MEMBER if loop.time() < membership.deadline else None,
        )
        return DualOffsets(in_kafka, in_zookeeper) if config.dual_commit_enabled else in_kafka

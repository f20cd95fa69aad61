"""The creation of the membership that the options and the subscription require."""

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Final, Protocol, cast

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.config import MemberConfig, one_of
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.classic.config import ClassicGroupConfig
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.fallback import FallbackMembership
from asyncconsumer.group.kip848.config import ConsumerGroupConfig
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.subscription import Subscription, TopicSubscription
from asyncconsumer.group.zookeeper import filters
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.rebalance.runner import LeavableMembership
from asyncconsumer.types import Address, MemberIdentity

_ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class GroupMember(LeavableMembership, AbstractAsyncContextManager["GroupMember", None], Protocol):
    """The interface of a member of a group that Kafka coordinates."""

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and generation or epoch for commits, or None outside of the group."""

    @property
    def awaiting_assignment(self) -> bool:
        """Whether this member waits for an assignment."""

    @property
    def is_current(self) -> bool:
        """Whether the assignment was made for the current subscription."""

    @property
    def settles_after(self) -> float:
        """The seconds for which an empty assignment must last until it counts as final.

        Before that, partitions may follow when other members have revoked them.
        """

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics. For a pattern, they are the known topics that match."""

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The coordinator's address and a heartbeat request for the watchdog's thread, or None.

        It is None while this member has no session with the coordinator.
        """

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Note that the coordinator responded to a heartbeat without an error.

        A thread sent the heartbeat at the loop time `sent_at`, because the event loop was blocked.
        """

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription of this member."""


def assignors(config: MemberConfig) -> list[Assignor]:
    """Return the assignors of `partition_assignment_strategy`, which has names or objects."""
    if not config.strategies:
        raise ConfigError(
            "`partition_assignment_strategy` is empty. Name at least one of "
            f"{', '.join(_ASSIGNORS)}"
        )
    return [_assignor(strategy) for strategy in config.strategies]


def _assignor(strategy: object) -> Assignor:
    if isinstance(strategy, str):
        one_of("partition_assignment_strategy", strategy, tuple(_ASSIGNORS))
        return _ASSIGNORS[strategy]()
    name, assign = getattr(strategy, "name", None), getattr(strategy, "assign", None)
    if not isinstance(name, str) or not callable(assign):
        raise ConfigError(
            f"`partition_assignment_strategy` has {strategy!r}. Name one of "
            f"{', '.join(_ASSIGNORS)}, or pass a subclass of asyncconsumer.group.assignors.Assignor"
        )
    return cast("Assignor", strategy() if isinstance(strategy, type) else strategy)


def in_zookeeper(subscription: Subscription) -> filters.StreamSubscription:
    """Return the subscription in the form of ZooKeeper groups, with one stream per topic."""
    if isinstance(subscription, TopicSubscription):
        return filters.StreamSubscription(dict.fromkeys(sorted(subscription.names), 1))
    return filters.Whitelist(subscription.text).subscription(1)


def member(
    config: MemberConfig,
    subscription: Subscription,
    coordinator: Coordinator,
    cluster: Cluster,
    *,
    client_rack: str,
    metadata_refresh_ms: int,
    randomness: Random,
    suspensions: Suspensions,
) -> GroupMember:
    """Return a new member for the group protocol that the options select."""

    def classic(subscription: Subscription) -> ClassicMembership:
        return ClassicMembership(
            coordinator,
            cluster,
            ClassicGroupConfig(
                group_id=coordinator.group_id,
                group_instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                client_rack=client_rack,
                exclude_internal_topics=config.exclude_internal_topics,
                metadata_refresh_ms=metadata_refresh_ms,
            ),
            subscription,
            assignors(config),
            randomness=randomness,
            suspensions=suspensions,
        )

    if config.group_protocol == "classic":
        return classic(subscription)
    newer = ConsumerGroupMembership(
        coordinator,
        cluster,
        _newer_config(config, coordinator.group_id, client_rack),
        subscription,
        randomness=randomness,
        suspensions=suspensions,
    )
    return FallbackMembership(newer, classic, subscription)


def _newer_config(config: MemberConfig, group_id: str, client_rack: str) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(
        group_id=group_id,
        group_instance_id=config.group_instance_id,
        group_remote_assignor=config.group_remote_assignor,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        client_rack=client_rack,
        exclude_internal_topics=config.exclude_internal_topics,
        session_timeout_ms=config.session_timeout_ms,
    )

"""The options of a consumer, with the names and defaults of Kafka's own options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, Unpack

from asyncconsumer.config.choices import (
    GROUP_PROTOCOLS,
    AssignmentStrategies,
    AssignmentStrategy,
    GroupProtocol,
)
from asyncconsumer.config.classic import ClassicConfig
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.delivery import DeliveryConfig
from asyncconsumer.config.extraction import check_together, picking, without_none
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.options import ConsumerOptions
from asyncconsumer.config.security import security_options
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.config.validation import one_of, refuse_unknown, whole_number
from asyncconsumer.errors import ConfigError

OTHER_CLIENTS_ONLY: Final = {
    "max_poll_records": "Records are delivered one by one, and `max_buffered_bytes` limits the "
    "data fetched ahead",
    "default_api_timeout_ms": "Set `commit_timeout_ms` for commits and offset lookups",
    "metadata_max_age_ms": "Set `metadata_refresh_ms`",
    "retry_backoff_ms": "Set `refresh_leader_backoff_ms` for the lookup of leaders, or "
    "`reconnect_backoff_ms` for connections",
    "topic": "Pass topics as arguments: Consumer('orders', ...)",
    "topics": "Pass topics as arguments: Consumer('orders', 'payments', ...)",
    "consumer_id": "Set `client_id`, or `group_instance_id` for a static member. `consumer_id` is "
    "for `group_protocol='zookeeper'`",
}
_CONSTRUCTOR_ARGUMENTS: Final = (
    "pattern",
    "partitions",
    "listener",
    "key_deserializer",
    "value_deserializer",
    "interceptors",
    "offsets",
)
_DEPENDS: Final[Any] = None  # a default that depends on other options
_REVOKE_GRACE_MS: Final = 10_000  # or `rebalance_timeout_ms` if that is less
_SWITCHES: Final = (
    "enable_auto_commit",
    "exclude_internal_topics",
    "heartbeat_thread",
    "allow_auto_create_topics",
)
_FROM_ZOOKEEPER: Final = "from-zookeeper"  # a placeholder until the brokers are known
_SERVERS: Final = {"bootstrap_servers": _FROM_ZOOKEEPER}
_STRATEGY: Final = {"partition_assignment_strategy": "range"}
_IN_ZOOKEEPER: Final = (
    "zookeeper_connect",
    "zookeeper_session_timeout_ms",
    "zookeeper_connection_timeout_ms",
    "zookeeper_sync_time_ms",
    "zookeeper_auth",
    "zookeeper_sasl",
    "zookeeper_set_acl",
    "zookeeper_ssl_context",
    "rebalance_max_retries",
    "rebalance_backoff_ms",
    "offsets_storage",
    "dual_commit_enabled",
    "consumer_id",
)
_BY_COORDINATOR: Final = (
    "group_instance_id",
    "group_remote_assignor",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "rebalance_timeout_ms",
    "heartbeat_thread",
)
_BY_BROKER: Final = {
    "session_timeout_ms": "Set consumer.session.timeout.ms of the group on the broker, or "
    "group.consumer.session.timeout.ms for all groups",
    "heartbeat_interval_ms": "Set consumer.heartbeat.interval.ms of the group on the broker, or "
    "group.consumer.heartbeat.interval.ms for all groups",
    "partition_assignment_strategy": "Set `group_remote_assignor` to one of the broker's "
    "group.consumer.assignors",
}
"""Options that have no effect in a KIP-848 group, and their replacements."""
_FROM_1: Final = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "rebalance_timeout_ms",
    "auto_commit_interval_ms",
    "commit_timeout_ms",
    "listener_timeout_ms",
    "max_loop_blocked_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """The options of group membership and commits. `MemberOptions` describes each option.

    A member is notified of a rebalance in the response to a heartbeat. With one heartbeat a second
    this takes half a second on average. Other clients send one every three seconds.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: AssignmentStrategies = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 1_000
    rebalance_timeout_ms: int = 300_000
    exclude_internal_topics: bool = True
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    commit_timeout_ms: int = 60_000
    revoke_grace_ms: int = _DEPENDS
    listener_timeout_ms: int = 60_000
    max_poll_interval_ms: int | None = None
    allow_auto_create_topics: bool = False
    consumer_timeout_ms: int | None = None
    heartbeat_thread: bool = True
    max_loop_blocked_ms: int = 300_000

    def __post_init__(self) -> None:
        one_of("group_protocol", self.group_protocol, GROUP_PROTOCOLS)
        for name in ("group_id", "group_instance_id", "group_remote_assignor"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"`{name}` must be a name or None, got {value!r}")
        for name in _FROM_1:
            whole_number(name, getattr(self, name), 1)
        if self.revoke_grace_ms is _DEPENDS:
            default = min(_REVOKE_GRACE_MS, self.rebalance_timeout_ms)
            object.__setattr__(self, "revoke_grace_ms", default)
        whole_number("revoke_grace_ms", self.revoke_grace_ms, 0)
        for name in ("consumer_timeout_ms", "max_poll_interval_ms"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"`{name}` must be True or False, got {getattr(self, name)!r}")
        self._check_together()

    def _check_together(self) -> None:
        if self.group_remote_assignor is not None and self.group_protocol == "classic":
            raise ConfigError(
                "`group_remote_assignor` needs `group_protocol='consumer'`. For the classic "
                "protocol, set `partition_assignment_strategy`"
            )
        if self.revoke_grace_ms > self.rebalance_timeout_ms:
            raise ConfigError(
                f"`revoke_grace_ms` ({self.revoke_grace_ms}) must not be more than "
                f"`rebalance_timeout_ms` ({self.rebalance_timeout_ms}), because the group does not "
                "wait longer"
            )
        if self.group_id is None and self.group_instance_id is not None:
            raise ConfigError("`group_instance_id` is set, but `group_id` is not. Set `group_id`")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ConfigError(
                f"`heartbeat_interval_ms` ({self.heartbeat_interval_ms}) must be at most a third "
                f"of `session_timeout_ms` ({self.session_timeout_ms}), because heartbeats may get "
                "lost"
            )

    @property
    def strategies(self) -> Sequence[AssignmentStrategy | str]:
        """The assignors, or their names, in order of preference."""
        strategies = self.partition_assignment_strategy
        if isinstance(strategies, str):
            return [name.strip() for name in strategies.split(",")]
        return list(strategies) if isinstance(strategies, Sequence) else [strategies]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """All options of a consumer, as one config object for each group of options."""

    connection: ConnectionConfig
    fetch: FetchConfig
    engine: EngineConfig
    member: MemberConfig
    delivery: DeliveryConfig
    zookeeper: ClassicConfig | None = None  # set for a group that ZooKeeper coordinates

    @classmethod
    def from_options(cls, /, **options: Unpack[ConsumerOptions]) -> Self:
        """Return the config for keyword options.

        Raise ConfigError for unknown options, and for options that conflict.
        """
        return cls._from_any(**options)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Self:
        """Return the config for a mapping of options, such as the contents of a file."""
        return cls._from_any(**options)

    @classmethod
    def _from_any(cls, /, **options: Any) -> Self:  # noqa: ANN401 - checked by name
        in_zookeeper = options.get("group_protocol") == "zookeeper"
        _check_options(options, in_zookeeper=in_zookeeper)
        # from these calls, editors that do not know `Unpack` take the names of the options
        connection = picking(ConnectionConfig, _SERVERS if in_zookeeper else {})(**options)
        fetch = picking(FetchConfig)(**options)
        engine = picking(EngineConfig)(**options)
        delivery = picking(DeliveryConfig)(**options)
        member = picking(MemberConfig, _STRATEGY if in_zookeeper else {})(**options)
        zookeeper = None
        if in_zookeeper:
            shared = _shared(member, connection)
            zookeeper = picking(ClassicConfig, shared, names=_IN_ZOOKEEPER)(**options)
        return cls(connection, fetch, engine, member, delivery, zookeeper)

    def __post_init__(self) -> None:
        check_together(self.connection, self.fetch)
        _check_policy(self.member, self.delivery)

    def connection_to(self, servers: Sequence[str]) -> ConnectionConfig:
        """Return the connection options with `servers` as bootstrap servers, if there are any.

        Without `servers`, return them unchanged.
        """
        return replace(self.connection, bootstrap_servers=servers) if servers else self.connection

    @property
    def auto_commit(self) -> bool:
        """Whether acknowledged records are committed automatically."""
        return self.delivery.commit_policy == "auto" and self.member.enable_auto_commit


def _check_options(options: Mapping[str, Any], *, in_zookeeper: bool) -> None:
    refuse_tls_options(options)
    _check_names(options, in_zookeeper=in_zookeeper)
    with_value = without_none(options, _SERVERS if in_zookeeper else {})
    if in_zookeeper:
        _refuse_coordinator_options(with_value)
    if with_value.get("group_protocol") == "consumer":
        _refuse_broker_settings(with_value)


def _check_names(options: Mapping[str, Any], *, in_zookeeper: bool) -> None:
    """Raise ConfigError for an unknown option, or for an option of the other kind of group.

    With `in_zookeeper`, ZooKeeper coordinates the group, otherwise Kafka. An option that is None
    counts as not set.
    """
    with_value = [name for name, value in options.items() if value is not None]
    own = set(_IN_ZOOKEEPER if in_zookeeper else ())
    for name in with_value:
        if name in OTHER_CLIENTS_ONLY and name not in own:
            raise ConfigError(f"unknown option {name!r}. {OTHER_CLIENTS_ONLY[name]}")
        if name in _IN_ZOOKEEPER and not in_zookeeper:
            raise ConfigError(f"`{name}` needs `group_protocol='zookeeper'`")
    kinds = ConnectionConfig, FetchConfig, EngineConfig, MemberConfig, DeliveryConfig
    unknown = [
        name for name in options if name not in OTHER_CLIENTS_ONLY and name not in _IN_ZOOKEEPER
    ]
    refuse_unknown(unknown, *kinds, also=_CONSTRUCTOR_ARGUMENTS)


def _refuse_coordinator_options(options: Mapping[str, Any]) -> None:
    for name in _BY_COORDINATOR:
        if name in options:
            raise ConfigError(
                f"`{name}` has no effect with `group_protocol='zookeeper'`. Remove it, and set "
                "`zookeeper_session_timeout_ms` for the session timeout"
            )


def _refuse_broker_settings(options: Mapping[str, Any]) -> None:
    for name, instead in _BY_BROKER.items():
        if name in options:
            raise ConfigError(
                f"`{name}` has no effect with `group_protocol='consumer'`, because the coordinator "
                f"decides. {instead}, or set `group_protocol='classic'`"
            )


def _shared(member: MemberConfig, connection: ConnectionConfig) -> dict[str, Any]:
    """Return the options of a ZooKeeper group that Kafka's groups have as well, by name."""
    servers = connection.bootstrap_servers
    return {
        "group_id": member.group_id or "",
        "bootstrap_servers": "" if servers == _FROM_ZOOKEEPER else servers,
        "client_id": connection.client_id,
        "partition_assignment_strategy": member.partition_assignment_strategy,
        "exclude_internal_topics": member.exclude_internal_topics,
        **security_options(connection),
    }


def _check_policy(member: MemberConfig, delivery: DeliveryConfig) -> None:
    policy = delivery.commit_policy
    if policy == "at_most_once" and not member.enable_auto_commit:
        raise ConfigError(
            "`commit_policy='at_most_once'` commits automatically, but `enable_auto_commit` is "
            "False. Remove `enable_auto_commit`"
        )
    if policy != "auto" and member.group_id is None:
        raise ConfigError(
            f"`commit_policy={policy!r}` needs a `group_id` to commit for. Set `group_id`"
        )

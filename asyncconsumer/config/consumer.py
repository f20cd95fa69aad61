"""The options of a consumer, with Kafka's names and defaults where Kafka has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from asyncconsumer.config.classic import ClassicConfig
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.delivery import DeliveryConfig
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.options import check_together, given, take
from asyncconsumer.config.tls_options import refuse_tls_options
from asyncconsumer.config.validation import one_of, refuse_unknown, whole_number
from asyncconsumer.errors import ConfigError

GROUP_PROTOCOLS: Final = ("classic", "consumer", "zookeeper")
_NOT_NEEDED: Final = {
    "max_poll_records": "records come one by one; max_buffered_bytes bounds what is read ahead",
    "default_api_timeout_ms": "commits and offsets have commit_timeout_ms",
    "metadata_max_age_ms": "topics are looked at every metadata_refresh_ms",
    "retry_backoff_ms": "requests are retried after waits that grow; refresh_leader_backoff_ms is "
    "the wait for a partition's leader, reconnect_backoff_ms the wait for a connection",
    "topic": "name topics one by one, as Consumer('orders', ...)",
    "topics": "name topics one by one, as Consumer('orders', 'payments', ...)",
    "consumer_id": "give a client_id, or a group_instance_id for a static member; it names members "
    "of groups in ZooKeeper",
}
_OF_CONSTRUCTOR: Final = (
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
_TOLD_BY_ZOOKEEPER: Final = "told-by-zookeeper"
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
    "session_timeout_ms": "set consumer.session.timeout.ms of the group at the broker, or "
    "group.consumer.session.timeout.ms for all groups",
    "heartbeat_interval_ms": "set consumer.heartbeat.interval.ms of the group at the broker, or "
    "group.consumer.heartbeat.interval.ms for all groups",
    "partition_assignment_strategy": "name one of the broker's group.consumer.assignors as "
    "group_remote_assignor",
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
    """The options of group membership and of commits.

    ``revoke_grace_ms`` is the longest time that a record in flight may delay the revocation of its
    partition. It is 10 s, or ``rebalance_timeout_ms`` if that is less. So a record that is not
    acknowledged delays a rebalance for that long. ``listener_timeout_ms`` is the longest time that
    a listener may delay it. With ``heartbeat_thread`` a thread keeps the session while the event
    loop is blocked, up to ``max_loop_blocked_ms``. ``commit_timeout_ms`` is the time for retries
    when offsets are committed or loaded.

    Processing a record may take any time. With ``max_poll_interval_ms``, which is off by default,
    a member leaves the group if its reader does not ask for the next record for that long. With
    ``allow_auto_create_topics`` brokers may create subscribed topics that do not exist. With
    ``consumer_timeout_ms``, `ConsumerTimeout` is raised if no record came for that long.

    A member learns of a rebalance from the response to a heartbeat. With one heartbeat a second
    this takes half a second on average. Other clients send one every three seconds.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: Any = ("range", "cooperative-sticky")
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
            given: object = getattr(self, name)
            if given is not None and (not isinstance(given, str) or not given):
                raise ConfigError(f"{name} must be a name, or left out, got {given!r}")
        for name in _FROM_1:
            whole_number(name, getattr(self, name), 1)
        if self.revoke_grace_ms is _DEPENDS:
            longest = min(_REVOKE_GRACE_MS, self.rebalance_timeout_ms)
            object.__setattr__(self, "revoke_grace_ms", longest)
        whole_number("revoke_grace_ms", self.revoke_grace_ms, 0)
        for name in ("consumer_timeout_ms", "max_poll_interval_ms"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, got {getattr(self, name)!r}")
        self._check_together()

    def _check_together(self) -> None:
        if self.group_remote_assignor is not None and self.group_protocol == "classic":
            raise ConfigError(
                "group_remote_assignor is for group_protocol='consumer'; by the classic protocol "
                "members divide: set partition_assignment_strategy"
            )
        if self.revoke_grace_ms > self.rebalance_timeout_ms:
            raise ConfigError(
                f"revoke_grace_ms ({self.revoke_grace_ms}) must not be more than "
                f"rebalance_timeout_ms ({self.rebalance_timeout_ms}): nobody waits longer"
            )
        if self.group_id is None and self.group_instance_id is not None:
            raise ConfigError("group_instance_id is set and group_id is not: name the group")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be at most a third of "
                f"session_timeout_ms ({self.session_timeout_ms}): some may get lost"
            )

    @property
    def strategies(self) -> Sequence[Any]:
        """Assignors, or names of assignors, in order of preference."""
        given = self.partition_assignment_strategy
        if isinstance(given, str):
            return [one.strip() for one in given.split(",")]
        return list(given) if isinstance(given, Sequence) else [given]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """All options of a consumer, in groups."""

    connection: ConnectionConfig
    fetch: FetchConfig
    engine: EngineConfig
    member: MemberConfig
    reading: DeliveryConfig
    zookeeper: ClassicConfig | None = None  # set for a group that ZooKeeper coordinates

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the config for options by name; raise for unknown or conflicting options."""
        refuse_tls_options(options)
        in_zookeeper = options.get("group_protocol") == "zookeeper"
        _check_names(options, in_zookeeper=in_zookeeper)
        if in_zookeeper and options.get("bootstrap_servers") is None:
            options = {**options, "bootstrap_servers": _TOLD_BY_ZOOKEEPER}
        left = given(options)
        if in_zookeeper:
            _refuse_coordinators(left)
            left.setdefault("partition_assignment_strategy", "range")
        if left.get("group_protocol") == "consumer":
            _refuse_settings_of_brokers(left)
        connection, fetch = take(left, ConnectionConfig), take(left, FetchConfig)
        engine, reading = take(left, EngineConfig), take(left, DeliveryConfig)
        member = take(left, MemberConfig)
        zookeeper = _zookeeper(left, member, connection) if in_zookeeper else None
        check_together(connection, fetch)
        _check_policy(member, reading)
        return cls(connection, fetch, engine, member, reading, zookeeper)

    def connection_to(self, found: Sequence[str]) -> ConnectionConfig:
        """Return the connection options, with the `found` servers unless there are none."""
        return replace(self.connection, bootstrap_servers=found) if found else self.connection

    @property
    def auto_commit(self) -> bool:
        """Whether acknowledged records are committed automatically."""
        return self.reading.commit_policy == "auto" and self.member.enable_auto_commit


def _check_names(options: Mapping[str, Any], *, in_zookeeper: bool) -> None:
    """Raise for unknown options, and for options with a value that do not apply here."""
    set_ones = [name for name, value in options.items() if value is not None]
    own = set(_IN_ZOOKEEPER if in_zookeeper else ())
    for name in set_ones:
        if name in _NOT_NEEDED and name not in own:
            raise ConfigError(f"there is no {name}: {_NOT_NEEDED[name]}")
        if name in _IN_ZOOKEEPER and not in_zookeeper:
            raise ConfigError(f"{name} is for group_protocol='zookeeper'")
    kinds = ConnectionConfig, FetchConfig, EngineConfig, MemberConfig, DeliveryConfig
    unknown = [name for name in options if name not in _NOT_NEEDED and name not in _IN_ZOOKEEPER]
    refuse_unknown(unknown, *kinds, also=_OF_CONSTRUCTOR)


def _refuse_coordinators(options: Mapping[str, Any]) -> None:
    for name in _BY_COORDINATOR:
        if name in options:
            raise ConfigError(
                f"{name} has no meaning in a group that ZooKeeper coordinates; its sessions have "
                "zookeeper_session_timeout_ms"
            )


def _refuse_settings_of_brokers(options: Mapping[str, Any]) -> None:
    for name, instead in _BY_BROKER.items():
        if name in options:
            raise ConfigError(
                f"{name} has no effect with group_protocol='consumer', where the coordinator "
                f"decides: {instead}; or take group_protocol='classic'"
            )


def _zookeeper(
    options: dict[str, Any], member: MemberConfig, connection: ConnectionConfig
) -> ClassicConfig:
    own = {name: options.pop(name) for name in _IN_ZOOKEEPER if name in options}
    servers = connection.bootstrap_servers
    return ClassicConfig(
        group_id=member.group_id or "",
        bootstrap_servers="" if servers == _TOLD_BY_ZOOKEEPER else servers,
        security_protocol=connection.security_protocol,
        ssl_context=connection.ssl_context,
        sasl_mechanism=connection.sasl_mechanism,
        sasl_plain_username=connection.sasl_plain_username,
        sasl_plain_password=connection.sasl_plain_password,
        sasl_oauth_token_provider=connection.sasl_oauth_token_provider,
        partition_assignment_strategy=member.partition_assignment_strategy,
        exclude_internal_topics=member.exclude_internal_topics,
        **own,
    )


def _check_policy(member: MemberConfig, reading: DeliveryConfig) -> None:
    policy = reading.commit_policy
    if policy == "at_most_once" and not member.enable_auto_commit:
        raise ConfigError(
            "commit_policy='at_most_once' commits; enable_auto_commit must not be off"
        )
    if policy != "auto" and member.group_id is None:
        raise ConfigError(
            f"commit_policy={policy!r} without a group_id: name the group to commit for"
        )

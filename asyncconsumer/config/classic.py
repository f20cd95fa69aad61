"""The properties of Kafka's classic consumer, with their names, defaults and rules."""

import logging
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from asyncconsumer.config.choices import (
    CLASSIC_OFFSET_RESETS,
    OFFSETS_STORAGES,
    ZOOKEEPER_ASSIGNOR_NAMES,
    AutoOffsetReset,
    ClassicOffsetReset,
    IsolationLevel,
    OffsetsStorage,
    ZooKeeperAssignorName,
)
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.extraction import check_together
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.security import SecurityConfig, security_options
from asyncconsumer.config.text_values import parse_bool, parse_int
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.config.validation import one_of, refuse_unknown, whole_number
from asyncconsumer.config.zookeeper import ZooKeeperConfig
from asyncconsumer.errors import ConfigError

_DEPENDS: Final[Any] = None  # a default that depends on other options: see _DEFAULTS
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConfig(SecurityConfig):
    """The options of a member of a ZooKeeper group. `ClassicOptions` describes each option.

    ``group_id`` and ``zookeeper_connect`` are required. Differences from Kafka 1.1:

    - ``fetch_max_bytes`` is used; the classic consumer reads it and never uses it.
    - ``max_buffered_bytes`` bounds the data fetched ahead, for all streams together. So
      ``queued_max_message_chunks`` has no effect.
    - ``auto_offset_reset`` may also be earliest or latest.
    - ``partition_assignment_strategy`` has more values.

    `from_properties` takes dotted names. Set ``bootstrap_servers`` for a Kafka that does not use
    ZooKeeper.
    """

    group_id: str = ""
    consumer_id: str | None = None
    client_id: str = _DEPENDS

    zookeeper_connect: str = ""
    zookeeper_session_timeout_ms: int = 6_000
    zookeeper_connection_timeout_ms: int = _DEPENDS
    zookeeper_sync_time_ms: int = 2_000
    zookeeper_auth: str | None = field(default=None, repr=False)
    zookeeper_sasl: str | None = field(default=None, repr=False)
    zookeeper_set_acl: bool = False
    zookeeper_ssl_context: ssl.SSLContext | None = field(default=None, repr=False)

    bootstrap_servers: str | Sequence[str] = ""
    socket_timeout_ms: int = 30_000
    socket_receive_buffer_bytes: int = 65_536

    fetch_message_max_bytes: int = 2**20
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 2**20
    fetch_wait_max_ms: int = 100
    num_consumer_fetchers: int = 1
    refresh_leader_backoff_ms: int = 200
    queued_max_message_chunks: int = 2
    max_buffered_bytes: int = 32 * 2**20
    isolation_level: IsolationLevel = "read_uncommitted"
    check_crcs: bool = True
    client_rack: str = ""
    stall_timeout_ms: int = 10_000
    auto_offset_reset: ClassicOffsetReset = "largest"
    consumer_timeout_ms: int = -1
    exclude_internal_topics: bool = True

    partition_assignment_strategy: ZooKeeperAssignorName = "range"
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = _DEPENDS

    auto_commit_enable: bool = True
    auto_commit_interval_ms: int = 60_000
    offsets_storage: OffsetsStorage = "zookeeper"
    dual_commit_enabled: bool = _DEPENDS
    offsets_channel_backoff_ms: int = 1_000
    offsets_channel_socket_timeout_ms: int = 10_000
    offsets_commit_max_retries: int = 5

    def __new__(cls, **options: Any) -> "ClassicConfig":  # noqa: ANN401 - only names are checked
        """Reject unknown options with an error that names the nearest known option."""
        refuse_tls_options(options)
        refuse_unknown([name for name in options if name not in _NAMES], also=_NAMES)
        return object.__new__(cls)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Return the config for classic properties, such as ``{"zookeeper.connect": "zk:2181"}``.

        All values may be strings. An empty string is the same as no value, except for security
        options, where it is an error.
        """
        dotted = {name.replace("_", "."): name for name in _NAMES}
        refuse_tls_options(properties)
        refuse_unknown([name for name in properties if name not in dotted], also=dotted)
        types = {field.name: field.type for field in fields(cls)}
        options: dict[str, Any] = {
            dotted[name]: _read(name, value, types[dotted[name]])
            for name, value in properties.items()
        }
        for name in PROTECTING:
            if options.get(name) == "":  # most likely from a variable that was not set
                raise ConfigError(f"`{name.replace('_', '.')}` is empty. Set it or remove it")
        return cls(**{name: value for name, value in options.items() if value != ""})

    def __post_init__(self) -> None:
        self._check_names()
        if isinstance(self.offsets_storage, str):
            object.__setattr__(self, "offsets_storage", self.offsets_storage.lower())
        for name, default in _DEFAULTS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default(self))
        _check_name("client_id", self.client_id)
        one_of("auto_offset_reset", self.auto_offset_reset, CLASSIC_OFFSET_RESETS)
        one_of("offsets_storage", self.offsets_storage, OFFSETS_STORAGES)
        strategy = self.partition_assignment_strategy
        one_of("partition_assignment_strategy", strategy, ZOOKEEPER_ASSIGNOR_NAMES)
        for name, least in _LEAST.items():
            whole_number(name, getattr(self, name), least)
        for name in _FLAGS:
            if not isinstance(flag := getattr(self, name), bool):
                raise ConfigError(f"`{name}` must be True or False, got {flag!r}")
        if self.socket_timeout_ms < self.fetch_wait_max_ms:
            raise ConfigError(
                f"`socket_timeout_ms` ({self.socket_timeout_ms}) must not be less than "
                f"`fetch_wait_max_ms` ({self.fetch_wait_max_ms}), because a fetch that waits would "
                "time out"
            )
        self._check_parts()
        self._log_ineffective()

    # --- parts --------------------------------------------------------------------

    def connection(self, servers: str | Sequence[str] = "") -> ConnectionConfig:
        """Return the connection options.

        `servers` are used if the option `bootstrap_servers` is empty.
        """
        return ConnectionConfig(
            bootstrap_servers=self.bootstrap_servers or servers,
            client_id=self.client_id,
            request_timeout_ms=max(self.socket_timeout_ms, self.fetch_wait_max_ms + 1),
            max_frame_bytes=max(128 * 2**20, self.fetch_max_bytes),
            **security_options(self),
        )

    def fetch(self) -> FetchConfig:
        """Return the fetch options."""
        return FetchConfig(
            fetch_min_bytes=self.fetch_min_bytes,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_max_wait_ms=self.fetch_wait_max_ms,
            max_partition_fetch_bytes=self.fetch_message_max_bytes,
            isolation_level=self.isolation_level,
            check_crcs=self.check_crcs,
            client_rack=self.client_rack,
        )

    def engine(self) -> EngineConfig:
        """Return the options of the fetch engine."""
        return EngineConfig(
            max_buffered_bytes=self.max_buffered_bytes,
            num_consumer_fetchers=self.num_consumer_fetchers,
            refresh_leader_backoff_ms=self.refresh_leader_backoff_ms,
            auto_offset_reset=_RESETS[self.auto_offset_reset],
            stall_timeout_ms=self.stall_timeout_ms,
        )

    def zookeeper(self) -> ZooKeeperConfig:
        """Return the options of the ZooKeeper session."""
        return ZooKeeperConfig(
            zookeeper_connect=self.zookeeper_connect,
            session_timeout_ms=self.zookeeper_session_timeout_ms,
            connection_timeout_ms=self.zookeeper_connection_timeout_ms,
            auth=self.zookeeper_auth,
            sasl=self.zookeeper_sasl,
            zookeeper_set_acl=self.zookeeper_set_acl,
            ssl_context=self.zookeeper_ssl_context,
        )

    @property
    def commit_patience_ms(self) -> int:
        """The time limit in ms for retries of a commit to Kafka.

        The limit is the number of retries times the wait between them, as in the classic consumer.
        """
        return self.offsets_commit_max_retries * self.offsets_channel_backoff_ms

    # --- checks ----------------------------------------------------------------------------------

    def _check_names(self) -> None:
        for name in ("group_id", "zookeeper_connect"):
            if not getattr(self, name):
                raise ConfigError(f"`{name}` is missing. Set it")
        _check_name("group_id", self.group_id)
        if len(self.group_id) > 249 or self.group_id in (".", ".."):
            raise ConfigError(
                "`group_id` must have at most 249 characters, and must not be '.' or '..'"
            )
        if self.consumer_id is not None and not isinstance(self.consumer_id, str):
            raise ConfigError(f"`consumer_id` must be a string, got {self.consumer_id!r}")

    def _check_parts(self) -> None:
        """Check the options of each part now, and not when the part is first used."""
        self.zookeeper()
        self.engine()
        check_together(self.connection("from-zookeeper:9092"), self.fetch())

    def _log_ineffective(self) -> None:
        """Log a warning for options without an effect, and for a retry time that is too short."""
        defaults = {field.name: field.default for field in fields(self)}
        for name, reason in _WITHOUT_EFFECT.items():
            if getattr(self, name) != defaults[name]:
                _log.warning("the option %s has no effect, because %s", name, reason)
        if self.dual_commit_enabled and self.offsets_storage != "kafka":
            _log.warning(
                "the option dual_commit_enabled has no effect unless offsets_storage is kafka"
            )
        retry_ms = self.rebalance_max_retries * self.rebalance_backoff_ms
        if retry_ms <= self.zookeeper_session_timeout_ms:
            _log.warning(
                "rebalance_max_retries * rebalance_backoff_ms is %d ms, which should be more than "
                "zookeeper_session_timeout_ms (%d), because a crashed member keeps its partitions "
                "for that long and a rebalance would be reported as failed before",
                retry_ms,
                self.zookeeper_session_timeout_ms,
            )


_NAMES: Final = tuple(field.name for field in fields(ClassicConfig) if field.init)
_RESETS: Final[Mapping[str, AutoOffsetReset]] = {
    "smallest": "earliest",
    "largest": "latest",
    "earliest": "earliest",
    "latest": "latest",
}
_DEFAULTS: Final[Mapping[str, Callable[[ClassicConfig], object]]] = {
    "client_id": lambda config: config.group_id,
    "zookeeper_connection_timeout_ms": lambda config: config.zookeeper_session_timeout_ms,
    "rebalance_backoff_ms": lambda config: config.zookeeper_sync_time_ms,
    "dual_commit_enabled": lambda config: config.offsets_storage == "kafka",
}
PROTECTING: Final = (
    *(field.name for field in fields(SecurityConfig) if field.init),
    "isolation_level",
    "check_crcs",
    "zookeeper_auth",
    "zookeeper_sasl",
    "zookeeper_set_acl",
    "zookeeper_ssl_context",
)
_FLAGS: Final = (
    "zookeeper_set_acl",
    "exclude_internal_topics",
    "auto_commit_enable",
    "dual_commit_enabled",
)
_LEAST: Final = {
    "zookeeper_session_timeout_ms": 100,
    "zookeeper_connection_timeout_ms": 1,
    "zookeeper_sync_time_ms": 0,
    "socket_timeout_ms": 1,
    "socket_receive_buffer_bytes": -1,
    "fetch_message_max_bytes": 1,
    "fetch_min_bytes": 0,
    "fetch_max_bytes": 1,
    "fetch_wait_max_ms": 0,
    "queued_max_message_chunks": 1,
    "consumer_timeout_ms": -1,
    "rebalance_max_retries": 1,
    "rebalance_backoff_ms": 0,
    "auto_commit_interval_ms": 1,
    "offsets_channel_backoff_ms": 0,
    "offsets_channel_socket_timeout_ms": 1,
    "offsets_commit_max_retries": 0,
}
_WITHOUT_EFFECT: Final = {
    "queued_max_message_chunks": "max_buffered_bytes limits the data fetched ahead",
    "socket_receive_buffer_bytes": "the operating system sizes the buffer",
    "offsets_channel_socket_timeout_ms": "socket_timeout_ms applies to all brokers",
}


def _check_name(option: str, value: object) -> None:
    """Raise ConfigError if Kafka does not allow `value` as a name.

    Names are parts of paths and metrics.
    """
    if not isinstance(value, str) or re.fullmatch(r"[a-zA-Z0-9._-]+", value) is None:
        raise ConfigError(
            f"`{option}` must have only characters of a-z, A-Z, 0-9, '.', '_' and '-', got "
            f"{value!r}"
        )


def _read(name: str, value: object, type_: object) -> object:
    """Return the value of the property `name`. Convert it to `type_` if it is a string."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if type_ is bool and text:
        return parse_bool(name, text)
    return parse_int(name, text) if type_ is int and text else text

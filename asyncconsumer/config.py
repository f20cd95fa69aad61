"""What users may set, checked when it is set. One dataclass a part."""

import difflib
import importlib.util
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.errors import ConfigError
from asyncconsumer.model import Address

DEFAULT_PORT: Final = 9092
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """How to reach a cluster, and how long to wait for it. Names and units are Kafka's.

    ``bootstrap_servers`` is ``"host:port,host:port"`` or a sequence of such; without a port it is
    9092, an IPv6 address takes brackets. ``ssl_context`` is the whole of the TLS settings, e.g.
    ``ssl.create_default_context(cafile="authority.pem")``. ``connect_timeout_ms`` is for all of an
    opening: TCP, TLS, login. A response of more than ``max_frame_bytes`` is refused unread.
    """

    bootstrap_servers: str | Sequence[str]
    client_id: str = "asyncconsumer"
    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: AbstractTokenProvider | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    max_frame_bytes: int = 128 * 2**20

    def __post_init__(self) -> None:
        parse_servers(self.bootstrap_servers)
        one_of("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        if self.encrypted != (self.ssl_context is not None):
            raise ConfigError(
                f"security_protocol is {self.security_protocol} and ssl_context is "
                + (
                    "not set: set it, e.g. to ssl.create_default_context()"
                    if self.encrypted
                    else "set: take SSL or SASL_SSL, or leave the context out"
                )
            )
        self._check_login()
        for name, least in _LEAST.items():
            whole_number(name, getattr(self, name), least)
        if self.reconnect_backoff_ms > self.reconnect_backoff_max_ms:
            raise ConfigError(
                f"reconnect_backoff_ms ({self.reconnect_backoff_ms}) must not be more than "
                f"reconnect_backoff_max_ms ({self.reconnect_backoff_max_ms})"
            )

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers, each once."""
        return parse_servers(self.bootstrap_servers)

    @property
    def encrypted(self) -> bool:
        """Whether connections speak TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether connections log in with SASL."""
        return self.security_protocol.startswith("SASL")

    def _check_login(self) -> None:
        mechanism = self.sasl_mechanism
        if not self.logs_in:
            for given in fields(self):
                if given.name in _LOGIN_ONLY and getattr(self, given.name) is not None:
                    raise ConfigError(
                        f"{given.name} is set and security_protocol is {self.security_protocol}, "
                        "which does not log in: take SASL_SSL (or SASL_PLAINTEXT), or leave it out"
                    )
            return
        if mechanism is None:
            raise ConfigError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism: "
                f"one of {', '.join(SASL_MECHANISMS)}"
            )
        one_of("sasl_mechanism", mechanism, SASL_MECHANISMS)
        for name in _NEEDED.get(mechanism, ("sasl_plain_username", "sasl_plain_password")):
            if not getattr(self, name):
                raise ConfigError(f"sasl_mechanism {mechanism} needs {name}")
        provider = self.sasl_oauth_token_provider
        if provider is not None and not isinstance(provider, AbstractTokenProvider):
            raise ConfigError(
                "sasl_oauth_token_provider must be an aiokafka.abc.AbstractTokenProvider, "
                f"got a {type(provider).__name__}"
            )
        if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
            raise ConfigError("sasl_mechanism GSSAPI needs the gssapi package: pip install gssapi")


_LOGIN_ONLY: Final = {
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
    "sasl_kerberos_domain_name",
}
_NEEDED: Final = {
    "OAUTHBEARER": ("sasl_oauth_token_provider",),
    "GSSAPI": ("sasl_kerberos_service_name",),
}
_LEAST: Final = {
    "connect_timeout_ms": 1,
    "request_timeout_ms": 1,
    "connections_max_idle_ms": 1,
    "reconnect_backoff_ms": 0,
    "reconnect_backoff_max_ms": 0,
    "max_frame_bytes": 1024,
}


def parse_servers(
    servers: str | Sequence[str], option: str = "bootstrap_servers", port: int = DEFAULT_PORT
) -> tuple[Address, ...]:
    """The addresses that an option names, each once, in their order."""
    entries = servers.split(",") if isinstance(servers, str) else servers
    try:
        named = [entry.strip() for entry in entries if entry.strip()]
    except (AttributeError, TypeError):
        raise ConfigError(
            f"{option} must be 'host:port,...' or a sequence of them, got {servers!r}"
        ) from None
    if not named:
        raise ConfigError(f"{option} is empty: name at least one server as 'host:port'")
    return tuple(dict.fromkeys(_parse_server(entry, option, port) for entry in named))


def _parse_server(entry: str, option: str, default_port: int) -> Address:
    host, colon, port = entry.rpartition(":")
    if entry.endswith("]") or not colon:
        host, port = entry, str(default_port)
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    sound = bool(name) and bracketed == (":" in name) and not any(c in "[]/@ " for c in name)
    # only plain digits: int() also takes signs, underscores and other alphabets
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not (sound and digits and 0 < int(port) < 2**16):
        raise ConfigError(
            f"{option} has {entry!r}: each must be 'host', 'host:port' or '[ipv6]:port', "
            "the port from 1 to 65535"
        )
    return Address(name, int(port))


def one_of(option: str, value: object, allowed: Sequence[str]) -> None:
    """Raise unless the value is one of those, with the nearest of them."""
    if value in allowed:
        return
    near = difflib.get_close_matches(str(value).upper().replace("_", "-"), allowed, 1, 0.4)
    near = near or difflib.get_close_matches(str(value).upper(), allowed, 1, 0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{option} must be one of {', '.join(allowed)}, got {value!r}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """How to reach ZooKeeper, and who we are there.

    ``zookeeper_connect`` is ``"host:port,host:port/chroot"``; without a port it is 2181. All paths
    are below the chroot, which must exist. ``auth`` is ``"user:password"`` of the digest scheme,
    ``sasl`` the same for a server that asks for SASL (DIGEST-MD5). With ``zookeeper_set_acl`` only
    that user may touch the nodes that we create. ``connection_timeout_ms`` is the longest that we
    wait for a connection: at the start, and before a call while there is none.
    """

    zookeeper_connect: str
    session_timeout_ms: int = 6_000
    connection_timeout_ms: int = 6_000
    auth: str | None = field(default=None, repr=False)
    sasl: str | None = field(default=None, repr=False)
    zookeeper_set_acl: bool = False
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    max_frame_bytes: int = 8 * 2**20

    def __post_init__(self) -> None:
        if not isinstance(self.zookeeper_connect, str):
            raise ConfigError(
                "zookeeper_connect must be 'host:port,host:port/chroot', "
                f"got {self.zookeeper_connect!r}"
            )
        _ = self.addresses
        parts = self.chroot.split("/")[1:]
        if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
            raise ConfigError(
                f"zookeeper_connect has the chroot {self.chroot!r}: its parts must not be empty, "
                "'.' or '..', nor have control characters"
            )
        whole_number("session_timeout_ms", self.session_timeout_ms, 100)
        whole_number("connection_timeout_ms", self.connection_timeout_ms, 1)
        whole_number("max_frame_bytes", self.max_frame_bytes, 1024)
        for name in ("auth", "sasl"):  # the value is a secret: it is not told
            given = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given.partition(":")[2]):
                raise ConfigError(f"{name} must be 'user:password'")
        if self.zookeeper_set_acl and self.auth is None and self.sasl is None:
            raise ConfigError("zookeeper_set_acl needs auth or sasl: nobody could own the nodes")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The servers of the ensemble, each once."""
        return parse_servers(self.zookeeper_connect.partition("/")[0], "zookeeper_connect", 2181)

    @property
    def chroot(self) -> str:
        """What goes before every path: empty, or ``/part/part``."""
        _, slash, rest = self.zookeeper_connect.strip().partition("/")
        return (slash + rest).rstrip("/")


ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """How much one fetch asks for, and what is checked of what comes. Names are Kafka's.

    A larger batch than ``max_partition_fetch_bytes`` still comes whole. A batch that inflates to
    more than ``max_inflated_bytes`` is refused as corrupt: a few kilobytes can claim gigabytes.
    """

    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 2**20
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 2**20
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    max_inflated_bytes: int = 64 * 2**20
    client_rack: str = ""

    def __post_init__(self) -> None:
        one_of("isolation_level", self.isolation_level, ISOLATION_LEVELS)
        if not isinstance(self.check_crcs, bool):
            raise ConfigError(f"check_crcs must be True or False, got {self.check_crcs!r}")
        for name in ("fetch_min_bytes", "fetch_max_wait_ms"):
            whole_number(name, getattr(self, name), 0)
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "max_inflated_bytes"):
            whole_number(name, getattr(self, name), 1)
        if self.fetch_min_bytes > self.fetch_max_bytes:
            raise ConfigError(
                f"fetch_min_bytes ({self.fetch_min_bytes}) must not be more than "
                f"fetch_max_bytes ({self.fetch_max_bytes})"
            )

    @property
    def committed_only(self) -> bool:
        """Whether records of open and of aborted transactions are left out."""
        return self.isolation_level == "read_committed"


OFFSET_RESETS: Final = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How many partitions are read at once, how far ahead, and what to do when it gets difficult.

    ``max_buffered_bytes`` is for everything that was fetched and is not used up yet, of all streams
    together. ``auto_offset_reset`` is where to go when an offset is not in the log: an error with
    "none". A partition that has something to read and does not move is reported as stalled after
    ``stall_timeout_ms``. With ``retry_timeout_ms`` an error that lasts so long is raised; without,
    it is tried for ever. ``num_consumer_fetchers`` is the number of connections to each broker.
    Brokers are asked for new partitions every ``metadata_refresh_ms``.
    """

    max_buffered_bytes: int = 32 * 2**20
    num_consumer_fetchers: int = 1
    refresh_leader_backoff_ms: int = 200
    auto_offset_reset: str = "latest"
    stall_timeout_ms: int = 10_000
    retry_timeout_ms: int | None = None
    metadata_refresh_ms: int = 5_000

    def __post_init__(self) -> None:
        one_of("auto_offset_reset", self.auto_offset_reset, OFFSET_RESETS)
        whole_number("max_buffered_bytes", self.max_buffered_bytes, 2**16)
        for name in (
            "num_consumer_fetchers",
            "refresh_leader_backoff_ms",
            "stall_timeout_ms",
            "metadata_refresh_ms",
        ):
            whole_number(name, getattr(self, name), 1)
        if self.retry_timeout_ms is not None:
            whole_number("retry_timeout_ms", self.retry_timeout_ms, 0)


def whole_number(name: str, value: object, least: int) -> None:
    """Raise unless the value is one, from `least` to what Kafka's messages can carry."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise ConfigError(
            f"{name} must be a whole number from {least} to {2**31 - 1}, got {value!r}"
        )


def check_together(connection: ConnectionConfig, fetch: FetchConfig) -> None:
    """Raise for options that are each fine and do not go together."""
    if fetch.fetch_max_wait_ms >= connection.request_timeout_ms:
        raise ConfigError(
            f"fetch_max_wait_ms ({fetch.fetch_max_wait_ms}) must be less than request_timeout_ms "
            f"({connection.request_timeout_ms}): a fetch that waits would be taken for lost"
        )
    if fetch.fetch_max_bytes > connection.max_frame_bytes:
        raise ConfigError(
            f"fetch_max_bytes ({fetch.fetch_max_bytes}) must not be more than max_frame_bytes "
            f"({connection.max_frame_bytes}), which answers may have at the most"
        )


def split(
    options: Mapping[str, Any], own: Iterable[str] = ()
) -> tuple[ConnectionConfig, FetchConfig]:
    """The configs that a reader's options make up; `own` are those that the reader itself has.

    Raises for an option that none of them has, and for options that do not go together.
    """
    left = dict(options)
    connection, fetch = _take(left, ConnectionConfig), _take(left, FetchConfig)
    check_together(connection, fetch)
    refuse_unknown(left, ConnectionConfig, FetchConfig, also=own)
    return connection, fetch


Config = TypeVar("Config", bound="ConnectionConfig | FetchConfig")


def _take(options: dict[str, Any], kind: type[Config]) -> Config:
    """A config made of those options that are its own; they are taken out of `options`."""
    own = {field.name for field in fields(kind)} & options.keys()
    return kind(**{name: options.pop(name) for name in own})


def refuse_unknown(options: Iterable[str], *kinds: type[object], also: Iterable[str] = ()) -> None:
    """Raise for the first option left that nobody took, with the nearest right name."""
    known = [*also, *(field.name for kind in kinds for field in fields(kind))]  # type: ignore[arg-type] # dataclasses
    for name in options:
        near = difflib.get_close_matches(name, known, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
        raise ConfigError(f"unknown option {name!r}: {hint}")

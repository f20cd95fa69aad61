"""The options of a ZooKeeper session."""

import ssl
from dataclasses import dataclass, field

from asyncconsumer.config.validation import parse_servers, tls_context, whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """The addresses, login and timeouts of a ZooKeeper session.

    ``zookeeper_connect`` is ``"host:port,host:port/chroot"``. The default port is 2181. All paths
    are below the chroot, which must exist. ``auth`` is ``"user:password"`` for the digest scheme.
    ``sasl`` is ``"user:password"`` for a server that requires SASL (DIGEST-MD5). With
    ``zookeeper_set_acl`` only that user has access to the nodes that this client creates.
    ``connection_timeout_ms`` is the longest wait for a connection, at the start and before a call.
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
                "`zookeeper_connect` must be 'host:port,host:port/chroot', "
                f"got {self.zookeeper_connect!r}"
            )
        _ = self.addresses
        parts = self.chroot.split("/")[1:]
        if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
            raise ConfigError(
                f"`zookeeper_connect` has the chroot {self.chroot!r}: its parts must not be empty, "
                "'.' or '..', and must not have control characters"
            )
        whole_number("session_timeout_ms", self.session_timeout_ms, 100)
        whole_number("connection_timeout_ms", self.connection_timeout_ms, 1)
        whole_number("max_frame_bytes", self.max_frame_bytes, 1024)
        for name in ("auth", "sasl"):  # the value is a secret, so errors do not contain it
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.partition(":")[2]):
                raise ConfigError(f"`{name}` must be 'user:password'")
        tls_context("ssl_context", self.ssl_context)
        if not isinstance(self.zookeeper_set_acl, bool):
            raise ConfigError(
                f"`zookeeper_set_acl` must be True or False, got {self.zookeeper_set_acl!r}"
            )
        if self.zookeeper_set_acl and self.auth is None and self.sasl is None:
            raise ConfigError(
                "`zookeeper_set_acl` needs `zookeeper_auth` or `zookeeper_sasl`, because the nodes "
                "need an owner"
            )

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The servers of the ensemble, without duplicates."""
        return parse_servers(self.zookeeper_connect.partition("/")[0], "zookeeper_connect", 2181)

    @property
    def chroot(self) -> str:
        """The prefix of every path: empty, or ``/part/part``."""
        _, slash, rest = self.zookeeper_connect.strip().partition("/")
        return (slash + rest).rstrip("/")

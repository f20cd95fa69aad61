"""The options of connections to a Kafka cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asyncconsumer.config.security import SecurityConfig
from asyncconsumer.config.validation import parse_servers, text, whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig(SecurityConfig):
    """The addresses, security and timeouts of connections.

    `ConnectionOptions` describes each option.
    """

    bootstrap_servers: str | Sequence[str]
    client_id: str = "asyncconsumer"
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    max_frame_bytes: int = 128 * 2**20

    def __post_init__(self) -> None:
        parse_servers(self.bootstrap_servers)
        text("client_id", self.client_id)
        self.check_security()
        for name, least in _LEAST.items():
            whole_number(name, getattr(self, name), least)
        if self.reconnect_backoff_ms > self.reconnect_backoff_max_ms:
            raise ConfigError(
                f"`reconnect_backoff_ms` ({self.reconnect_backoff_ms}) must not be more than "
                f"`reconnect_backoff_max_ms` ({self.reconnect_backoff_max_ms})"
            )

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers, without duplicates."""
        return parse_servers(self.bootstrap_servers)


_LEAST: Final = {
    "connect_timeout_ms": 1,
    "request_timeout_ms": 1,
    "connections_max_idle_ms": 1,
    "reconnect_backoff_ms": 0,
    "reconnect_backoff_max_ms": 0,
    "max_frame_bytes": 1024,
}

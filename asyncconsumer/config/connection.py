"""The connection options of a Kafka cluster."""

import importlib.util
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from asyncconsumer.config.hosts import parse_hosts
from asyncconsumer.config.tokens import TokenSource, provider_of
from asyncconsumer.config.validation import one_of, parse_servers, text, tls_context, whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """Addresses, security and timeouts of a cluster. Names and units are Kafka's.

    ``bootstrap_servers`` is ``"host:port,host:port"`` or a sequence of such entries. The default
    port is 9092. An IPv6 address needs brackets. ``ssl_context`` has all TLS settings, for example
    ``ssl.create_default_context(cafile="authority.pem")``. ``connect_timeout_ms`` covers TCP, TLS
    and login together. A response of more than ``max_frame_bytes`` is refused without reading it.
    ``sasl_oauth_token_provider`` is a token provider of aiokafka, or a sync or async function that
    returns a token.

    A client connects to the addresses of brokers that other brokers report. With
    ``allowed_hosts`` it connects only to the listed hosts. The list has names, ``*.example.com``
    for all names below it, addresses, and networks like ``10.0.0.0/8``. It is a string with commas
    or a sequence. Names are not resolved: a broker that is reported by name must be listed by
    name.
    """

    bootstrap_servers: str | Sequence[str]
    allowed_hosts: str | Sequence[str] | None = None
    client_id: str = "asyncconsumer"
    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: TokenSource | None = field(default=None, repr=False)
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
        if self.allowed_hosts is not None:
            parse_hosts("allowed_hosts", self.allowed_hosts)
        text("client_id", self.client_id)
        one_of("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        tls_context("ssl_context", self.ssl_context)
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

    def allows(self, address: Address) -> bool:
        """Return whether this client may connect to `address`."""
        hosts = self.allowed_hosts
        return hosts is None or parse_hosts("allowed_hosts", hosts).have(address.host)

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether connections log in with SASL."""
        return self.security_protocol.startswith("SASL")

    def _check_login(self) -> None:
        mechanism = self.sasl_mechanism
        if not self.logs_in:
            if mechanism is not None:
                one_of("sasl_mechanism", mechanism, SASL_MECHANISMS)
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
        if self.sasl_oauth_token_provider is not None:
            self._check_token_provider()
        if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
            raise ConfigError("sasl_mechanism GSSAPI needs the gssapi package: pip install gssapi")

    def _check_token_provider(self) -> None:
        given = self.sasl_oauth_token_provider
        if (provider := provider_of(given)) is None:
            raise ConfigError(
                "sasl_oauth_token_provider must be a function without arguments that returns a "
                f"token, or an aiokafka.abc.AbstractTokenProvider, got a {type(given).__name__}"
            )
        object.__setattr__(self, "sasl_oauth_token_provider", provider)


_LOGIN_ONLY: Final = {  # not the options with defaults, nor the mechanism
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

"""The options of encryption and authentication."""

import importlib.util
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final

from asyncconsumer.auth.azure import AzureEntra
from asyncconsumer.auth.oidc import Oidc
from asyncconsumer.config.choices import (
    SASL_MECHANISMS,
    SECURITY_PROTOCOLS,
    SaslMechanism,
    SecurityProtocol,
)
from asyncconsumer.config.hosts import parse_hosts
from asyncconsumer.config.tls import TLS_OPTIONS, create_context
from asyncconsumer.config.tokens import TokenSource, provider_of
from asyncconsumer.config.validation import one_of, text, tls_context
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The options for TLS, login and allowed hosts. `SecurityOptions` describes each option.

    ``tls`` is the SSL context of connections, or None without TLS. It is created from the options
    when the config is created.
    """

    security_protocol: SecurityProtocol = "PLAINTEXT"
    allowed_hosts: str | Sequence[str] | None = None
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = field(default=None, repr=False)
    ssl_keyfile: str | None = field(default=None, repr=False)
    ssl_password: str | None = field(default=None, repr=False)
    sasl_mechanism: SaslMechanism | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: TokenSource | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: str | None = None
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None

    tls: ssl.SSLContext | None = field(init=False, repr=False, compare=False, default=None)

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether connections log in with SASL."""
        return self.security_protocol.startswith("SASL")

    def allows(self, address: Address) -> bool:
        """Return whether this client may connect to the host of `address`."""
        hosts = self.allowed_hosts
        return hosts is None or parse_hosts("allowed_hosts", hosts).contains(address.host)

    def check_security(self) -> None:
        """Raise ConfigError for security options that are invalid or conflict."""
        if self.allowed_hosts is not None:
            parse_hosts("allowed_hosts", self.allowed_hosts)
        one_of("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        self._check_tls()
        if self.sasl_mechanism is not None:
            one_of("sasl_mechanism", self.sasl_mechanism, SASL_MECHANISMS)
        if self.logs_in:
            self._check_login()
        else:
            self._refuse_login()

    def _check_tls(self) -> None:
        tls_context("ssl_context", self.ssl_context)
        options = [name for name in TLS_OPTIONS if getattr(self, name) is not None]
        for name in options:
            if name != "ssl_context":
                text(name, getattr(self, name))
        if options and not self.encrypted:
            raise ConfigError(
                f"`{options[0]}` is set, but `security_protocol` {self.security_protocol} does not "
                f"use TLS. Set `security_protocol` to SSL or SASL_SSL, or remove `{options[0]}`"
            )
        if self.ssl_context is not None and len(options) > 1:
            raise ConfigError(f"`ssl_context` and `{options[1]}` are both set. Remove one of them")
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_password"):
                if name in options:
                    raise ConfigError(f"`{name}` needs `ssl_certfile`")
        if self.encrypted:
            files = self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile, self.ssl_password
            object.__setattr__(self, "tls", self.ssl_context or create_context(*files))

    def _refuse_login(self) -> None:
        for name in _LOGIN_ONLY:
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"`{name}` is set, but `security_protocol` {self.security_protocol} does not "
                    f"log in. Set `security_protocol` to SASL_SSL or SASL_PLAINTEXT, or remove "
                    f"`{name}`"
                )

    def _check_login(self) -> None:
        mechanism = self.sasl_mechanism
        if mechanism is None:
            raise ConfigError(
                f"`security_protocol` {self.security_protocol} needs `sasl_mechanism`, one of "
                f"{', '.join(SASL_MECHANISMS)}"
            )
        if mechanism == "OAUTHBEARER":
            self._choose_token_provider()
        if not self.encrypted:
            _warn_unencrypted(mechanism)
        for name in _NEEDED.get(mechanism, ("sasl_plain_username", "sasl_plain_password")):
            if not getattr(self, name):
                raise ConfigError(f"`sasl_mechanism` {mechanism} needs `{name}`")
        if self.sasl_oauth_token_provider is not None:
            self._check_token_provider()
        if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
            raise ConfigError(
                "`sasl_mechanism` GSSAPI needs the gssapi package: run `pip install gssapi`"
            )

    def _choose_token_provider(self) -> None:
        """Create the token provider that the options describe, if they describe one."""
        url, scope = self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_scope
        provider: object = self.sasl_oauth_token_provider
        if provider is AzureEntra:
            provider = AzureEntra(scope or "")
        elif url is not None and not isinstance(provider, Oidc):
            if provider is not None:
                raise ConfigError(
                    "`sasl_oauth_token_provider` and `sasl_oauthbearer_token_endpoint_url` are "
                    "both set. Remove one of them"
                )
            login = [getattr(self, name) for name in _CLIENT_CREDENTIALS]
            for name, value in zip(_CLIENT_CREDENTIALS, login, strict=True):
                if not value:
                    raise ConfigError(f"`sasl_oauthbearer_token_endpoint_url` needs `{name}`")
            extensions = parse_extensions(self.sasl_oauthbearer_extensions or "")
            provider = Oidc(url, *login, scope=scope, extensions=extensions)
        object.__setattr__(self, "sasl_oauth_token_provider", provider)

    def _check_token_provider(self) -> None:
        source = self.sasl_oauth_token_provider
        if (provider := provider_of(source)) is None:
            raise ConfigError(
                "`sasl_oauth_token_provider` must be a function without arguments that returns a "
                f"token, or an aiokafka.abc.AbstractTokenProvider, got a {type(source).__name__}"
            )
        object.__setattr__(self, "sasl_oauth_token_provider", provider)


def security_options(config: SecurityConfig) -> dict[str, Any]:
    """Return the security options in a config, by name."""
    return {
        field.name: getattr(config, field.name) for field in fields(SecurityConfig) if field.init
    }


def parse_extensions(value: str) -> dict[str, str]:
    """Return the SASL extensions in a text such as "name=value,name=value"."""
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if not all(name.strip() and content.strip() for name, _, content in pairs):
        raise ConfigError("`sasl_oauthbearer_extensions` must have the form name=value,name=value")
    return {name.strip(): content.strip() for name, _, content in pairs}


@cache
def _warn_unencrypted(mechanism: str) -> None:
    """Log a warning that a login with this mechanism is not encrypted, once for each mechanism."""
    _log.warning(
        "the login by %s and all records are sent without TLS; set security_protocol to SASL_SSL",
        mechanism,
    )


_CLIENT_CREDENTIALS: Final = (
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
_LOGIN_ONLY: Final = (  # not the options with defaults, nor the mechanism
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    *_CLIENT_CREDENTIALS,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    "sasl_kerberos_domain_name",
)
_NEEDED: Final = {
    "OAUTHBEARER": ("sasl_oauth_token_provider",),
    "GSSAPI": ("sasl_kerberos_service_name",),
}

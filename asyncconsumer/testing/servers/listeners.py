"""The listeners of a test broker, and the client settings for each."""

import base64
import json
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from asyncconsumer.aiokafka_parts import AbstractTokenProvider
from asyncconsumer.testing.servers.ports import HOST

PASSWORDS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
"""The users of every SASL listener. OAUTHBEARER takes any subject."""

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a test broker. This module has constants for the usual listeners."""

    name: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    client_certificate: bool = False
    certificate_host: str = HOST  # another name makes a certificate that clients must reject

    @property
    def encrypted(self) -> bool:
        """Whether the listener uses TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")


INTERNAL: Final = Listener("INTERNAL")
"""The listener for connections between brokers, and for clients without security."""
PROXIED: Final = Listener("PROXIED")
"""The listener that is advertised at the port of a TCP proxy, so that clients use the proxy."""
TLS: Final = Listener("TLS", "SSL")
TLS_WRONG_HOST: Final = Listener("TLSWRONGHOST", "SSL", certificate_host="elsewhere.example")
MUTUAL_TLS: Final = Listener("MUTUALTLS", "SSL", client_certificate=True)
SASL_PLAIN: Final = Listener("SASLPLAIN", "SASL_SSL", "PLAIN")
SASL_PLAIN_UNENCRYPTED: Final = Listener("SASLPLAINTEXT", "SASL_PLAINTEXT", "PLAIN")
SASL_SCRAM: Final = Listener("SASLSCRAM", "SASL_SSL", "SCRAM-SHA-512")
SASL_OAUTH: Final = Listener("SASLOAUTH", "SASL_SSL", "OAUTHBEARER")
SECURE: Final = (
    TLS,
    TLS_WRONG_HOST,
    MUTUAL_TLS,
    SASL_PLAIN,
    SASL_PLAIN_UNENCRYPTED,
    SASL_SCRAM,
    SASL_OAUTH,
)


class Certificates:
    """A certificate authority for a cluster, with files for brokers and clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.authority_file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(self.authority_file)
        self.client_file = self._issue("client", "client.example")

    def broker_file(self, host: str) -> Path:
        """Write a file with the key and certificate of a broker named `host`, in Kafka's format.

        Return the path of the file.
        """
        return self._issue(f"broker-{host}", host)

    def _issue(self, name: str, host: str) -> Path:
        path = self._folder / f"{name}.pem"
        if not path.exists():
            issued = self._authority.issue_cert(host, common_name=host)
            key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
            path.write_bytes(
                # Kafka accepts a private key only in this encoding
                key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                + b"".join(blob.bytes() for blob in issued.cert_chain_pems)
            )
        return path

    def client_context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """Return a TLS context for clients that trusts the brokers of this authority."""
        context = ssl.create_default_context(cafile=self.authority_file)
        if with_certificate:
            context.load_cert_chain(self.client_file)
        return context


class UnsecuredToken(AbstractTokenProvider):
    """A provider of unsigned tokens for the user `subject`, for the listener SASL_OAUTH."""

    def __init__(self, subject: str, lifetime: timedelta = timedelta(hours=1)) -> None:
        self._subject = subject
        self._lifetime = lifetime

    async def token(self) -> str:
        """Return a new token. With a negative lifetime, the token has already expired."""
        expires = datetime.now(UTC) + self._lifetime
        issued = min(datetime.now(UTC), expires) - timedelta(minutes=1)
        claims = {"sub": self._subject, "iat": issued.timestamp(), "exp": expires.timestamp()}
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        header, payload = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
        return f"{header}.{payload}."


def broker_settings(listener: Listener, certificates: Certificates | None) -> dict[str, str]:
    """Return the broker properties for a listener. Only TLS listeners need certificates."""
    settings: dict[str, str] = {}
    prefix = f"listener.name.{listener.name.lower()}"
    if listener.encrypted:
        assert certificates is not None
        settings |= {
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(
                certificates.broker_file(listener.certificate_host)
            ),
            f"{prefix}.ssl.truststore.type": "PEM",
            f"{prefix}.ssl.truststore.location": str(certificates.authority_file),
            f"{prefix}.ssl.client.auth": "required" if listener.client_certificate else "none",
        }
    if listener.sasl_mechanism:
        users = ""
        if listener.sasl_mechanism == "PLAIN":
            users = "".join(f' user_{user}="{word}"' for user, word in PASSWORDS.items())
        login = f"{_LOGIN_MODULES[listener.sasl_mechanism]} required{users};"
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": listener.sasl_mechanism,
            f"{prefix}.{listener.sasl_mechanism.lower()}.sasl.jaas.config": login,
        }
    return settings


def client_settings(
    listener: Listener, certificates: Certificates | None, user: str
) -> dict[str, object]:
    """Return the client options for a listener, except `bootstrap_servers`.

    They are for aiokafka and asyncconsumer.
    """
    settings: dict[str, object] = {"security_protocol": listener.security_protocol}
    if listener.encrypted:
        assert certificates is not None
        settings["ssl_context"] = certificates.client_context(
            with_certificate=listener.client_certificate
        )
    if listener.sasl_mechanism:
        settings["sasl_mechanism"] = listener.sasl_mechanism
    if listener.sasl_mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = UnsecuredToken(user)
    elif listener.sasl_mechanism:
        settings |= {"sasl_plain_username": user, "sasl_plain_password": PASSWORDS[user]}
    return settings

"""The certificate of a broker, read from a TLS handshake."""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from asyncconsumer.admin.diagnosis.finding import Finding
from asyncconsumer.aio.name_resolution import connect
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.types import Address

Certificate: TypeAlias = Mapping[str, Any]
"""A verified certificate in the form of `ssl.SSLSocket.getpeercert`."""

_SOON: Final = timedelta(days=30)


async def fetch_certificate(
    address: Address, config: ConnectionConfig, context: ssl.SSLContext
) -> Certificate | None:
    """Return the certificate of a broker from a TLS handshake.

    Return None if the handshake fails, or if `context` does not verify certificates.
    """
    handshake = _Handshake()
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            await connect(lambda: handshake, address, context)
    except (OSError, ValueError):  # SSLError and TimeoutError are OSErrors
        return None
    return handshake.certificate or None


class _Handshake(asyncio.Protocol):
    """A connection that stores the broker's certificate after the TLS handshake and then closes."""

    def __init__(self) -> None:
        self.certificate: Certificate = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the certificate of the broker, and close the connection."""
        self.certificate = transport.get_extra_info("peercert") or {}
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def names_in(certificate: Certificate) -> list[str]:
    """Return the host names and IP addresses for which a certificate is valid."""
    return [str(name) for _, name in certificate.get("subjectAltName", ())]


def certificate_finding(address: Address, certificate: Certificate) -> Finding:
    """Return a finding that tells when a verified certificate expires."""
    names = ", ".join(names_in(certificate))
    end = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    remaining = end - datetime.now(UTC)
    if remaining < _SOON:
        message = f"the certificate expires in {remaining.days} days, on {end:%Y-%m-%d}"
        advice = "Renew the certificate of the broker before that date"
        return Finding("warning", "tls", str(address), message, advice)
    message = f"the certificate is trusted, valid for {names}, until {end:%Y-%m-%d}"
    return Finding("ok", "tls", str(address), message)

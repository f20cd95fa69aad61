"""The opening of a connection (TCP, TLS, ApiVersions and SASL login) with specific errors."""

import asyncio
import ssl
from typing import Final

from asyncconsumer.aio.name_resolution import connect
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    BrokerConnectionError,
    CertificateRefused,
    ClientCertificateRefused,
    ConnectFailed,
    ConnectionLost,
    ConsumerError,
    NotTls,
    TlsFailed,
    WrongHost,
)
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.sasl import Login
from asyncconsumer.types import Address

_WRONG_HOST: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


async def open_connection(address: Address, config: ConnectionConfig) -> BrokerConnection:
    """Return a connection that is ready for requests. If that fails, raise a specific error.

    A failed attempt leaves no open socket.
    """
    connection = BrokerConnection(address, config)
    allowed = config.connect_timeout_ms / 1000
    try:
        async with asyncio.timeout(allowed):
            await _connect(connection, config)
            await _log_in(connection, config)
    except TimeoutError as error:
        raise ConnectFailed(address, f"no connection within {allowed:g} s") from error
    return connection


async def _connect(connection: BrokerConnection, config: ConnectionConfig) -> None:
    """Connect over TCP, and start TLS if it is configured."""
    address = connection.address
    try:
        await connect(lambda: connection, address, config.tls)
    except ssl.SSLError as error:
        raise _tls_error(address, error) from error
    except (OSError, ValueError, OverflowError) as error:  # invalid host or port
        if isinstance(error, ConnectionResetError) and config.encrypted:
            await _refuse_plaintext(address, config)
        raise ConnectFailed(address, str(error) or type(error).__name__) from error


async def _log_in(connection: BrokerConnection, config: ConnectionConfig) -> None:
    """Request ApiVersions, then log in if SASL is configured."""
    try:
        await Login(connection, config).run()
    except BaseException as error:
        connection.close()
        await connection.wait_closed()
        if not isinstance(error, ConnectionLost):
            raise
        if isinstance(error.__cause__, ssl.SSLError):
            # in TLS 1.3 a broker refuses the client certificate after the handshake
            raise _tls_error(connection.address, error.__cause__) from error
        raise ConnectFailed(connection.address, f"{error.reason} during the login") from error


async def _refuse_plaintext(address: Address, config: ConnectionConfig) -> None:
    """Raise `NotTls` if the broker answers without TLS. Otherwise return.

    A plaintext broker closes connections that begin with TLS. A closed connection may have other
    causes, so this is verified by an ApiVersions request without TLS and without login.
    """
    plain = ConnectionConfig(
        bootstrap_servers=str(address), connect_timeout_ms=config.connect_timeout_ms
    )
    try:
        connection = await open_connection(address, plain)
    except ConsumerError:
        return
    connection.close()
    await connection.wait_closed()
    raise NotTls(address, "the broker responds in plaintext (PLAINTEXT or SASL_PLAINTEXT)")


def _tls_error(address: Address, error: ssl.SSLError) -> BrokerConnectionError:
    if isinstance(error, ssl.SSLCertVerificationError):
        kind = WrongHost if error.verify_code in _WRONG_HOST else CertificateRefused
        return kind(address, f"its certificate is not valid: {error.verify_message.rstrip('.')}")
    reason = error.reason or str(error)
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return ClientCertificateRefused(
            address, f"the broker refused the client certificate: {reason}"
        )
    if reason in _NO_TLS:
        return NotTls(address, "it does not respond with TLS")
    return TlsFailed(address, f"the TLS handshake failed: {reason}")

"""The check of one broker address: DNS, TCP, TLS and login."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from asyncconsumer.admin.diagnosis.certificates import (
    certificate_finding,
    fetch_certificate,
    names_in,
)
from asyncconsumer.admin.diagnosis.finding import Finding, first_error, from_error
from asyncconsumer.admin.diagnosis.logins import login_finding
from asyncconsumer.aio.name_resolution import open_socket, resolve
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConnectionLost,
    ConsumerError,
    HostNotAllowed,
    TlsFailed,
    WrongHost,
)
from asyncconsumer.net.connect import open_connection
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.types import Address

_EXPIRED, _NOT_YET_VALID = 10, 9  # X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID
_VALIDITY_ADVICE: Final = {
    _EXPIRED: "Renew the certificate of the broker, and check the clock of this machine",
    _NOT_YET_VALID: "Check the clock of this machine, and the start date of the certificate",
}


@dataclass(slots=True)
class AddressReport:
    """The findings about one broker address, and the broker's responses if there were any."""

    address: Address
    findings: list[Finding] = field(default_factory=list)
    metadata: Mapping[str, Any] | None = None
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def failure(self) -> Finding | None:
        """The finding that tells why the address cannot be used, or None if it can be used."""
        return first_error(self.findings)

    def add(self, finding: Finding) -> None:
        """Add a finding to the report."""
        self.findings.append(finding)


async def check_address(address: Address, config: ConnectionConfig) -> AddressReport:
    """Check each step of a connection to a broker, up to the first step that fails."""
    report = AddressReport(address)
    if not config.allows(address):
        refused = HostNotAllowed(address, "the host is not in `allowed_hosts`")
        report.add(from_error("listener", address, refused))
        return report
    if await _check_network(report, config):
        await _check_kafka(report, config)
    return report


async def _check_network(report: AddressReport, config: ConnectionConfig) -> bool:
    """Resolve the host name, and connect to each IP address.

    Return whether a connection to at least one of them succeeded.
    """
    address, allowed = report.address, config.connect_timeout_ms / 1000
    try:
        async with asyncio.timeout(allowed):
            endpoints = await resolve(address.host)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        reason = str(error) or f"no answer within {allowed:g} s"
        advice = "Check the spelling, and the name servers and the hosts file of this machine"
        message = f"the name {address.host!r} cannot be resolved: {reason}"
        report.add(Finding("error", "dns", str(address), message, advice))
        return False
    hosts = list(dict.fromkeys(str(endpoint.sockaddr[0]) for endpoint in endpoints))
    if hosts != [address.host]:
        report.add(Finding("ok", "dns", str(address), f"resolves to {', '.join(hosts)}"))
    failures = []
    for endpoint in endpoints:
        try:
            async with asyncio.timeout(allowed):
                (await open_socket(endpoint, address.port)).close()
        except (OSError, ValueError, OverflowError) as error:
            reason = str(error) or f"no answer within {allowed:g} s"
            failures.append(f"{endpoint.sockaddr[0]}: {reason}")
    report.add(_tcp_finding(address, len(endpoints), failures))
    return len(failures) < len(endpoints)


def _tcp_finding(address: Address, count: int, failures: list[str]) -> Finding:
    if not failures:
        return Finding("ok", "tcp", str(address), "accepts connections")
    reasons = "; ".join(failures)
    if len(failures) == count:
        advice = "Check that a broker listens at this address and that no firewall blocks it"
        return Finding("error", "tcp", str(address), f"no connection: {reasons}", advice)
    advice = "Remove this address from the name, or make the broker listen at it"
    message = f"{len(failures)} of {count} addresses of the name fail: {reasons}"
    return Finding("warning", "tcp", str(address), message, advice)


async def _check_kafka(report: AddressReport, config: ConnectionConfig) -> None:
    """Open a connection as a consumer does, and request metadata over it."""
    address = report.address
    try:
        connection = await open_connection(address, config)
    except TlsFailed as error:
        report.add(await _tls_finding(address, config, error))
        return
    except AuthenticationFailed as error:
        await _add_certificate(report, config)
        report.add(await login_finding(address, config, error))
        return
    except ConsumerError as error:
        await _add_certificate(report, config)
        report.add(from_error("protocol", address, error))
        return
    try:
        await _add_certificate(report, config)
        report.versions = dict(connection.versions)
        report.metadata = (await connection.request(MetadataRequest())).to_object()
        if config.logs_in:
            user = f" as {config.sasl_plain_username}" if config.sasl_plain_username else ""
            message = f"logged in with {config.sasl_mechanism}{user}"
            report.add(Finding("ok", "sasl", str(address), message))
    except ConnectionLost as error:
        advice = "Set `security_protocol` to the protocol of this listener, with `sasl_mechanism`"
        report.add(from_error("sasl", address, error, "" if config.logs_in else advice))
    except ConsumerError as error:
        report.add(from_error("protocol", address, error))
    finally:
        connection.close()
        await connection.wait_closed()


async def _add_certificate(report: AddressReport, config: ConnectionConfig) -> None:
    if config.tls is not None:
        certificate = await fetch_certificate(report.address, config, config.tls)
        if certificate is not None:
            report.add(certificate_finding(report.address, certificate))


async def _tls_finding(address: Address, config: ConnectionConfig, error: TlsFailed) -> Finding:
    cause = error.__cause__
    if isinstance(error, CertificateRefused) and isinstance(cause, ssl.SSLCertVerificationError):
        return from_error("tls", address, error, _VALIDITY_ADVICE.get(cause.verify_code, ""))
    if isinstance(error, WrongHost) and config.ssl_context is None:
        context = replace(config).tls  # a new context, made from the same options
        assert context is not None
        context.check_hostname = False
        certificate = await fetch_certificate(address, config, context)
        if certificate is not None:
            reason = f"{error.reason}; it is valid for {', '.join(names_in(certificate))}"
            return Finding("error", "tls", str(address), reason, error.advice)
    return from_error("tls", address, error)

"""The checks of the bootstrap servers, and of the addresses that the brokers advertise."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import replace

from asyncconsumer.admin.diagnosis.addresses import AddressReport, check_address
from asyncconsumer.admin.diagnosis.finding import Finding
from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.types import Address


async def check_addresses(
    addresses: Iterable[Address], config: ConnectionConfig
) -> list[AddressReport]:
    """Check all addresses concurrently. Return the reports in the order of the addresses."""
    reports: dict[Address, AddressReport] = {}
    ordered = list(dict.fromkeys(addresses))

    async def check(address: Address) -> None:
        reports[address] = await check_address(address, config)

    await for_each(ordered, check, limit=20)
    return [reports[address] for address in ordered]


def bootstrap_findings(reports: Sequence[AddressReport]) -> list[Finding]:
    """Return all findings about the bootstrap servers, from their reports.

    One server is enough to start, so the failure of another one is only a warning.
    """
    works = any(report.metadata is not None for report in reports)
    return [
        replace(finding, level="warning") if works and finding.level == "error" else finding
        for report in reports
        for finding in report.findings
    ]


async def check_listeners(
    bootstrap: Sequence[AddressReport], config: ConnectionConfig
) -> tuple[list[Finding], list[AddressReport]]:
    """Check the addresses that brokers advertise in their metadata.

    Return the findings, and one report per broker.
    """
    source = next(report for report in bootstrap if report.metadata is not None)
    assert source.metadata is not None
    brokers = {
        row["node_id"]: Address(row["host"], row["port"]) for row in source.metadata["brokers"]
    }
    known = {report.address: report for report in bootstrap}
    new = [address for address in brokers.values() if address not in known]
    known |= {report.address: report for report in await check_addresses(new, config)}
    cluster = source.metadata["cluster_id"]
    findings = [
        _finding(node_id, known[address], source, cluster)
        for node_id, address in sorted(brokers.items())
    ]
    return findings, [known[address] for _, address in sorted(brokers.items())]


def _finding(
    node_id: int, report: AddressReport, source: AddressReport, cluster: str | None
) -> Finding:
    address, failure = report.address, report.failure
    subject = f"broker {node_id}"
    if failure is not None:
        message = (
            f"advertises {address}, which this machine cannot use ({failure.check}): "
            f"{failure.message}"
        )
        advice = failure.advice
        if failure.check in ("dns", "tcp"):
            advice = (
                "Set `advertised.listeners` of the broker to an address that this machine can "
                f"reach, or open the way to it. The bootstrap server {source.address} works, but "
                "records are read from the advertised address"
            )
            if is_loopback(address.host) and not is_loopback(source.address.host):
                message += f"; {address.host} means this machine itself, not the broker"
        return Finding("error", "listener", subject, message, advice)
    if report.metadata is not None and report.metadata["cluster_id"] != cluster:
        message = (
            f"advertises {address}, where another cluster answers: "
            f"{report.metadata['cluster_id']} instead of {cluster}"
        )
        advice = "Correct `advertised.listeners` of the broker, or the tunnel to it"
        return Finding("error", "listener", subject, message, advice)
    return Finding("ok", "listener", subject, f"advertises {address}, which works from here")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address always means the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

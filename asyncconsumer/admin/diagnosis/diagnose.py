"""`diagnose`, which finds out why a consumer does not work.

for finding in await diagnose("localhost:9092", group="billing", topics=["orders"]):
    print(finding)
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from asyncconsumer.admin.diagnosis.finding import Finding
from asyncconsumer.admin.diagnosis.listeners import (
    bootstrap_findings,
    check_addresses,
    check_listeners,
)
from asyncconsumer.config import AdminOptions, ConnectionConfig, refuse_unknown
from asyncconsumer.config.tls import refuse_tls_options


async def diagnose(
    bootstrap_servers: str | Sequence[str],
    *,
    on_finding: Callable[[Finding], None] | None = None,
    **options: Unpack[AdminOptions],
) -> list[Finding]:
    """Check the way to a cluster, and return a finding for each check.

    The checks are DNS, TCP, TLS, login, and the addresses that brokers advertise. Options are those
    of `Admin`. Each finding is also passed to `on_finding` as soon as it is known. Nothing is
    changed in the cluster.
    """
    refuse_tls_options(options)
    refuse_unknown(options, ConnectionConfig)
    config = ConnectionConfig(
        bootstrap_servers=bootstrap_servers,
        **{name: value for name, value in options.items() if value is not None},  # type: ignore[arg-type] # names are checked
    )
    findings: list[Finding] = []

    def add(new: Iterable[Finding]) -> None:
        for finding in new:
            findings.append(finding)
            if on_finding is not None:
                on_finding(finding)

    bootstrap = await check_addresses(config.addresses, config)
    add(bootstrap_findings(bootstrap))
    if all(report.metadata is None for report in bootstrap):
        return findings
    listener_findings, _ = await check_listeners(bootstrap, config)
    add(listener_findings)
    return findings

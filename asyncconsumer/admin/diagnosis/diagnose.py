"""`diagnose`, which finds out why a consumer does not work.

for finding in await diagnose("localhost:9092", group="billing", topics=["orders"]):
    print(finding)
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Unpack

from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.diagnosis.cluster import (
    check_clock,
    check_features,
    check_replication,
    check_versions,
)
from asyncconsumer.admin.diagnosis.cluster_view import ClusterView
from asyncconsumer.admin.diagnosis.finding import Finding, from_error
from asyncconsumer.admin.diagnosis.groups import check_group
from asyncconsumer.admin.diagnosis.listeners import (
    bootstrap_findings,
    check_addresses,
    check_listeners,
)
from asyncconsumer.admin.diagnosis.permissions import check_group_access, check_topics
from asyncconsumer.config import AdminOptions, ConnectionConfig, refuse_unknown
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.errors import ConsumerError

_PATIENCE_MS: Final = 3_000  # short, because a user is waiting


async def diagnose(
    bootstrap_servers: str | Sequence[str],
    *,
    group: str | None = None,
    topics: Iterable[str] = (),
    observe_seconds: float = 6.0,
    on_finding: Callable[[Finding], None] | None = None,
    **options: Unpack[AdminOptions],
) -> list[Finding]:
    """Check the connection to a cluster and the cluster itself. Return a finding for each check.

    The checks are DNS, TCP, TLS, login, advertised addresses, versions, the clock, replication, and
    the permissions, state, offsets and progress of `group` for `topics`. A partition with a lag
    makes progress if its group commits within `observe_seconds`. Options are those of `Admin`. Each
    finding is also passed to `on_finding` as soon as it is known. Nothing is changed.
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
    listener_findings, brokers = await check_listeners(bootstrap, config)
    add(listener_findings)
    usable = [report for report in brokers if report.failure is None]
    if not usable:
        return findings
    add(check_versions(usable))
    client = AdminClient(config, None, brokers_from_zookeeper=False, patience_ms=_PATIENCE_MS)
    async with client:
        checks = _cluster_checks(ClusterView(client), sorted(set(topics)), config)
        async for new in checks:
            add(new)
        if group is not None:
            async for new in _group_checks(ClusterView(client), group, observe_seconds, config):
                add(new)
    return findings


async def _cluster_checks(
    view: ClusterView, topics: list[str], config: ConnectionConfig
) -> AsyncIterator[list[Finding]]:
    yield [await check_features(view)]
    yield [await check_clock(view)]
    try:
        permissions = await check_topics(view.client, topics, _user(config))
    except ConsumerError as error:
        permissions = [from_error("topic", ", ".join(topics), error)]
    yield permissions
    readable = [topic for topic in topics if f"topic {topic}" in _passed(permissions)]
    if topics and not readable:
        return
    try:
        yield await check_replication(view, readable)
    except ConsumerError as error:
        yield [from_error("replication", "cluster", error)]


async def _group_checks(
    view: ClusterView, group: str, observe_seconds: float, config: ConnectionConfig
) -> AsyncIterator[list[Finding]]:
    access = await check_group_access(view.client, group, _user(config))
    yield [access]
    if access.level == "error":
        return
    try:
        yield await check_group(view, group, observe_seconds)
    except ConsumerError as error:
        yield [from_error("group", f"group {group}", error)]


def _passed(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects, such as topics, of the findings whose level is "ok"."""
    return {finding.subject for finding in findings if finding.level == "ok"}


def _user(config: ConnectionConfig) -> str:
    """Return the name of the configured user, for messages."""
    name = config.sasl_plain_username
    return f"user {name}" if name else "the user of this client"

"""Dashboards of a cluster, of a process, and of a consumer, as ASGI apps."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final, Unpack

from asyncconsumer.admin.admin import Admin
from asyncconsumer.config import AdminOptions, ConnectionConfig, ConsumerConfig
from asyncconsumer.dashboard.access import HostCheck, TokenCheck, read_token
from asyncconsumer.dashboard.actions import Actions
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.snapshotter import AdminFactory, Snapshotter
from asyncconsumer.errors import ConfigError
from asyncconsumer.web.status import StatusSource

DEFAULT_INTERVAL: Final = 1.0
_PATIENCE_MS: Final = 3_000


def dashboard(
    bootstrap_servers: str | None = None,
    *,
    zookeeper_connect: str | None = None,
    interval: float = DEFAULT_INTERVAL,
    http_hosts: Iterable[str] = (),
    dead_letter_topics: Iterable[str] = (),
    **options: Unpack[AdminOptions],
) -> DashboardSite:
    """Return the dashboard of a cluster as an ASGI app, which is read-only.

    Browsers may reach it as localhost, and by the names in `http_hosts`. It has no login, so mount
    it behind that of your web app. Topics in `dead_letter_topics`, and those with ``dlq``, ``dlt``
    or ``dead-letter`` in their names, are shown as dead letter topics.
    """
    addresses: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "zookeeper_connect": zookeeper_connect,
    }
    return make_site(
        admin_factory({**addresses, **options}),
        interval=interval,
        hosts=HostCheck(http_hosts),
        dead_letter_topics=dead_letter_topics,
    )


def make_site(
    admin: AdminFactory | None,
    *,
    interval: float = DEFAULT_INTERVAL,
    status: StatusSource = dict,
    hosts: HostCheck | None = None,
    token: TokenCheck | None = None,
    actions: Actions | None = None,
    dead_letter_topics: Iterable[str] = (),
) -> DashboardSite:
    """Return the dashboard of a cluster, with the status of this process or of its workers.

    `admin` creates admin clients. If it is None, the dashboard shows no cluster.
    """
    if not interval >= 0.1:
        raise ConfigError(f"`interval` must be at least 0.1 s, got {interval!r}")
    collector = ClusterCollector(
        interval=interval, status=status, dead_letter_topics=dead_letter_topics
    )
    return DashboardSite(Snapshotter(collector, admin), hosts=hosts, token=token, actions=actions)


def site_of_consumer(
    config: ConsumerConfig,
    status: StatusSource,
    http_hosts: Iterable[str],
    actions: Actions,
    dead_letter_topics: Iterable[str] = (),
) -> DashboardSite:
    """Return the dashboard of the cluster of a consumer.

    The token that permits changes is read from the environment.
    """
    return make_site(
        admin_factory(admin_options(config)),
        status=status,
        hosts=HostCheck(http_hosts),
        token=TokenCheck(read_token()),
        actions=actions,
        dead_letter_topics=dead_letter_topics,
    )


def admin_options(config: ConsumerConfig) -> dict[str, Any]:
    """Return the options of an admin client for the cluster of a consumer."""
    connection, classic = config.connection, config.zookeeper
    options: dict[str, Any] = {
        field.name: getattr(connection, field.name)
        for field in fields(ConnectionConfig)
        if field.init
    }
    if classic is not None:
        zookeeper = classic.zookeeper()
        options |= {
            "bootstrap_servers": classic.bootstrap_servers or None,
            "zookeeper_connect": zookeeper.zookeeper_connect,
            "zookeeper_auth": zookeeper.auth,
            "zookeeper_sasl": zookeeper.sasl,
            "zookeeper_ssl_context": zookeeper.ssl_context,
        }
    return options


def admin_factory(options: dict[str, Any]) -> AdminFactory:
    """Return a function that creates admin clients.

    Raise ConfigError for invalid options at once, and not when the first client is created.
    """

    def make() -> Admin:
        return Admin(**{"retry_timeout_ms": _PATIENCE_MS, **options})

    make()
    return make

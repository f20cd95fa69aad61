"""The command `asyncconsumer top`."""

from typing import Annotated

import typer

from asyncconsumer.cli.connect import admin_options, read_options
from asyncconsumer.cli.shared_options import Bootstrap, PropertiesFile, Property, ZooKeeper
from asyncconsumer.cli.signals import log_zookeeper_retries
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.sites import DEFAULT_INTERVAL, admin_factory
from asyncconsumer.dashboard.snapshotter import Snapshotter


def top_command(
    *,
    bootstrap_servers: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two polls.")
    ] = DEFAULT_INTERVAL,
) -> None:
    """Watch groups in the terminal: lag, rates, members, owners and rebalances.

    Keys: up and down select a group, s changes the order, q quits.

    Example: asyncconsumer top -b localhost:9092
    """
    from asyncconsumer.cli.top_view import TopView  # textual takes long to import

    options = read_options(bootstrap_servers, zookeeper, properties, property_)
    log_zookeeper_retries(enabled=False)
    snapshotter = Snapshotter(
        ClusterCollector(interval=interval), admin_factory(admin_options(options))
    )
    TopView(snapshotter).run()

"""The command `asyncconsumer dashboard`."""

import asyncio
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.connect import admin_options, read_options
from asyncconsumer.cli.shared_options import Bootstrap, PropertiesFile, Property, ZooKeeper
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.dashboard.access import HostCheck, TokenCheck, read_token
from asyncconsumer.dashboard.actions import Actions
from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.sites import DEFAULT_INTERVAL, admin_factory, make_site
from asyncconsumer.handlers.dashboard_actions import ReplayActions
from asyncconsumer.web.server import serving

AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Host name by which browsers may open the dashboard, besides localhost. Repeatable. "
        "'*' allows every name.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token that permits changes. Default: "
        "$ASYNCCONSUMER_DASHBOARD_TOKEN. Without a token the dashboard is read-only.",
    ),
]
Interval = Annotated[float, typer.Option(min=0.1, help="Seconds between two polls.")]


def dashboard_command(
    *,
    bootstrap_servers: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8080,
    interval: Interval = DEFAULT_INTERVAL,
    allowed_host: AllowedHost = None,
    dead_letter_topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="A dead letter topic whose name does not have dlq, dlt or dead-letter in it. "
            "Repeatable.",
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Serve a live page of a cluster: groups, owners, lag, rebalances and dead letters.

    The page has no login. It listens on this machine only, unless --host is set.

    Example: asyncconsumer dashboard -b localhost:9092
    """
    options = read_options(bootstrap_servers, zookeeper, properties, property_)
    selected = admin_options(options)
    site = make_site(
        admin_factory(selected),
        interval=interval,
        hosts=HostCheck(allowed_host or ()),
        token=TokenCheck(read_token(token_file)),
        actions=replay_actions(options, dead_letter_topic or ()),
        dead_letter_topics=dead_letter_topic or (),
    )
    run_until_stopped(lambda: _serve(site, host, port), stop_is_success=True)


async def _serve(site: DashboardSite, host: str, port: int) -> None:
    async with serving(site, host, port, before_stop=site.close) as port:
        name = f"[{host}]" if ":" in host else host
        text.print_message(f"serving the dashboard on http://{name}:{port}")
        await asyncio.Event().wait()


def replay_actions(options: dict[str, Any], topics: Iterable[str] = ()) -> Actions | None:
    """Return the action that replays dead letters, or None if no brokers are configured.

    `topics` are dead letter topics that cannot be recognized by their names.
    """
    names = {field.name for field in fields(ConnectionConfig) if field.init}
    connection = {name: value for name, value in options.items() if name in names}
    if not connection.get("bootstrap_servers"):
        return None
    return ReplayActions(lambda: connection, frozenset(topics))

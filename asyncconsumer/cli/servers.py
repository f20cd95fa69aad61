"""The command `asyncconsumer servers`, which runs Kafka and ZooKeeper until Ctrl-C."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rich.console import Console

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.progress import fetching
from asyncconsumer.testing.servers import (
    DEFAULT_KAFKA,
    DEFAULT_ZOOKEEPER,
    LAST_WITH_ZOOKEEPER,
    SECURE,
    Kafka,
    ZooKeeper,
    maven,
)
from asyncconsumer.testing.servers.listeners import PASSWORDS

__all__ = [
    "DEFAULT_KAFKA",
    "DEFAULT_ZOOKEEPER",
    "LAST_WITH_ZOOKEEPER",
    "ServerOptions",
    "fetch",
    "up",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The servers to start. A server whose version is None is not started."""

    kafka: str | None
    brokers: int
    zookeeper: str | None
    nodes: int
    port: int | None
    secure: bool
    acls: bool


async def up(options: ServerOptions, *, as_json: bool) -> None:
    """Start the servers, print their addresses, and stop them when cancelled."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    async with AsyncExitStack() as stack:
        started = time.monotonic()
        addresses = await _start(options, stack, console)
        _print(addresses, Console(highlight=False, soft_wrap=True), as_json=as_json)
        console.print(
            f"ready in {time.monotonic() - started:.1f} s; Ctrl-C stops all servers", style="green"
        )
        try:
            await asyncio.Event().wait()
        finally:
            console.print("stopping ...", style="yellow")


async def _start(options: ServerOptions, stack: AsyncExitStack, console: Console) -> dict[str, str]:
    if not options.kafka and (options.secure or options.acls):
        raise ConfigError("--secure and --acls apply to Kafka only. Add --kafka.")
    addresses = {}
    connect = None
    with fetching(console) as progress:
        if options.zookeeper:
            port = None if options.kafka else options.port
            zookeeper = ZooKeeper(
                options.zookeeper, nodes=options.nodes, port=port, progress=progress
            )
            console.print(f"starting ZooKeeper {options.zookeeper}, nodes: {options.nodes} ...")
            await stack.enter_async_context(zookeeper)
            connect = addresses["zookeeper"] = zookeeper.connect
        if options.kafka:
            kafka = _kafka(options, options.kafka, connect, progress)
            console.print(f"starting Kafka {options.kafka}, brokers: {options.brokers} ...")
            await stack.enter_async_context(kafka)
            addresses["bootstrap servers"] = kafka.bootstrap_servers
            for listener in SECURE if options.secure else ():
                security = f"{listener.security_protocol} {listener.sasl_mechanism or ''}".strip()
                addresses[f"{listener.name} ({security})"] = kafka.addresses(listener)
            if options.secure:
                addresses["users"] = ", ".join(
                    f"{user} / {password}" for user, password in PASSWORDS.items()
                )
            if kafka.certificates:
                addresses["certificate authority"] = str(kafka.certificates.authority_file)
                addresses["client certificate"] = str(kafka.certificates.client_file)
    return addresses


def _kafka(
    options: ServerOptions, version: str, zookeeper: str | None, progress: maven.Progress
) -> Kafka:
    return Kafka(
        version,
        brokers=options.brokers,
        zookeeper=zookeeper if version.startswith("3.") else None,
        listeners=SECURE if options.secure else (),
        acls=options.acls,
        port=options.port,
        progress=progress,
    )


def _print(addresses: dict[str, str], console: Console, *, as_json: bool) -> None:
    if as_json:
        console.print_json(json.dumps(addresses), indent=None)
        return
    width = max(map(len, addresses))
    for name, address in addresses.items():
        console.print(f"{name:<{width}}  [bold]{address}")


async def fetch(kafka: Sequence[str], zookeeper: str) -> None:
    """Download the jars of these versions that are not in the cache."""
    console = Console(highlight=False, soft_wrap=True)
    servers: list[Kafka | ZooKeeper] = [*map(Kafka, kafka), ZooKeeper(zookeeper)]
    for server in servers:
        with fetching(console) as progress:
            jars = await server.fetch(progress)
        console.print(f"{server.title}: {len(jars)} jars in {maven.cache_folder()}")

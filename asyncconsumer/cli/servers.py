"""The command `asyncconsumer servers`, which runs real servers until Ctrl-C."""

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
    """The servers to start. None as a version means no such server."""

    kafka: str | None
    brokers: int
    zookeeper: str | None
    nodes: int
    port: int | None
    secure: bool
    acls: bool


async def up(wanted: ServerOptions, *, as_json: bool) -> None:
    """Start the servers, print their addresses, and stop them when cancelled."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    async with AsyncExitStack() as stack:
        started = time.monotonic()
        addresses = await _start(wanted, stack, console)
        _tell(addresses, Console(highlight=False, soft_wrap=True), as_json=as_json)
        console.print(
            f"ready in {time.monotonic() - started:.1f} s; Ctrl-C ends all of it", style="green"
        )
        try:
            await asyncio.Event().wait()
        finally:
            console.print("stopping ...", style="yellow")


async def _start(wanted: ServerOptions, stack: AsyncExitStack, console: Console) -> dict[str, str]:
    if not wanted.kafka and (wanted.secure or wanted.acls):
        raise ConfigError("--secure and --acls are for Kafka: give --kafka as well")
    addresses = {}
    connect = None
    with fetching(console) as progress:
        if wanted.zookeeper:
            port = None if wanted.kafka else wanted.port
            zookeeper = ZooKeeper(
                wanted.zookeeper, nodes=wanted.nodes, port=port, progress=progress
            )
            console.print(f"starting ZooKeeper {wanted.zookeeper}, nodes: {wanted.nodes} ...")
            await stack.enter_async_context(zookeeper)
            connect = addresses["zookeeper"] = zookeeper.connect
        if wanted.kafka:
            kafka = _kafka(wanted, wanted.kafka, connect, progress)
            console.print(f"starting Kafka {wanted.kafka}, brokers: {wanted.brokers} ...")
            await stack.enter_async_context(kafka)
            addresses["bootstrap servers"] = kafka.bootstrap_servers
            for listener in SECURE if wanted.secure else ():
                what = f"{listener.security_protocol} {listener.sasl_mechanism or ''}".strip()
                addresses[f"{listener.name} ({what})"] = kafka.addresses(listener)
            if wanted.secure:
                addresses["users"] = ", ".join(
                    f"{user} / {word}" for user, word in PASSWORDS.items()
                )
            if kafka.certificates:
                addresses["certificate authority"] = str(kafka.certificates.authority_file)
                addresses["client certificate"] = str(kafka.certificates.client_file)
    return addresses


def _kafka(
    wanted: ServerOptions, version: str, zookeeper: str | None, progress: maven.Progress
) -> Kafka:
    return Kafka(
        version,
        brokers=wanted.brokers,
        zookeeper=zookeeper if version.startswith("3.") else None,
        listeners=SECURE if wanted.secure else (),
        acls=wanted.acls,
        port=wanted.port,
        progress=progress,
    )


def _tell(addresses: dict[str, str], console: Console, *, as_json: bool) -> None:
    if as_json:
        console.print_json(json.dumps(addresses), indent=None)
        return
    width = max(map(len, addresses))
    for what, where in addresses.items():
        console.print(f"{what:<{width}}  [bold]{where}")


async def fetch(kafka: Sequence[str], zookeeper: str) -> None:
    """Download the files for servers of these versions that the cache does not have."""
    console = Console(highlight=False, soft_wrap=True)
    wanted: list[Kafka | ZooKeeper] = [*map(Kafka, kafka), ZooKeeper(zookeeper)]
    for server in wanted:
        with fetching(console) as progress:
            jars = await server.fetch(progress)
        console.print(f"{server.title}: {len(jars)} jars in {maven.cache_folder()}")

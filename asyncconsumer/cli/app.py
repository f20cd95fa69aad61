"""The commands, and how errors leave the program: one sentence, and an exit code that is not 0."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console

from asyncconsumer.cli import demo as demonstration
from asyncconsumer.cli import servers
from asyncconsumer.errors import ConsumerError
from asyncconsumer.testing.servers import DEFAULT_KAFKA, DEFAULT_ZOOKEEPER, LAST_WITH_ZOOKEEPER
from asyncconsumer.wire import accel

app = typer.Typer(
    help="An asyncio-native Kafka consumer framework.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
servers_app = typer.Typer(
    help="Real Kafka and ZooKeeper on this machine, from their Maven jars.", no_args_is_help=True
)
app.add_typer(servers_app, name="servers")


def run() -> int:
    """Run the command line; the exit code."""
    try:
        app(standalone_mode=True)
    except ConsumerError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"error: {error}", style="red", markup=False
        )
        return 1
    return 0


def until_stopped(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main`; Ctrl-C, SIGTERM and a closed terminal end it in good order."""
    received: list[signal.Signals] = []

    async def guarded() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: signal.Signals) -> None:
            if not received:  # a second one, while it stops, changes nothing
                task.cancel()
            received.append(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        await main()

    try:
        asyncio.run(guarded())
    except asyncio.CancelledError:
        raise typer.Exit(128 + received[0]) from None


@app.command()
def version() -> None:
    """Tell the version, and which record decoder runs."""
    Console().print(f"asyncconsumer {metadata.version('asyncconsumer')}, {accel.name} decoder")


@app.command()
def demo() -> None:
    """Start real servers and show what the project does."""
    until_stopped(demonstration.show)


@servers_app.command()
def up(
    *,
    kafka: Annotated[
        str | None,
        typer.Option(help=f"Kafka's version: {DEFAULT_KAFKA}, {LAST_WITH_ZOOKEEPER}, ..."),
    ] = None,
    brokers: Annotated[int, typer.Option(help="How many Kafka brokers, 1 to 3.")] = 1,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="Start ZooKeeper: alone, or with --kafka.")
    ] = False,
    zookeeper_version: Annotated[str, typer.Option()] = DEFAULT_ZOOKEEPER,
    nodes: Annotated[int, typer.Option(help="How many ZooKeeper nodes, 1 or 3.")] = 1,
    port: Annotated[
        int | None, typer.Option(help="The first broker's port (without Kafka: ZooKeeper's).")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Add TLS, mutual TLS and SASL listeners.")
    ] = False,
    acls: Annotated[bool, typer.Option("--acls", help="Turn authorization on.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
) -> None:
    """Start servers, print where they are, and end them with Ctrl-C.

    Kafka 3.x with --zookeeper keeps its state in that ZooKeeper; Kafka 4.x runs beside it.
    """
    wanted = servers.Wanted(
        kafka=kafka if kafka or zookeeper else DEFAULT_KAFKA,
        brokers=brokers,
        zookeeper=zookeeper_version if zookeeper else None,
        nodes=nodes,
        port=port,
        secure=secure,
        acls=acls,
    )
    until_stopped(lambda: servers.up(wanted, as_json=json))


@servers_app.command()
def fetch(
    kafka: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    zookeeper: Annotated[str, typer.Option(help="ZooKeeper's version.")] = DEFAULT_ZOOKEEPER,
) -> None:
    """Fill the cache of jars, so that servers start without a network."""
    versions = kafka or [DEFAULT_KAFKA, LAST_WITH_ZOOKEEPER]
    until_stopped(lambda: servers.fetch(versions, zookeeper))

"""The commands. An error is printed as one sentence, and the exit code is not 0."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from asyncconsumer.cli import text
from asyncconsumer.cli.consume.command import consume
from asyncconsumer.cli.groups.command import groups_app
from asyncconsumer.cli.replay import replay_command
from asyncconsumer.cli.run import run_command
from asyncconsumer.cli.signals import until_stopped
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.records import decoding

app = typer.Typer(
    help="An asyncio-native Kafka consumer framework.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
servers_app = typer.Typer(
    help="Real Kafka and ZooKeeper on this machine, from their Maven jars.", no_args_is_help=True
)
app.command()(consume)
app.command("run")(run_command)
app.command("replay")(replay_command)
app.add_typer(groups_app, name="groups")
app.add_typer(servers_app, name="servers")


def run() -> int:
    """Run the command line and return the exit code."""
    try:
        app(standalone_mode=True)
    except ConsumerError as error:
        text.say(f"error: {error}", "red")
        return 1
    return 0


@app.command()
def version() -> None:
    """Print the version and the record decoder in use."""
    Console().print(f"asyncconsumer {metadata.version('asyncconsumer')}, {decoding.name} decoder")


@app.command()
def demo() -> None:
    """Start real servers and show what the project does."""
    from asyncconsumer.cli import demo as demonstration  # servers take an extra, consumers do not

    until_stopped(demonstration.show)


@app.command("spark-package")
def spark_package(
    path: Annotated[
        Path, typer.Argument(help="Path of the archive to write. It must end in .zip.")
    ],
    *,
    also: Annotated[
        list[str] | None,
        typer.Option(help="Another installed package to include, such as fastavro. Repeatable."),
    ] = None,
) -> None:
    """Create an archive of this package, with its compiled decoder, for Spark executors.

    The archive is for the Python version and platform of this machine. Executors also need pyarrow.
    """
    from asyncconsumer.spark.deploy import packaging

    try:
        made = packaging.package(path, also=also or ())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    Console(soft_wrap=True).print(
        f"{made}: {made.stat().st_size / 2**20:.1f} MB, for {packaging.interpreter()}, "
        f"{decoding.name} decoder\nspark-submit --py-files {made} job.py"
    )


@app.command("spark-compile")
def spark_compile(
    home: Annotated[
        Path | None,
        typer.Argument(help="Spark's home. Default: $SPARK_HOME, or the installed pyspark."),
    ] = None,
) -> None:
    """Make Spark's Python processes start in a third of the time, above all for streaming queries.

    Each process imports pyspark from a zip and compiles it. This command adds byte code to the zip.
    Run it once per installation, with the Python that Spark uses and with write access to the zip.
    """
    from asyncconsumer.spark.deploy import precompile

    for archive in precompile.zips_of(home or precompile.spark_home()):
        try:
            count = precompile.add_byte_code(archive)
        except OSError as error:
            raise ConfigError(f"{archive} cannot be written: {error.strerror}") from None
        did = f"added for {count:,} modules" if count else "is there already"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        Console(soft_wrap=True).print(f"{archive}: byte code of Python {python} {did}")


@servers_app.command()
def up(
    *,
    kafka: Annotated[
        str | None,
        typer.Option(help="Kafka version, such as 3.9.2. Default: the newest tested."),
    ] = None,
    brokers: Annotated[int, typer.Option(help="Number of Kafka brokers, 1 to 3.")] = 1,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="Start ZooKeeper: alone, or with --kafka.")
    ] = False,
    zookeeper_version: Annotated[str | None, typer.Option()] = None,
    nodes: Annotated[int, typer.Option(help="Number of ZooKeeper servers, 1 or 3.")] = 1,
    port: Annotated[
        int | None, typer.Option(help="Port of the first broker; without Kafka, of ZooKeeper.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Add TLS, mutual TLS and SASL listeners.")
    ] = False,
    acls: Annotated[bool, typer.Option("--acls", help="Enable ACLs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
) -> None:
    """Start servers, print their addresses, and stop them on Ctrl-C.

    Kafka 3.x with --zookeeper keeps its state in that ZooKeeper. Kafka 4.x does not use it.
    """
    from asyncconsumer.cli import servers

    wanted = servers.ServerOptions(
        kafka=kafka if kafka or zookeeper else servers.DEFAULT_KAFKA,
        brokers=brokers,
        zookeeper=(zookeeper_version or servers.DEFAULT_ZOOKEEPER) if zookeeper else None,
        nodes=nodes,
        port=port,
        secure=secure,
        acls=acls,
    )
    until_stopped(lambda: servers.up(wanted, as_json=json))


@servers_app.command()
def fetch(
    kafka: Annotated[list[str] | None, typer.Option(help="Kafka version. Repeatable.")] = None,
    zookeeper: Annotated[str | None, typer.Option(help="ZooKeeper version.")] = None,
) -> None:
    """Download the jars of servers into the cache, so that servers start without a network."""
    from asyncconsumer.cli import servers

    versions = kafka or [servers.DEFAULT_KAFKA, servers.LAST_WITH_ZOOKEEPER]
    until_stopped(lambda: servers.fetch(versions, zookeeper or servers.DEFAULT_ZOOKEEPER))

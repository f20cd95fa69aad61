"""The commands of the program. An error is printed as one line and sets the exit code."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from asyncconsumer.cli import text
from asyncconsumer.cli.asyncapi import asyncapi_command
from asyncconsumer.cli.bench.command import bench_app
from asyncconsumer.cli.config import config_app
from asyncconsumer.cli.consume.command import consume
from asyncconsumer.cli.dashboard import dashboard_command
from asyncconsumer.cli.dlq.command import dlq_app
from asyncconsumer.cli.doctor import doctor_command
from asyncconsumer.cli.groups.command import groups_app
from asyncconsumer.cli.lag import lag_command
from asyncconsumer.cli.logs import write_warnings
from asyncconsumer.cli.produce import produce_command
from asyncconsumer.cli.replay import replay_command
from asyncconsumer.cli.run import run_command
from asyncconsumer.cli.shared_options import Json
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.cli.top import top_command
from asyncconsumer.cli.topics import topics_app
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.records import decoding

app = typer.Typer(
    help="Read and write Kafka topics, watch lag, manage topics and groups, run consumer apps. "
    "Exit codes: 0 success, 1 error, 2 wrong usage, 3 lag above the limit of `lag --fail-above`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
servers_app = typer.Typer(
    help="Run Kafka and ZooKeeper on this machine, for development and tests. Needs Java.",
    no_args_is_help=True,
)
app.command()(consume)
app.command("produce")(produce_command)
app.command("lag")(lag_command)
app.command("dashboard")(dashboard_command)
app.command("doctor")(doctor_command)
app.command("top")(top_command)
app.command("run")(run_command)
app.command("replay")(replay_command)
app.command("asyncapi")(asyncapi_command)
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
app.add_typer(dlq_app, name="dlq")
app.add_typer(config_app, name="config")
app.add_typer(bench_app, name="bench")
app.add_typer(servers_app, name="servers")


def run() -> int:
    """Run the program and return its exit code."""
    write_warnings()
    try:
        app(standalone_mode=True)
    except ConsumerError as error:
        text.print_message(f"error: {error}", "red")
        return 2 if isinstance(error, ConfigError) else 1
    return 0


@app.command()
def version(*, json: Json = False) -> None:
    """Print the version, and whether the compiled or the Python record decoder is in use.

    Example: asyncconsumer version --json
    """
    number = metadata.version("asyncconsumer")
    if json:
        text.print_json({"version": number, "decoder": decoding.name})
    else:
        Console().print(f"asyncconsumer {number}, {decoding.name} decoder")


@app.command()
def demo() -> None:
    """Start Kafka and ZooKeeper on this machine and show consumer groups and Spark at work.

    The demo takes about a minute, without the download of the servers. It stops all servers.

    Example: asyncconsumer demo
    """
    from asyncconsumer.cli import demo as demonstration  # needs the extra `testing`

    run_until_stopped(demonstration.show)


@app.command("spark-package")
def spark_package(
    path: Annotated[Path, typer.Argument(metavar="FILE.zip", help="Path of the archive to write.")],
    *,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE",
            help="Another installed package to include, such as fastavro. Repeatable.",
        ),
    ] = None,
) -> None:
    """Package asyncconsumer and its dependencies as a zip file for Spark executors.

    Pass the file to spark-submit with --py-files. It works with the Python version and platform of
    this machine. It does not contain pyarrow, which must be installed on the executors.

    Example: asyncconsumer spark-package packages.zip --also fastavro
    """
    from asyncconsumer.spark.deploy import packaging

    try:
        archive = packaging.package(path, also=also or ())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    Console(soft_wrap=True).print(
        f"wrote {archive}: {archive.stat().st_size / 2**20:.1f} MiB, for {packaging.interpreter()},"
        f" {decoding.name} decoder\nnext: spark-submit --py-files {archive} job.py"
    )


@app.command("spark-compile")
def spark_compile(
    home: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPARK_HOME]",
            help="Folder of the Spark installation. Default: $SPARK_HOME, or the installed "
            "pyspark.",
        ),
    ] = None,
) -> None:
    """Precompile pyspark, so that Spark's Python processes start in a third of the time.

    Spark imports pyspark from a zip file without byte code, so each process compiles it again. This
    command adds the byte code to the zip file. Run it once per Spark installation, with the Python
    that Spark uses and with write access to the file.

    Example: asyncconsumer spark-compile /opt/spark
    """
    from asyncconsumer.spark.deploy import precompile

    for archive in precompile.python_zips(home or precompile.spark_home()):
        try:
            count = precompile.add_byte_code(archive)
        except OSError as error:
            raise ConfigError(f"{archive} cannot be written: {error.strerror}") from None
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        Console(soft_wrap=True).print(
            f"{archive}: added byte code of Python {python} for {count:,} modules"
            if count
            else f"{archive}: already has byte code of Python {python}"
        )


@servers_app.command()
def up(
    *,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Kafka version, such as 3.9.2. Default: the newest tested version; no Kafka "
            "with --zookeeper alone.",
        ),
    ] = None,
    brokers: Annotated[int, typer.Option(help="Number of Kafka brokers, 1 to 3.")] = 1,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="Start ZooKeeper, alone or together with --kafka.")
    ] = False,
    zookeeper_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="ZooKeeper version. Default: the newest tested version."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of ZooKeeper servers, 1 or 3.")] = 1,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port of the first broker; without Kafka, of ZooKeeper. Default: a free port."
        ),
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Add TLS, mutual TLS and SASL listeners.")
    ] = False,
    acls: Annotated[bool, typer.Option("--acls", help="Enable Kafka's ACL authorizer.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
) -> None:
    """Start servers, print their addresses, and stop them on Ctrl-C.

    Kafka 3.x with --zookeeper runs in ZooKeeper mode. Without it, and since 4.0, Kafka runs in
    KRaft mode. Data is deleted when the servers stop.

    Example: asyncconsumer servers up --port 9092
    """
    from asyncconsumer.cli import servers

    options = servers.ServerOptions(
        kafka=kafka if kafka or zookeeper else servers.DEFAULT_KAFKA,
        brokers=brokers,
        zookeeper=(zookeeper_version or servers.DEFAULT_ZOOKEEPER) if zookeeper else None,
        nodes=nodes,
        port=port,
        secure=secure,
        acls=acls,
    )
    run_until_stopped(lambda: servers.up(options, as_json=json))


@servers_app.command()
def fetch(
    kafka: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION",
            help="Kafka version. Repeatable. Default: the newest tested version, and the last "
            "one with ZooKeeper mode.",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="ZooKeeper version. Default: the newest tested version."
        ),
    ] = None,
) -> None:
    """Download servers from Maven Central, so that they start later without a network.

    Example: asyncconsumer servers fetch --kafka 4.3.1
    """
    from asyncconsumer.cli import servers

    versions = kafka or [servers.DEFAULT_KAFKA, servers.LAST_WITH_ZOOKEEPER]
    run_until_stopped(lambda: servers.fetch(versions, zookeeper or servers.DEFAULT_ZOOKEEPER))

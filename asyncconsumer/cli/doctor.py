"""The command `asyncconsumer doctor`, which prints the findings of `diagnose`."""

from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.text import Text

from asyncconsumer.admin.diagnosis.diagnose import diagnose
from asyncconsumer.admin.diagnosis.finding import Finding
from asyncconsumer.cli import text
from asyncconsumer.cli.connect import connection_options, read_options
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}


def doctor_command(
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Check permissions, state and progress."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Check permissions and replicas. Repeatable. Default: replicas of all topics.",
        ),
    ] = None,
    observe: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="A partition with a lag is stuck if its group commits nothing in this time.",
        ),
    ] = 6.0,
    json: Json = False,
) -> None:
    """Find out why a consumer cannot work with a cluster, and what to do.

    The checks are DNS, TCP, TLS, login, the addresses that brokers advertise, versions, the clock,
    replicas, and the permissions, state, offsets and progress of a group. Each line begins with
    ok, warning or error. Nothing is changed in the cluster.

    Exit codes: 0 without an error, also with warnings; 1 if a line is an error; 2 wrong usage.

    Example: asyncconsumer doctor -b localhost:9092 --group billing --topic orders
    """
    options = connection_options(read_options(bootstrap_servers, None, properties, property_))

    async def check() -> None:
        findings = await diagnose(
            **options,
            group=group,
            topics=topic or (),
            observe_seconds=observe,
            on_finding=None if json else _print,
        )
        if json:
            text.print_json([asdict(finding) for finding in findings])
        if any(finding.level == "error" for finding in findings):
            raise typer.Exit(1)

    run_until_stopped(check)


def _print(finding: Finding) -> None:
    line = Text(text.printable(str(finding)))
    line.stylize(_STYLES[finding.level], 0, len(finding.level))
    text.console().print(line)

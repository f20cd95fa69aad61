"""The command `asyncconsumer doctor`, which prints what `diagnose` finds."""

from dataclasses import asdict
from typing import Final

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
    json: Json = False,
) -> None:
    """Find out why a consumer cannot work with a cluster, and what to do.

    The checks are DNS, TCP, TLS, login, and the addresses that brokers advertise. Each line begins
    with ok, warning or error. Nothing is changed in the cluster.

    Exit codes: 0 without an error, also with warnings; 1 if a line is an error; 2 wrong usage.

    Example: asyncconsumer doctor -b localhost:9092 --properties client.properties
    """
    options = connection_options(read_options(bootstrap_servers, None, properties, property_))

    async def check() -> None:
        findings = await diagnose(**options, on_finding=None if json else _print)
        if json:
            text.print_json([asdict(finding) for finding in findings])
        if any(finding.level == "error" for finding in findings):
            raise typer.Exit(1)

    run_until_stopped(check)


def _print(finding: Finding) -> None:
    line = Text(text.printable(str(finding)))
    line.stylize(_STYLES[finding.level], 0, len(finding.level))
    text.console().print(line)

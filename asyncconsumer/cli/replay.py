"""The command `asyncconsumer replay`, which sends dead letters back."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.shared_options import Json
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.handlers.app import ConsumerApp
from asyncconsumer.handlers.replay import Replayed, replay
from asyncconsumer.workers.loading import load

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP", help="The ConsumerApp of the dead letters, such as shop.orders:app."
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", help="Send the dead letters. Default: only count them and exit with code 1."
    ),
]


def replay_command(target: Target, *, yes: Yes = False, json: Json = False) -> None:
    """Send the dead letters of an app back to their original topics.

    Without --yes, the command only prints how many dead letters there are for each topic, handler
    and error. Each dead letter is sent back once: the next run continues after the last one. Other
    groups that consume these topics also receive the records again.

    Example: asyncconsumer replay shop.orders:app --yes
    """
    sys.path.insert(0, str(Path.cwd()))
    app = load(target)
    run_until_stopped(lambda: _replay(app, send=yes, as_json=json))


async def _replay(app: ConsumerApp, *, send: bool, as_json: bool) -> None:
    result = await replay(app, send=send)
    if as_json:
        counts = [cause._asdict() | {"records": n} for cause, n in sorted(result.counts.items())]
        text.print_json({"dead_letters": counts, "skipped": result.others, "sent": send})
    else:
        _show(result)
    count = result.counts.total()
    if not count:
        text.print_message("there are no dead letters to send back", "green")
    elif send:
        text.print_message(f"sent back {text.counted(count, 'dead letter')}", "green")
    else:
        text.print_message("nothing was sent; repeat the command with --yes to send", "yellow")
        raise typer.Exit(1)


def _show(result: Replayed) -> None:
    if result.counts:
        table = text.table("topic", "handler", "error", "records", right=("records",))
        for cause, count in sorted(result.counts.items()):
            table.add_row(*map(text.cell, (*cause, count)))
        text.console().print(table)
    if result.others:
        text.print_message(
            f"skipped {text.counted(result.others, 'dead letter')} of other groups, or of "
            "partitions that the app does not consume"
        )

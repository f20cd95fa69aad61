"""The command line of `asyncconsumer replay`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.signals import until_stopped
from asyncconsumer.handlers.app import ConsumerApp
from asyncconsumer.handlers.replay import Replayed, replay
from asyncconsumer.workers.loading import load

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="The ConsumerApp to read the settings from.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Send the listed dead letters back.")]


def replay_command(target: Target, *, yes: Yes = False) -> None:
    """Send the dead letters of an app back to the topics that they came from.

    Without --yes they are only counted. The next run continues where the last one ended. Other
    groups that read these topics receive the records again, too.
    """
    sys.path.insert(0, str(Path.cwd()))
    app = load(target)
    until_stopped(lambda: _replay(app, send=yes))


async def _replay(app: ConsumerApp, *, send: bool) -> None:
    done = await replay(app, send=send)
    _show(done)
    count = done.found.total()
    if not count:
        text.say("there is nothing to send back", "green")
    elif send:
        text.say(f"{count} were sent back", "green")
    else:
        text.say("nothing was sent back: give --yes to do so", "yellow")


def _show(done: Replayed) -> None:
    if done.found:
        table = text.table("topic", "handler", "error", "letters", right=("letters",))
        for kind, count in sorted(done.found.items()):
            table.add_row(*map(text.cell, (*kind, count)))
        text.console().print(table)
    if done.others:
        text.say(
            f"{done.others} are not of this group, or not of a partition that the app reads: they "
            "stay where they are"
        )

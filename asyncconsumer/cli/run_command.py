"""`asyncconsumer run`, as it is typed."""

import asyncio
import importlib.util
import os
import signal
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from asyncconsumer.apps.http import serving
from asyncconsumer.apps.loading import check_name
from asyncconsumer.apps.process import Job
from asyncconsumer.apps.supervisor import Supervisor
from asyncconsumer.apps.worker import UNUSABLE
from asyncconsumer.cli import screen
from asyncconsumer.errors import ConfigError
from asyncconsumer.outside import Outside

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the ConsumerApp is.")]
Workers = Annotated[int, typer.Option(min=1, max=1000, help="Processes, each a group member.")]
Host = Annotated[str, typer.Option(help="Where the health pages and metrics are served.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The same; without it there are none. 0: a free one."),
]
Grace = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds for what runs when it is to end; by default the app's shutdown_grace_ms.",
    ),
]
Uvloop = Annotated[
    bool | None, typer.Option("--uvloop/--no-uvloop", help="By default if it is installed.")
]


def run_command(
    target: Target,
    *,
    workers: Workers = 1,
    host: Host = "127.0.0.1",
    port: Port = None,
    grace: Grace = None,
    uvloop: Uvloop = None,
) -> None:
    """Run the handlers of an app in worker processes, until stopped.

    Ctrl-C and SIGTERM drain, commit and leave; a second one does not wait. SIGHUP reloads: new
    workers come up, then the old ones drain. A worker that dies is started again.
    The exit code is 0 if all that was begun was finished, 1 if not, 2 if there is nothing to run.
    """
    try:
        check_name(target)
        job = Job(target=target, grace=grace, uvloop=_with_uvloop(uvloop))
        code = asyncio.run(_supervise(job, workers, host, port))
    except ConfigError as error:
        screen.say(f"error: {error}", "red")
        code = UNUSABLE
    raise typer.Exit(code)


async def _supervise(job: Job, workers: int, host: str, port: int | None) -> int:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(job, workers, screen.say, Outside().randomness)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        had_terminal = _has_terminal()
        loop.add_signal_handler(signal.SIGHUP, _hang_up, supervisor, had_terminal)
    async with AsyncExitStack() as stack:
        if port is not None:
            port = await stack.enter_async_context(serving(supervisor.look, host, port))
            screen.say(f"health and metrics are on http://{host}:{port}")
        return await supervisor.run()


def _hang_up(supervisor: Supervisor, had_terminal: bool) -> None:  # noqa: FBT001 - a callback
    """Somebody asks for a reload; or the terminal was closed, and that is the end."""
    if had_terminal and not _has_terminal():
        supervisor.stop()
    else:
        supervisor.reload()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _with_uvloop(wanted: bool | None) -> bool:  # noqa: FBT001 - as it is typed
    there = importlib.util.find_spec("uvloop") is not None
    if wanted and not there:
        raise ConfigError("--uvloop: it is not installed: pip install 'asyncconsumer[uvloop]'")
    return there if wanted is None else wanted

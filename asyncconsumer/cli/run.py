"""The command line of `asyncconsumer run`."""

import asyncio
import importlib.util
import ipaddress
import os
import signal
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

import typer

from asyncconsumer.cli import text
from asyncconsumer.consumer.environment import Environment
from asyncconsumer.errors import ConfigError
from asyncconsumer.web.http_server import serving
from asyncconsumer.workers import system_signals
from asyncconsumer.workers.loading import check_name
from asyncconsumer.workers.process import WorkerSpec
from asyncconsumer.workers.supervisor import Supervisor
from asyncconsumer.workers.worker import UNUSABLE

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The ConsumerApp to run.")]
Workers = Annotated[
    int, typer.Option(min=1, max=1000, help="Number of processes. Each is a member of the group.")
]
Host = Annotated[
    str,
    typer.Option(
        help="Address for health checks and metrics. Default: 127.0.0.1. Use 0.0.0.0 if "
        "probes come from other machines, as a kubelet's do."
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port for health checks and metrics; 0 picks a free one. Default: off.",
    ),
]
Grace = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds to finish running handlers at shutdown. Default: shutdown_grace_ms.",
    ),
]
Uvloop = Annotated[
    bool | None,
    typer.Option("--uvloop/--no-uvloop", help="Run on uvloop. Default: if it is installed."),
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

    Ctrl-C and SIGTERM drain, commit and leave; a second signal stops at once. SIGHUP reloads: new
    workers start, then the old ones drain. A worker that dies is restarted.
    The exit code is 0 if all started work was finished, 1 if not, 2 if there is nothing to run.
    """
    try:
        check_name(target)
        job = WorkerSpec(target=target, grace=grace, uvloop=_with_uvloop(uvloop))
        code = asyncio.run(_supervise(job, workers, host, port))
    except ConfigError as error:
        text.say(f"error: {error}", "red")
        code = UNUSABLE
    raise typer.Exit(code)


async def _supervise(job: WorkerSpec, workers: int, host: str, port: int | None) -> int:
    supervisor = Supervisor(job, workers, text.say, Environment().randomness)
    for number in (signal.SIGINT, signal.SIGTERM):
        system_signals.handle(number, supervisor.stop)
    if (hangup := system_signals.hangup()) is not None:
        system_signals.handle(hangup, partial(_hang_up, supervisor, _has_terminal()))
    async with AsyncExitStack() as stack:
        if port is not None:
            port = await stack.enter_async_context(serving(supervisor.look, host, port))
            name = f"[{host}]" if ":" in host else host
            text.say(f"health and metrics are on http://{name}:{port}")
            if _is_loopback(host) and "KUBERNETES_SERVICE_HOST" in os.environ:
                text.say(
                    f"{host} is reached from this container only, and probes of Kubernetes come "
                    "from outside: give --host 0.0.0.0",
                    "yellow",
                )
        return await supervisor.run()


def _hang_up(supervisor: Supervisor, had_terminal: bool) -> None:  # noqa: FBT001 - a callback
    """Handle SIGHUP: reload, or stop if the terminal was closed."""
    if had_terminal and not _has_terminal():
        supervisor.stop()
    else:
        supervisor.reload()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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

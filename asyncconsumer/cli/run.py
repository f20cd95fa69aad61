"""The command `asyncconsumer run`, which runs an app in worker processes."""

import asyncio
import importlib.util
import ipaddress
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from asyncconsumer.admin.reset_targets import parse_duration
from asyncconsumer.aio.scope import Scope
from asyncconsumer.cli.connect import admin_options, read_options
from asyncconsumer.cli.dashboard import AllowedHost, replay_actions
from asyncconsumer.cli.logs import MessageWriter
from asyncconsumer.dashboard.access import HostCheck, TokenCheck, read_token
from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.sites import admin_factory, make_site
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError
from asyncconsumer.web.pages import Readiness, asgi
from asyncconsumer.web.server import serving
from asyncconsumer.workers import system_signals
from asyncconsumer.workers.dashboard_actions import WorkerActions
from asyncconsumer.workers.loading import check_name
from asyncconsumer.workers.logs import LogFormat, configure, make_formatter
from asyncconsumer.workers.process import WorkerSpec
from asyncconsumer.workers.recycling import RecycleLimits
from asyncconsumer.workers.supervisor import Supervisor
from asyncconsumer.workers.watching import check_watchfiles, watch_sources
from asyncconsumer.workers.worker import UNUSABLE

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The ConsumerApp or SparkFeeder to run, such as shop.orders:app.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=1, max=1000, help="Number of worker processes. Each is a member of the group."
    ),
]
Host = Annotated[
    str,
    typer.Option(
        help="Address for health checks and metrics. Use 0.0.0.0 in Kubernetes, because its "
        "probes come from outside the container."
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port for the dashboard (/), health checks and metrics (/started, /live, /ready, "
        "/lag, /status, /metrics); 0 picks a free port. Default: no server.",
    ),
]
Grace = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds that running handlers get to finish at shutdown. Default: the app's "
        "shutdown_grace_ms.",
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        help="Format of log lines on standard error. An app that configures its log at import "
        "keeps its own format in workers."
    ),
]
Ready = Annotated[
    Readiness,
    typer.Option(
        help="When /ready returns 200: if records are processed (work), or also while Kafka is "
        "unavailable, as long as the process can take requests (traffic)."
    ),
]
Reload = Annotated[
    bool,
    typer.Option(
        "--reload",
        help="Reload when a Python file in the working directory changes, for development.",
    ),
]
ReloadDir = Annotated[
    list[Path] | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="Folder to watch with --reload. May be repeated. Default: the working directory.",
    ),
]
RecycleRecords = Annotated[
    int | None,
    typer.Option(min=1, help="Replace a worker after it has read this number of records."),
]
RecycleAge = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Replace a worker after this time, such as 6h."),
]
RecycleMemory = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="MIB", help="Replace a worker that uses this memory, in MiB, or more."
    ),
]
CreateTopics = Annotated[
    bool,
    typer.Option(
        "--create-topics",
        help="Create missing topics of the handlers first. A retry topic gets the partitions of "
        "its source topic, and others the default of the brokers.",
    ),
]
Uvloop = Annotated[
    bool | None,
    typer.Option("--uvloop/--no-uvloop", help="Use uvloop. Default: use it if it is installed."),
]


def run_command(
    target: Target,
    *,
    workers: Workers = 1,
    host: Host = "127.0.0.1",
    port: Port = None,
    grace: Grace = None,
    uvloop: Uvloop = None,
    allowed_host: AllowedHost = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    ready: Ready = Readiness.WORK,
    reload: Reload = False,
    reload_dir: ReloadDir = None,
    recycle_records: RecycleRecords = None,
    recycle_age: RecycleAge = None,
    recycle_memory: RecycleMemory = None,
    create_topics: CreateTopics = False,
) -> None:
    """Run the handlers of an app, or a feeder, in worker processes until stopped.

    Ctrl-C or SIGTERM finishes running handlers, commits and leaves the group. A second signal stops
    at once. SIGHUP reloads the code: new workers start, then the old ones finish. A worker that
    dies is restarted. A worker that exceeds a --recycle limit is replaced, one at a time.

    Example: asyncconsumer run shop.orders:app --workers 4 --port 8080

    Exit codes: 0 if all started records were processed, 1 if some were not, 2 if the app cannot be
    loaded.
    """
    formatter = make_formatter(log_format)
    configure(formatter, logging.WARNING)
    write = MessageWriter(formatter)
    try:
        check_name(target)
        loop = _use_uvloop(uvloop)
        spec = WorkerSpec(
            target=target,
            grace=grace,
            uvloop=loop,
            log_format=log_format,
            create_topics=create_topics,
        )
        limits = RecycleLimits(
            records=recycle_records, seconds=_seconds(recycle_age), memory_mib=recycle_memory
        )
        if reload:
            check_watchfiles()
        pages = None if port is None else _Pages(host, port, allowed_host or (), ready)
        watched = (reload_dir or [Path.cwd()]) if reload else []
        code = asyncio.run(_run(spec, workers, limits, pages, watched, write))
    except ConfigError as error:
        write(str(error), logging.ERROR)
        code = UNUSABLE
    raise typer.Exit(code)


class _Pages(NamedTuple):
    """The options of the dashboard and of the health pages."""

    host: str
    port: int
    allowed_hosts: Sequence[str]
    readiness: Readiness


async def _run(
    spec: WorkerSpec,
    workers: int,
    limits: RecycleLimits,
    pages: _Pages | None,
    watched: Sequence[Path],
    write: MessageWriter,
) -> int:
    supervisor = Supervisor(spec, workers, write, Environment().randomness, limits)
    for number in (signal.SIGINT, signal.SIGTERM):
        system_signals.handle(number, supervisor.stop)
    if (hangup := system_signals.hangup()) is not None:
        system_signals.handle(hangup, partial(_hang_up, supervisor, _has_terminal()))

    def changed(names: str) -> None:
        write(f"{names} changed")
        supervisor.reload()

    async with AsyncExitStack() as stack:
        if pages is not None:
            await _serve(supervisor, pages, write, stack)
        if watched:
            watching = await stack.enter_async_context(Scope("reload"))
            watching.start(watch_sources(watched, changed), "watch source files")
        code = await supervisor.run()
    if supervisor.unusable is not None:
        raise ConfigError(supervisor.unusable)
    return code


async def _serve(
    supervisor: Supervisor, pages: _Pages, write: MessageWriter, stack: AsyncExitStack
) -> None:
    """Serve the dashboard, health pages and metrics until the stack is closed."""
    site, host = _dashboard(supervisor, pages.allowed_hosts, write), pages.host
    app = asgi(supervisor.status_by_worker, site, pages.readiness)
    port = await stack.enter_async_context(serving(app, host, pages.port, before_stop=site.close))
    name = f"[{host}]" if ":" in host else host
    write(f"serving the dashboard, health checks and metrics on http://{name}:{port}")
    if _is_loopback(host) and "KUBERNETES_SERVICE_HOST" in os.environ:
        write(
            f"{host} is not reachable for Kubernetes probes, which come from "
            "outside the container; set --host 0.0.0.0",
            logging.WARNING,
        )


def _seconds(age: str | None) -> float | None:
    duration = None if age is None else parse_duration(age)
    if age is not None and not duration:
        raise ConfigError(f"--recycle-age {age!r} must be a duration such as 90m, 6h or 1d.")
    return None if duration is None else duration.total_seconds()


def _dashboard(
    supervisor: Supervisor, allowed_hosts: Sequence[str], write: MessageWriter
) -> DashboardSite:
    """Return the dashboard of the cluster that environment variables name.

    The supervisor does not import the app, so it cannot use the app's options. Without an address
    in the environment, the dashboard shows only workers.
    """
    admin, actions = None, None
    try:
        options = read_options(None, None, None)
        if options.get("bootstrap_servers") or options.get("zookeeper_connect"):
            admin = admin_factory(admin_options(options))
            actions = replay_actions(options)
    except ConfigError as error:
        write(f"the dashboard shows workers only: {error}", logging.WARNING)
    return make_site(
        admin,
        status=supervisor.status_by_worker,
        hosts=HostCheck(allowed_hosts),
        token=TokenCheck(read_token()),
        actions=WorkerActions(supervisor, actions),
    )


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


def _use_uvloop(requested: bool | None) -> bool:  # noqa: FBT001 - the value of the option
    installed = importlib.util.find_spec("uvloop") is not None
    if requested and not installed:
        raise ConfigError(
            "--uvloop needs the package uvloop, which is not installed. "
            "Install it with: pip install 'asyncconsumer[uvloop]'"
        )
    return installed if requested is None else requested

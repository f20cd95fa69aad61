"""Signals, shells and listening addresses of the command line."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from asyncconsumer.cli.app import app
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.workers import system_signals
from asyncconsumer.workers.supervisor import Supervisor

pytestmark = pytest.mark.fast

TARGET = "examples.worker:app"


@pytest.fixture
def no_hangup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove SIGHUP, as on Windows."""
    monkeypatch.delattr(signal, "SIGHUP")


@pytest.fixture
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse signal handlers of the loop, as on Windows."""

    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "remove_signal_handler", refuse)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the supervisor by one whose workers end immediately."""

    async def run(self: Supervisor) -> int:
        return 0

    monkeypatch.setattr(Supervisor, "run", run)


@pytest.mark.usefixtures("no_hangup")
def test_a_system_without_hangups_runs_commands() -> None:
    ran = []

    async def main() -> None:
        ran.append(True)

    run_until_stopped(main)
    assert ran
    assert system_signals.hangup() is None
    system_signals.ignore_hangup()


@pytest.mark.usefixtures("no_hangup", "supervised")
def test_a_system_without_hangups_runs_workers() -> None:
    assert CliRunner().invoke(app, ["run", TARGET]).exit_code == 0


@pytest.mark.usefixtures("no_hangup", "no_handlers")
def test_a_loop_without_handlers_is_stopped_by_a_signal() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    run_until_stopped(main, stop_is_success=True)  # which is a clean end


def printed(*arguments: str, shell: str) -> str:
    program = (
        "import sys; sys.argv[0] = 'asyncconsumer'; from asyncconsumer.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "_ASYNCCONSUMER_COMPLETE": shell},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout


def test_shells_complete_commands() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
    assert "complete -o default -F" in printed(shell="source_bash")


def served_on(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["run", TARGET, "--port", "0", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("supervised")
def test_health_pages_listen_on_loopback_unless_a_host_is_given() -> None:
    assert re.search(r"on http://127\.0\.0\.1:\d+", served_on())
    assert re.search(r"on http://0\.0\.0\.0:\d+", served_on("--host", "0.0.0.0"))
    assert "0.0.0.0" in CliRunner().invoke(app, ["run", "--help"]).output


@pytest.mark.usefixtures("supervised")
@pytest.mark.parametrize(
    ("host", "in_kubernetes", "warned"),
    [
        ("127.0.0.1", True, True),
        ("localhost", True, True),
        ("0.0.0.0", True, False),
        ("127.0.0.1", False, False),
    ],
)
def test_kubernetes_cannot_reach_a_loopback_address(
    monkeypatch: pytest.MonkeyPatch, host: str, *, in_kubernetes: bool, warned: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if in_kubernetes:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert ("set --host 0.0.0.0" in served_on("--host", host)) == warned

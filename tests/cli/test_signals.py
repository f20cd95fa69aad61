"""Signals that stop a program, and its exit codes."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

PROGRAM = """
import asyncio, signal, sys, typer
from asyncconsumer.cli.signals import run_until_stopped

async def main():
    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopping", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
try:
    run_until_stopped(main, stop_is_success=sys.argv[2] == "meant")
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def ended(*signals: signal.Signals, ignores_hangup: bool = False, how: str = "meant") -> int:
    """Return the exit code of a program that gets these signals, the others while it stops.

    With `ignores_hangup`, the program ignores SIGHUP, as programs started by nohup do.
    """
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "SIG_IGN" if ignores_hangup else "SIG_DFL", how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == f"{ignores_hangup}\n"
        first, *others = signals
        process.send_signal(first)
        assert process.stdout.readline() == "stopping\n"
        for other in others:
            process.send_signal(other)
        if not others:
            process.stdin.write("\n")
            process.stdin.close()
        return process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_exit_code_names_a_signal_unless_a_stop_is_a_success(
    number: signal.Signals,
) -> None:
    assert ended(number) == 0
    assert ended(number, how="by itself") == 128 + number


def test_a_second_signal_ends_a_stopping_program_immediately() -> None:
    assert ended(signal.SIGTERM, signal.SIGINT) == -signal.SIGINT
    assert ended(signal.SIGINT, signal.SIGTERM) == -signal.SIGTERM


def test_a_hangup_that_nohup_ignores_is_not_delivered() -> None:
    assert ended(signal.SIGTERM, ignores_hangup=True) == 0

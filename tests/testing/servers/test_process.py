"""Server processes, with small commands in place of servers."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from asyncconsumer.testing.servers import ServerError, StartFailed
from asyncconsumer.testing.servers.process import ServerProcess, together

pytestmark = pytest.mark.fast


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


async def until(condition: "object", what: str) -> None:
    assert callable(condition)
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


def sleeper(tmp_path: Path, *command: str) -> ServerProcess:
    return ServerProcess("a sleeper", command or ("sleep", "1000"), tmp_path, tmp_path / "rubbish")


@pytest_asyncio.fixture
async def running(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    process = sleeper(tmp_path)
    await process.start(at_once)
    yield process
    await process.kill()


async def test_a_killed_server_can_be_started_again(running: ServerProcess) -> None:
    first = running.pid
    await running.kill()
    assert running.state == "down"
    assert not psutil.pid_exists(first)
    with pytest.raises(ServerError, match="a sleeper is down"):
        _ = running.pid
    await running.start(at_once)
    assert running.pid != first


async def test_a_paused_server_is_stopped_by_the_kernel_until_resumed(
    running: ServerProcess,
) -> None:
    process = psutil.Process(running.pid)
    running.pause()
    assert running.state == "paused"
    await until(lambda: process.status() == psutil.STATUS_STOPPED, "stopped")
    running.resume()
    await until(lambda: process.status() != psutil.STATUS_STOPPED, "running again")
    assert running.state == "running"


async def test_stop_ends_a_paused_server(running: ServerProcess) -> None:
    running.pause()
    await running.stop()
    assert running.state == "down"


async def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"trap '' TERM; touch {ready}; while true; do sleep 0.1; done"
    process = sleeper(tmp_path, "bash", "-c", program)

    async def is_ready() -> bool:
        return ready.exists()

    await process.start(is_ready)
    await process.stop(timeout=0.2)
    assert process.state == "down"


async def test_a_server_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    process = sleeper(tmp_path, "bash", "-c", "echo java.net.BindException: taken; exit 3")
    with pytest.raises(StartFailed, match="a sleeper ended with exit code 3") as caught:
        await process.start(never)
    assert "java.net.BindException: taken" in str(caught.value)
    assert process.state == "down"


async def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    process = sleeper(tmp_path, "no-such-program")
    with pytest.raises(StartFailed, match="a sleeper could not be started") as caught:
        await process.start(at_once)
    assert "no-such-program" in caught.value.log_tail
    assert process.state == "down"


async def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    with pytest.raises(StartFailed, match="not ready within 0 s"):
        await process.start(never, timeout=0.1)
    assert process.state == "down"


async def test_a_cancelled_start_ends_the_server(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    async with asyncio.TaskGroup() as group:
        start = group.create_task(process.start(never))
        await until(lambda: process.running, "running")
        start.cancel()
    assert process.state == "down"


async def test_a_second_start_of_a_running_server_is_refused(running: ServerProcess) -> None:
    with pytest.raises(ServerError, match="already running"):
        await running.start(at_once)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_does_not_outlive_its_parent_process(
    tmp_path: Path, how: signal.Signals
) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.mkdir()
    program = (
        "import asyncio, pathlib, sys; from tests.testing.servers.test_process import *\n"
        "async def main():\n"
        f"    process = sleeper(pathlib.Path({str(tmp_path)!r}))\n"
        "    await process.start(at_once)\n"
        "    print(process.pid, flush=True)\n"
        "    process.pause()\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert psutil.pid_exists(server)
        os.kill(parent.pid, how)
    await until(lambda: not psutil.pid_exists(server), "the server is gone")
    await until(lambda: not rubbish.exists(), "its folder is gone")


async def test_together_raises_the_first_error_unchanged() -> None:
    async def fail() -> None:
        raise ServerError("no")

    with pytest.raises(ServerError, match="no"):
        await together(asyncio.sleep(1000), fail())

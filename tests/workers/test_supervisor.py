"""The supervisor with workers that are short Python programs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil
import pytest

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ConfigError
from asyncconsumer.workers.dashboard_actions import WorkerActions
from asyncconsumer.workers.process import WorkerProcess, WorkerSpec
from asyncconsumer.workers.recycling import NO_LIMITS, RecycleLimits
from asyncconsumer.workers.supervisor import Supervisor
from tests.support.helpers import until

pytestmark = pytest.mark.fast

LEAVES_A_CHILD = """
import os, signal, time
if child := os.fork():
    open({pid!r}, "w").write(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
COMES_UP = """
line.sendall(b'{"up": true}\\n')
line.sendall(b'{"status": {"live": true, "ready": true, "state": "x", "newer": 1}}\\n')
line.recv(100)
"""
COMES_UP_WITH_GRACE = """
line.sendall(b'{"up": true, "grace": %d}\\n' % (300 + number))
line.sendall(b'{"status": {"live": true, "ready": true, "state": "x"}}\\n')
line.recv(100)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(WorkerSpec):
    """A worker that runs a script of a test, in which `line` is its end of the control pipe."""

    target: str = ""
    grace: float | None = 1.0
    uvloop: bool = False
    broken: list[int] = field(default_factory=list)  # numbers of workers that cannot be started

    def command(self, number: int, descriptor: int) -> list[str]:
        if number in self.broken:
            return ["/nowhere/python"]
        line = f"import socket; number = {number}; line = socket.socket(fileno={descriptor})"
        return [sys.executable, "-S", "-c", f"{line}\n{self.target}"]


@asynccontextmanager
async def watched(script: str) -> AsyncIterator[WorkerProcess]:
    async with Scope("test") as scope:
        worker = await WorkerProcess.start(1, Script(target=script), lambda _: None)
        scope.start(worker.watch(), "watch")
        try:
            yield worker
        finally:
            worker.kill()
            await until(worker.ended.is_set)


async def test_a_worker_has_ended_although_its_child_holds_the_pipe(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with watched(LEAVES_A_CHILD.format(pid=str(pid))) as worker:
        try:
            await until(worker.ended.is_set)
            assert worker.reason == "SIGKILL"
        finally:
            os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_the_last_output_of_a_worker_is_read() -> None:
    async with watched("""line.sendall(b'{"failed": "no disk"}\\n')""") as worker:
        await until(worker.ended.is_set)
        assert worker.reason == "no disk"


async def test_a_signal_without_a_name_is_reported_by_number() -> None:
    async with watched("import os; os.kill(os.getpid(), 40)") as worker:
        await until(worker.ended.is_set)
        assert worker.reason == "signal 40"


@asynccontextmanager
async def supervised(
    job: Script, code: int = 0, limits: RecycleLimits = NO_LIMITS
) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    said: list[str] = []
    supervisor = Supervisor(job, 2, said.append, Random(1), limits)
    async with Scope("test") as scope:
        running = scope.start(supervisor.run(), "run")
        try:
            yield supervisor, said
        finally:
            supervisor.stop()
            await asyncio.wait({running})
    assert running.result() == code


def begins(words: str, said: list[str]) -> bool:
    return any(sentence.startswith(words) for sentence in said)


def descriptors() -> int:
    return psutil.Process().num_fds()


def ready(supervisor: Supervisor) -> list[bool]:
    return [status.ready for status in supervisor.status_by_worker().values()]


async def test_workers_get_the_grace_that_they_request() -> None:
    async with supervised(Script(target=COMES_UP_WITH_GRACE, grace=None)) as (supervisor, said):
        await until(lambda: ready(supervisor) == [True, True])
    assert begins("draining for up to 302 s", said)


async def test_a_failed_start_does_not_end_other_workers() -> None:
    job = Script(target=COMES_UP, broken=[2])
    before = descriptors()
    async with supervised(job) as (supervisor, said):
        await until(lambda: ready(supervisor) == [True, False])
        await until(lambda: begins("worker 2: the process cannot be started: [Errno 2]", said))
        job.broken.clear()
        await until(lambda: all(ready(supervisor)))

        job.broken.append(2)
        supervisor.reload()
        why = "the old workers continue: the process cannot be started: [Errno 2]"
        await until(lambda: begins(f"reload failed, {why}", said))
        assert all(ready(supervisor))
    # uvloop keeps a descriptor after the first process, and each start has a pair of sockets
    assert descriptors() <= before + 1


@pytest.mark.parametrize("message", ["nonsense", "{'status': {}}"])
async def test_a_worker_with_an_invalid_report_is_killed(message: str) -> None:
    line = message.replace("'", '"')
    async with watched(f"line.sendall({line!r}.encode() + b'\\n'); line.recv(100)") as worker:
        await until(worker.ended.is_set)
        assert worker.reason is not None
        assert worker.reason.startswith("killed after an invalid report: ")


async def test_a_worker_that_dies_repeatedly_is_restarted_with_a_delay() -> None:
    dies = "import os; os.kill(os.getpid(), 9)"
    async with supervised(Script(target=dies)) as (_, said):
        again = "worker 1 has ended 2 times in a row: SIGKILL; restart in "
        await until(lambda: begins(again, said))


async def test_a_closed_output_does_not_prevent_the_shutdown() -> None:
    def refuse(_: str) -> None:
        raise BrokenPipeError

    supervisor = Supervisor(Script(target=COMES_UP), 2, refuse, Random(1))
    async with asyncio.timeout(20), Scope("test") as scope:
        running = scope.start(supervisor.run(), "run")
        await until(lambda: all(ready(supervisor)))
        supervisor.stop()
        await asyncio.wait({running})
    assert running.result() == 0


async def test_an_unusable_app_is_reported_once() -> None:
    said: list[str] = []
    job = Script(target="""line.sendall(b'{"unusable": "no such app"}\\n')""")
    supervisor = Supervisor(job, 2, said.append, Random(1))
    assert await supervisor.run() == 2
    assert (said, supervisor.unusable) == ([], "no such app")


async def test_a_worker_that_dies_during_the_drain_fails_the_shutdown() -> None:
    job = Script(target=f"{COMES_UP}if number == 2: import os; os.kill(os.getpid(), 9)")
    async with supervised(job, code=1) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
    assert "worker 2 died while draining: SIGKILL" in said


async def test_static_members_are_reloaded_one_by_one(
    tmp_path: Path,
) -> None:
    """Each worker creates a file while it runs, and fails if the file exists."""
    alone = f"""
import os
mine = {str(tmp_path)!r} + f"/{{number}}"
os.close(os.open(mine, os.O_CREAT | os.O_EXCL))
{COMES_UP.replace('"up": true', '"up": true, "static": true')}
os.remove(mine)
"""
    async with supervised(Script(target=alone)) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
        supervisor.reload()
        await until(lambda: "reload: done" in said)
        await until(lambda: all(ready(supervisor)))
    assert sum("exit code 1" in sentence for sentence in said) == 0
    assert sum(" is up, process" in sentence for sentence in said) == 4


async def test_a_failed_static_member_stops_the_reload(
    tmp_path: Path,
) -> None:
    new = tmp_path / "new"
    static = COMES_UP.replace('"up": true', '"up": true, "static": true')
    job = Script(target=f"import os\nif os.path.exists({str(new)!r}): os.abort()\n{static}")
    async with supervised(job) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
        new.touch()
        supervisor.reload()
        await until(
            lambda: begins("reload failed at worker 1, the other workers continue: SIGABRT", said)
        )
        assert ready(supervisor) == [False, True]
        assert not begins("worker 2 has ended", said)


def has_read(records: int, up: str = '"up": true') -> str:
    """Return a worker that reports records, but only the first one of slot 1 reports many."""
    report = f"""line.sendall(b'{{"records": %d, "memory": 1}}\\n' % ({records} if first else 0))"""
    coming = COMES_UP.replace('"up": true', up)
    return f"import os\nfirst = number == 1 and not os.path.exists(mark)\n{report}\n{coming}"


async def test_a_worker_that_reaches_its_record_limit_is_replaced(tmp_path: Path) -> None:
    mark = tmp_path / "replaced"
    job = Script(target=f"mark = {str(mark)!r}\n{has_read(1000)}")
    async with supervised(job, limits=RecycleLimits(records=1000)) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
        mark.touch()
        await until(lambda: "worker 1 is replaced: it has read 1000 records" in said)
        await until(lambda: sum(" is up, process" in line for line in said) == 3)
        await until(lambda: all(ready(supervisor)))
        assert not begins("worker 1 has ended", said)  # the successor was up before
        assert not begins("worker 2 ", [line for line in said if "is up" not in line])


async def test_a_static_member_ends_before_its_successor_starts(tmp_path: Path) -> None:
    mark = tmp_path / "replaced"
    script = has_read(1000, '"up": true, "static": true')
    job = Script(target=f"mark = {str(mark)!r}\n{script}")
    async with supervised(job, limits=RecycleLimits(records=1000)) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
        mark.touch()
        await until(lambda: begins("worker 1 has ended: exit code 0", said))
        await until(lambda: all(ready(supervisor)))


async def test_a_worker_is_kept_if_its_successor_fails(tmp_path: Path) -> None:
    mark = tmp_path / "broken"
    script = f"mark = {str(mark)!r}\n{has_read(1000)}"
    job = Script(target=f"import os\nif os.path.exists({str(mark)!r}): os.abort()\n{script}")
    async with supervised(job, limits=RecycleLimits(records=1000)) as (supervisor, said):
        await until(lambda: all(ready(supervisor)))
        mark.touch()
        await until(lambda: "worker 1 could not be replaced: SIGABRT" in said)
        assert ready(supervisor)[0]
        mark.unlink()


RECORDS_PAUSED_TOPICS = """
line.sendall(b'{"up": true}\\n')
line.sendall(b'{"status": {"live": true, "ready": true, "state": "x", "lag": {"orders": {}}}}\\n')
for message in line.makefile("rb"):
    if b"paused_topics" in message:
        open(f"{folder}/{number}", "a").write(message.decode())
    else:
        break
"""


async def test_topics_are_paused_in_all_and_in_later_workers(tmp_path: Path) -> None:
    script = f"folder = {str(tmp_path)!r}\n{RECORDS_PAUSED_TOPICS}"

    def received(number: int) -> list[list[str]]:
        file = tmp_path / str(number)
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line)["paused_topics"] for line in lines]

    async with supervised(Script(target=script)) as (supervisor, _):
        actions = WorkerActions(supervisor, None)
        await until(lambda: all(ready(supervisor)))
        with pytest.raises(ConfigError, match="No worker reads 'unknown' now"):
            await actions.perform("pause", "unknown")
        assert await actions.perform("pause", "orders") == "Paused orders in 2 workers."
        await until(lambda: received(1) == received(2) == [["orders"]])
        assert (actions.available, actions.paused) == (("pause", "resume"), ("orders",))
        supervisor.reload()
        await until(lambda: received(1) == received(2) == [["orders"], ["orders"]])
        assert await actions.perform("resume", "orders") == "Resumed orders in 2 workers."
        await until(lambda: received(1)[-1] == received(2)[-1] == [])


async def test_a_cancelled_start_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()

    async def never(_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("asyncconsumer.workers.process.ControlPipe.open", never)
    before = set(psutil.Process().children())
    async with asyncio.TaskGroup() as tasks:
        job = Script(target="import time; time.sleep(600)")
        starting = tasks.create_task(WorkerProcess.start(1, job, lambda _: None))
        await begun.wait()
        assert set(psutil.Process().children()) > before
        starting.cancel()
    assert set(psutil.Process().children()) <= before

"""A worker process whose supervisor is the test."""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from asyncconsumer.aio.scope import Scope
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.workers.process import WorkerProcess, WorkerSpec
from tests.support.example_services import ROOT, Service, open_service
from tests.support.helpers import until


@pytest.fixture(autouse=True)
def _root_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@asynccontextmanager
async def worker(
    service: Service, monkeypatch: pytest.MonkeyPatch, target: str, *, grace: float = 60
) -> AsyncIterator[WorkerProcess]:
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    job = WorkerSpec(target=target, grace=grace, uvloop=True)
    async with Scope("test") as scope:
        started = await WorkerProcess.start(1, job, lambda _: None)
        scope.start(started.watch(), "watch")
        try:
            yield started
        finally:
            started.kill()
            await until(started.ended.is_set)


async def test_a_worker_drains_when_its_supervisor_is_gone(
    kafka: KafkaHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await service.send(100)
        async with worker(service, monkeypatch, "examples.worker:app") as running:
            await until(lambda: len(service.stored()) > 20)
            await running.detach()
            await until(running.ended.is_set)
            assert running.reason == "exit code 0"
        await service.send(10)
        async with worker(service, monkeypatch, "examples.worker:app") as running:
            await until(lambda: len(service.stored()) == service.sent and _lag_of(running) == 0)
            running.drain()
            await until(running.ended.is_set)
        assert service.stored() == Counter(range(service.sent))


async def test_records_that_are_unfinished_after_the_grace_are_reported(
    kafka: KafkaHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await service.send(1)
        async with worker(service, monkeypatch, "tests.support.slow_app:app", grace=0.2) as running:
            await until(service.store.exists)
            os.kill(running.pid, signal.SIGTERM)
            await until(running.ended.is_set)
            assert running.unfinished == f"1 records: {service.topic}[0]@0"
            assert running.reason == "exit code 1"


async def test_repeated_signals_drain_a_worker_once(
    kafka: KafkaHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await service.send(1)
        async with worker(service, monkeypatch, "tests.support.slow_app:app") as running:
            await until(service.store.exists)
            for _ in range(2):  # from a service manager and from the supervisor
                os.kill(running.pid, signal.SIGTERM)
                running.drain()
            await until(lambda: _state_of(running) == "draining")
            (tmp_path / "enough").touch()
            await until(running.ended.is_set)
            assert (running.reason, running.unfinished) == ("exit code 0", None)


RAISES_ITS_INSTANCE_ID = """
from asyncconsumer import ConfigError, ConsumerApp

class App(ConsumerApp):
    async def __aenter__(self):
        raise ConfigError(self._options["group_instance_id"])

app = App(bootstrap_servers="k:1", group_id="g", group_instance_id="billing")
"""


async def test_workers_have_instance_ids_with_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check instance ids, because workers with the same one would fence each other."""
    (tmp_path / "named.py").write_text(RAISES_ITS_INSTANCE_ID)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = WorkerSpec(target="named:app", grace=1, uvloop=False)
    running = await WorkerProcess.start(7, job, lambda _: None)
    await running.watch()
    assert running.reason == "billing-7"


def _lag_of(running: WorkerProcess) -> int | None:
    """Return the lag, or None before the worker has partitions."""
    status = running.status
    return status.total_lag if status is not None and status.lag else None


def _state_of(running: WorkerProcess) -> str | None:
    return None if running.status is None else running.status.state

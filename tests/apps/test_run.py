"""`asyncconsumer run` as its user sees it: workers, what is told of them, how it ends."""

import signal
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from asyncconsumer.testing.handles import KafkaHandle
from tests.apps.services import Service, service
from tests.apps.test_services import has_the_rest_kept
from tests.helpers import until

RUN = [sys.executable, "-c", "from asyncconsumer.cli import main; main()", "run"]


def workers(one: Service) -> set[int]:
    """Their process ids."""
    return {child.pid for child in psutil.Process(one.process.pid).children()}


async def lines(one: Service, *expected: str) -> None:
    await until(lambda: one.alive() and all(line in one.told for line in expected))


async def test_workers_are_kept_replaced_and_drained(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, "examples.worker:app", "--workers", "2", "--port", str(one.port))
        await one.says("/ready", 200)
        _, status = await one.get("/status")
        assert set(status["workers"]) == {"1", "2"}
        assert set(status["lag"][one.topic]) == {"0", "1"}
        _, text = await one.get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        ready = {s.labels["worker"]: s.value for s in families["asyncconsumer_ready"].samples}
        assert ready == {"1": 1, "2": 1}

        first = workers(one)
        psutil.Process(min(first)).terminate()
        await lines(one, "has ended: exit code 0; next try in 0.")
        await until(lambda: len(workers(one)) == 2)
        await one.says("/ready", 200)
        second = workers(one)
        assert len(second & first) == 1

        await one.send(300)
        one.process.send_signal(signal.SIGHUP)
        await lines(one, "reload: done")
        assert len(workers(one)) == 2
        assert not workers(one) & second
        await one.keeps_them_all()

        await one.send(500)
        await until(lambda: len(one.kept()) > 320)
        assert await one.ends() == 0, one.told
        assert len(one.kept()) < one.sent, "it was not in the midst of it"
        assert "draining, within 20 s" in one.told
        await has_the_rest_kept(one)
        assert one.kept() == Counter(range(one.sent))


async def test_what_does_not_end_is_cut_short_and_told(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await one.send(1)
        one.start(*RUN, "tests.apps.slow_app:app", "--grace", "0.3", "--no-uvloop")
        await until(lambda: one.alive() and (tmp_path / "orders.sqlite").exists())
        assert await one.ends() == 1
        assert f"did not finish, and not commit, 1 records: {one.topic}[0]@0" in one.told


async def test_a_second_signal_does_not_wait(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await one.send(1)
        one.start(*RUN, "tests.apps.slow_app:app", "--grace", "600")
        await until(lambda: one.alive() and (tmp_path / "orders.sqlite").exists())
        one.process.send_signal(signal.SIGINT)
        await lines(one, "draining, within 600 s")
        (worker,) = workers(one)
        psutil.Process(worker).terminate()  # as service managers do to all processes
        assert await one.ends(signal.SIGINT) == 1
        assert "did not finish" in one.told


async def test_workers_end_with_their_supervisor(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, "examples.worker:app")
        await lines(one, "worker 1 is up")
        (worker,) = map(psutil.Process, workers(one))
        assert await one.ends(signal.SIGKILL) == -signal.SIGKILL
        await until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


async def test_a_reload_that_fails_changes_nothing(kafka: KafkaHandle, tmp_path: Path) -> None:
    (tmp_path / "orders_app.py").write_text("from examples.worker import app\n")
    async with service(kafka, tmp_path) as one:
        path = f"{tmp_path}:."
        one.start(*RUN, "orders_app:app", "--port", str(one.port), PYTHONPATH=path)
        await one.says("/ready", 200)
        before = workers(one)
        (tmp_path / "orders_app.py").write_text("import nowhere\n")
        one.process.send_signal(signal.SIGHUP)
        await lines(one, "the old ones go on: orders_app cannot be imported: ModuleNotFoundError")
        assert workers(one) >= before
        assert (await one.get("/ready"))[0] == 200
        assert await one.ends() == 0


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("worker", "'worker' is no module and attribute: name it as in"),
        ("no_such:app", "no_such cannot be imported: ModuleNotFoundError: No module named"),
        ("examples.worker:ap", "examples.worker has no 'ap'; it has app: name it as in"),
        ("examples.worker:TOPIC", "examples.worker:TOPIC is no ConsumerApp but a str: name it"),
    ],
)
async def test_what_cannot_run_is_one_line(
    target: str, told: str, kafka: KafkaHandle, tmp_path: Path
) -> None:
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, target, "--workers", "1")
        await until(lambda: one.process.poll() is not None)
        assert (one.process.returncode, one.told.count("\n")) == (2, 1), one.told
        assert one.told.startswith(f"error: {told}")


async def test_a_worker_that_dies_again_and_again(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, "tests.apps.dying_app:app", "--port", str(one.port))
        await lines(one, "worker 1 has ended 2 times in a row: SIGKILL; next try in")
        assert (await one.get("/ready"))[0] == 503
        assert await one.ends() == 0

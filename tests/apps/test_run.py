"""`asyncconsumer run` as its user sees it: workers, what is told of them, how it ends."""

import asyncio
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from asyncconsumer.testing.handles import KafkaHandle
from tests.apps.services import Program, Service, service
from tests.apps.test_services import has_the_rest_kept
from tests.helpers import until

RUN = [sys.executable, "-c", "from asyncconsumer.cli import main; main()", "run"]
QUICK = """
from asyncconsumer import ConsumerApp
from examples import worker

app = ConsumerApp(
    bootstrap_servers=worker.BROKERS,
    group_id=worker.GROUP,
    auto_offset_reset="earliest",
    heartbeat_interval_ms=300,
)
app.handler(worker.TOPIC, concurrency=4)(worker.keep)
"""


def workers(one: Service) -> set[int]:
    """Their process ids."""
    return {child.pid for child in psutil.Process(one.process.pid).children()}


async def test_workers_are_kept_replaced_and_drained(kafka: KafkaHandle, tmp_path: Path) -> None:
    module = tmp_path / "orders_app.py"
    module.write_text(QUICK)
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, "orders_app:app", "--workers", "2", "--port", str(one.port))
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
        await one.tells("has ended: exit code 0; next try in 0.")
        await one.tells(" is up: process ", times=3)
        second = workers(one)
        assert len(second & first) == 1

        module.write_text("import nowhere\n")
        one.process.send_signal(signal.SIGHUP)
        await one.tells("the old ones go on: orders_app cannot be imported: ModuleNotFoundError")
        await until(lambda: workers(one) == second)

        module.write_text(QUICK)
        await one.send(300)
        one.process.send_signal(signal.SIGHUP)
        await one.tells("reload: done")
        assert len(workers(one)) == 2
        assert not workers(one) & second

        assert await one.ends_in_the_midst() == 0, one.told
        assert "draining, within 20 s" in one.told
        await has_the_rest_kept(one)


PATIENT = """
from asyncconsumer import ConsumerApp
from examples import worker

app = ConsumerApp(
    bootstrap_servers=worker.BROKERS,
    group_id=worker.GROUP,
    auto_offset_reset="earliest",
    group_protocol={protocol!r},
    {session}
)
app.handler(worker.TOPIC, concurrency=4)(worker.keep)
"""


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_group_does_not_wait_for_a_worker_that_was_killed(
    kafka: KafkaHandle, tmp_path: Path, protocol: str, count: int
) -> None:
    """Its session would last for minutes, or, as the broker has it, for 45 s."""
    session = "session_timeout_ms=600_000" if protocol == "classic" else ""
    module = PATIENT.format(protocol=protocol, session=session)
    (tmp_path / "orders_app.py").write_text(module)
    async with service(kafka, tmp_path) as one:
        one.start(*RUN, "orders_app:app", "--workers", str(count), "--port", str(one.port))
        await one.tells(" is up: process ", times=count)
        await one.says("/ready", 200)
        await asyncio.sleep(1.5)  # each tells its member id once a second
        for child in psutil.Process(one.process.pid).children()[:1]:
            child.kill()
        await one.send(50)
        await until(lambda: len(one.kept()) == one.sent, seconds=35)
        assert await one.ends() == 0, one.told


async def test_a_second_signal_does_not_wait(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await one.send(1)
        one.start(*RUN, "tests.apps.slow_app:app", "--grace", "600")
        await until(lambda: one.alive() and one.store.exists())
        one.process.send_signal(signal.SIGINT)
        await one.tells("draining, within 600 s")
        assert await one.ends(signal.SIGINT) == 1
        assert f"did not finish, and not commit, 1 records: {one.topic}[0]@0" in one.told


async def test_what_cannot_run_is_one_line(tmp_path: Path) -> None:
    async with aclosing(Program(tmp_path)) as one:
        one.start(*RUN, "no_such:app")
        assert await one.ends(None) == 2
        why = "ModuleNotFoundError: No module named 'no_such'"
        assert one.told == f"error: no_such cannot be imported: {why}\n"

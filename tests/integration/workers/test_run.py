"""`asyncconsumer run` as a program: workers, output and exit codes."""

import asyncio
import json
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from asyncconsumer import Admin
from asyncconsumer.testing.handles import KafkaHandle
from tests.integration.workers.test_examples import check_that_the_rest_is_stored
from tests.support.example_services import Program, Service, open_service
from tests.support.helpers import until

RUN = [sys.executable, "-c", "from asyncconsumer.cli import main; main()", "run"]
QUICK = """
from asyncconsumer import ConsumerApp
from examples import worker

app = ConsumerApp.from_env(auto_offset_reset="earliest", heartbeat_interval_ms=300)
app.handler(worker.TOPIC, concurrency=4)(worker.store_order)
"""


def workers(service: Service) -> set[int]:
    """Return the process ids of the workers."""
    return {child.pid for child in psutil.Process(service.process.pid).children()}


async def test_workers_are_restarted_reloaded_and_drained(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    module = tmp_path / "orders_app.py"
    module.write_text(QUICK)
    async with open_service(kafka, tmp_path) as service:
        service.start(*RUN, "orders_app:app", "--workers", "2", "--port", str(service.port))
        await service.wait_status("/ready", 200)
        _, status = await service.get("/status")
        assert set(status["workers"]) == {"1", "2"}
        assert set(status["lag"][service.topic]) == {"0", "1"}
        _, text = await service.get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        ready = {s.labels["worker"]: s.value for s in families["asyncconsumer_ready"].samples}
        assert ready == {"1": 1, "2": 1}
        assigned = families["asyncconsumer_assigned_partitions"].samples
        assert {s.labels["worker"]: s.value for s in assigned} == {"1": 1, "2": 1}

        first = workers(service)
        psutil.Process(min(first)).terminate()
        await service.wait_output("has ended: exit code 0; restart in 0.")
        await service.wait_output(" is up, process ", times=3)
        second = workers(service)
        assert len(second & first) == 1

        module.write_text("import nowhere\n")
        service.process.send_signal(signal.SIGHUP)
        await service.wait_output(
            "the old workers continue: orders_app cannot be imported: ModuleNotFoundError"
        )
        await until(lambda: workers(service) == second)

        module.write_text(QUICK)
        await service.send(300)
        service.process.send_signal(signal.SIGHUP)
        await service.wait_output("reload: done")
        assert len(workers(service)) == 2
        assert not workers(service) & second

        status, dashboard = await service.get("/")
        assert (status, "<title>Kafka groups</title>" in dashboard) == (200, True)

        assert await service.stop_during_traffic() == 0, service.observed
        assert "draining for up to 20 s" in service.observed
        await check_that_the_rest_is_stored(service, kafka)


UNPAUSED = """
from pathlib import Path

@app.handler({topic!r})
async def touch(value: bytes) -> None:
    Path({folder!r}, value.decode()).touch()
"""
TOKEN = "a token with enough characters"


async def test_topics_stay_paused_in_replaced_workers(kafka: KafkaHandle, tmp_path: Path) -> None:
    module, unpaused = tmp_path / "orders_app.py", await kafka.topic(partitions=2)
    source = QUICK + UNPAUSED.format(topic=unpaused, folder=str(tmp_path))
    module.write_text(source)
    reload = ["--reload", "--reload-dir", str(tmp_path)]
    options = ["--workers", "2", *reload, "--recycle-records", "200", "--ready", "traffic"]
    async with open_service(kafka, tmp_path) as service:
        service.environment["ASYNCCONSUMER_DASHBOARD_TOKEN"] = TOKEN

        async def act(name: str) -> tuple[int, str]:
            url = f"http://127.0.0.1:{service.port}/actions/{name}"
            headers = {"Authorization": f"Bearer {TOKEN}"}
            body = {"topic": service.topic}
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=body, headers=headers) as response,
            ):
                return response.status, (await response.json())["message"]

        service.start(*RUN, "orders_app:app", "--port", str(service.port), *options)
        await service.wait_status("/started", 200)
        await service.send(10)
        await service.wait_stored()
        async with asyncio.timeout(60):  # a worker that joins may not have its partitions yet
            while await act("pause") != (200, f"Paused {service.topic} in 2 workers."):
                await asyncio.sleep(0.1)

        before = workers(service)
        module.write_text(f"{source}# changed\n")
        await service.wait_output("orders_app.py changed")
        await service.wait_output("reload: done")
        assert not workers(service) & before
        await service.send(500)
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for partition in range(2):
                await producer.send_and_wait(unpaused, b"%d" % partition, partition=partition)
        await until(lambda: {path.name for path in tmp_path.glob("[01]")} == {"0", "1"})
        assert len(service.stored()) == 10
        assert (await service.get("/ready"))[0] == 200
        assert await act("resume") == (200, f"Resumed {service.topic} in 2 workers.")
        await service.wait_stored()
        await service.wait_output(" is replaced: it has read ", times=2)
        await service.wait_status("/started", 200)
        await service.send(10)
        await service.wait_stored()
        assert await service.end() == 0, service.observed


PATIENT = """
from asyncconsumer import ConsumerApp
from examples import worker

app = ConsumerApp.from_env(
    auto_offset_reset="earliest",
    group_protocol={protocol!r},
    {session}
)
app.handler(worker.TOPIC, concurrency=4)(worker.store_order)
"""


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_killed_workers_partitions_are_reassigned_at_once(
    kafka: KafkaHandle, tmp_path: Path, protocol: str, count: int
) -> None:
    """Check a worker whose session would last for 45 s or longer."""
    session = "session_timeout_ms=600_000" if protocol == "classic" else ""
    module = PATIENT.format(protocol=protocol, session=session)
    (tmp_path / "orders_app.py").write_text(module)
    async with open_service(kafka, tmp_path) as service:
        service.start(*RUN, "orders_app:app", "--workers", str(count), "--port", str(service.port))
        await service.wait_output(" is up, process ", times=count)
        await service.wait_status("/ready", 200)
        await asyncio.sleep(1.5)  # each worker reports its member id once a second
        for child in psutil.Process(service.process.pid).children()[:1]:
            child.kill()
        await service.send(50)
        await until(lambda: len(service.stored()) == service.sent, seconds=35)
        assert await service.end() == 0, service.observed


RETRYING = """
from asyncconsumer import ConsumerApp, Retry
from examples import worker

app = ConsumerApp.from_env()
retry = Retry(topic=f"{worker.TOPIC}.retry")
app.handler(worker.TOPIC, retry=retry, dead_letter_topic=f"{worker.TOPIC}.dead")(worker.store_order)
"""


async def test_missing_topics_end_the_program_or_are_created(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    (tmp_path / "orders_app.py").write_text(RETRYING)
    async with open_service(kafka, tmp_path) as service:
        service.start(*RUN, "orders_app:app")
        assert await service.end(None) == 2
        assert f"its retry topic '{service.topic}.retry' does not exist. Create" in service.observed
        service.start(*RUN, "orders_app:app", "--workers", "2", "--create-topics")
        await service.wait_output(" is up, process ", times=2)
        async with Admin(kafka.bootstrap_servers) as admin:
            names = [f"{service.topic}.dead", f"{service.topic}.retry"]
            created = await admin.describe_topics(names)
        assert [len(topic.partitions) for topic in created] == [1, 2]
        assert await service.end() == 0, service.observed


async def test_a_second_signal_ends_the_program_without_draining(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await service.send(1)
        service.start(*RUN, "tests.support.slow_app:app", "--grace", "600", "--log-format", "json")
        await until(lambda: service.alive() and service.store.exists())
        service.process.send_signal(signal.SIGINT)
        await service.wait_output("draining for up to 600 s")
        assert await service.end(signal.SIGINT) == 1
        assert f"did not finish 1 records: {service.topic}[0]@0" in service.observed
        lines = [json.loads(line) for line in service.observed.splitlines()]
        assert {line.get("worker") for line in lines} == {1, None}  # None is the supervisor
        assert all(line["time"] and line["level"] and line["message"] for line in lines)


async def test_a_target_that_cannot_be_imported_is_an_error_of_one_line(tmp_path: Path) -> None:
    async with aclosing(Program(tmp_path)) as program:
        program.start(*RUN, "no_such:app")
        assert await program.end(None) == 2
        why = "ModuleNotFoundError: No module named 'no_such'"
        line = f" supervisor ERROR: no_such cannot be imported: {why}\n"
        assert (program.observed.endswith(line), program.observed.count("\n")) == (True, 1)

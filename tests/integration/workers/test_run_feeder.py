"""`asyncconsumer run` with a feeder: health pages, metrics, restarts and draining."""

from pathlib import Path

import psutil
import pyarrow.parquet as pq

from asyncconsumer.testing.handles import KafkaHandle
from tests.integration.workers.test_run import RUN
from tests.support.example_services import Service, open_service
from tests.support.helpers import until

LAKE = """
import os

from asyncconsumer import Consumer
from asyncconsumer.spark import LandingFolder, SparkFeeder

consumer = Consumer.from_env(
    os.environ["TOPIC"],
    auto_offset_reset="earliest",
    commit_policy="manual",
    heartbeat_interval_ms=300,
)
feeder = SparkFeeder(consumer, LandingFolder({folder!r}), max_wait_ms={wait_ms})
"""


def landed(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


async def collected(service: Service) -> None:
    """Wait until a batch that is not complete has records."""
    name = "asyncconsumer_feeder_collecting_bytes"
    while True:
        _, text = await service.get("/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        if float(line.split()[-1]) > 0:
            return


async def test_a_feeder_is_restarted_and_writes_its_batches_at_the_end(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    folder, module = tmp_path / "landing", tmp_path / "lake.py"
    module.write_text(LAKE.format(folder=str(folder), wait_ms=200))
    async with open_service(kafka, tmp_path) as service:
        service.start(*RUN, "lake:feeder", "--port", str(service.port))
        await service.wait_status("/ready", 200)
        await service.wait_status("/started", 200)
        await service.send(300)
        await until(lambda: service.alive() and landed(folder) == 300)
        _, text = await service.get("/metrics")
        assert 'asyncconsumer_feeder_records_total{group="' in text
        status, page = await service.get("/")
        assert (status, "<title>Kafka groups</title>" in page) == (200, True)

        (worker,) = psutil.Process(service.process.pid).children()
        worker.kill()
        await service.send(100)
        await service.wait_output(" is up, process ", times=2)
        await until(lambda: service.alive() and landed(folder) == 400)

        module.write_text(LAKE.format(folder=str(folder), wait_ms=60_000))
        worker = psutil.Process(service.process.pid).children()[0]
        worker.terminate()
        await service.wait_output(" is up, process ", times=3)
        await service.send(100)
        await collected(service)
        assert await service.end() == 0, service.observed
        assert landed(folder) > 400  # collected records are written at the end
        last = f"the feeder has stopped: {landed(folder) - 400} records written in 1 batches"
        assert last in service.observed


async def test_a_failed_feeder_is_restarted(kafka: KafkaHandle, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    (tmp_path / "lake.py").write_text(
        LAKE.format(folder=str(folder), wait_ms=200)
        + "async def fail():\n    raise OSError('the lake is dry')\nfeeder.run = fail\n"
    )
    async with open_service(kafka, tmp_path) as service:
        service.start(*RUN, "lake:feeder")
        await service.wait_output("the lake is dry")
        await service.wait_output("restart in 0.")
        assert await service.end() == 0

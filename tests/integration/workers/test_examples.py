"""The web services of the examples, as programs."""

import json
import sys
from collections import Counter
from pathlib import Path

from asyncconsumer import Batch, ConsumerApp
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.example_services import Service, open_service
from tests.support.helpers import until

AIOHTTP = [sys.executable, "-m", "examples.aiohttp_service"]
FASTAPI = [sys.executable, *("-m", "uvicorn", "examples.fastapi_service:api", "--workers", "2")]


async def run_service(service: Service, kafka: KafkaHandle, *command: str, workers: int) -> None:
    """Run a service through readiness, a pause of the broker, and a drain during traffic."""
    every_process = 1 if workers == 1 else 12  # enough connections to reach each process
    await service.send(100)
    service.start(*command)
    await service.wait_status("/kafka/ready", 200, every_process)
    await service.wait_stored()
    status, partitions = await service.get("/partitions")
    assert (status, {0, 1} >= set(partitions)) == (200, True)
    (broker,) = kafka.server.brokers.values()
    broker.pause()
    try:
        await service.wait_status("/kafka/ready", 503, every_process)
        assert (await service.get("/kafka/live"))[0] == 200
    finally:
        broker.resume()
    await service.wait_status("/kafka/ready", 200, every_process)
    assert await service.stop_during_traffic() == 0, service.observed


async def check_that_the_rest_is_stored(service: Service, kafka: KafkaHandle) -> None:
    """Read the remaining records, and check that each order is stored once."""
    app = ConsumerApp(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=service.group,
        auto_offset_reset="earliest",
    )

    @app.handler(service.topic, batch=Batch(max_records=50, max_wait_ms=20))
    async def keep(orders: list[bytes]) -> None:
        service.insert(json.loads(order)["number"] for order in orders)

    async with app:
        await until(lambda: len(service.stored()) >= service.sent)
    assert service.stored() == Counter(range(service.sent))
    assert "Traceback" not in service.observed, service.observed


async def test_the_fastapi_example_stores_each_order_once(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await run_service(service, kafka, *FASTAPI, "--port", str(service.port), workers=2)
        await check_that_the_rest_is_stored(service, kafka)


async def test_the_aiohttp_example_stores_each_order_once(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    async with open_service(kafka, tmp_path) as service:
        await run_service(service, kafka, *AIOHTTP, str(service.port), workers=1)
        await check_that_the_rest_is_stored(service, kafka)

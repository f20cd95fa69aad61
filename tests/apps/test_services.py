"""The examples, run as their users run them."""

import json
import sys
from collections import Counter
from pathlib import Path

from asyncconsumer import Batch, ConsumerApp
from asyncconsumer.testing.handles import KafkaHandle
from tests.apps.services import Service, service
from tests.helpers import until

AIOHTTP = [sys.executable, "-m", "examples.aiohttp_service"]
FASTAPI = [sys.executable, *("-m", "uvicorn", "examples.fastapi_service:api", "--workers", "2")]


async def lives(one: Service, kafka: KafkaHandle, *command: str, workers: int) -> None:
    """Keep orders, answer for them, stand a pause of the brokers, and drain; the rest is left."""
    every_process = 1 if workers == 1 else 12  # connections: almost certainly some for each
    await one.send(100)
    one.start(*command)
    await one.says("/kafka/ready", 200, every_process)
    await one.keeps_them_all()
    status, partitions = await one.get("/partitions")
    assert (status, {0, 1} >= set(partitions)) == (200, True)
    (broker,) = kafka.server.brokers.values()
    broker.pause()
    try:
        await one.says("/kafka/ready", 503, every_process)
        assert (await one.get("/kafka/live"))[0] == 200
    finally:
        broker.resume()
    await one.says("/kafka/ready", 200, every_process)
    assert await one.ends_in_the_midst() == 0, one.told


async def has_the_rest_kept(one: Service) -> None:
    """By the next member of the group: nothing that was sent is lost, or there twice."""
    app = ConsumerApp(
        bootstrap_servers=one.environment["BROKERS"],
        group_id=one.environment["GROUP"],
        auto_offset_reset="earliest",
    )

    @app.handler(one.topic, batch=Batch(max_records=50, max_wait_ms=20))
    async def keep(orders: list[bytes]) -> None:
        one.keep(json.loads(order)["number"] for order in orders)

    async with app:
        await until(lambda: len(one.kept()) >= one.sent)
    assert one.kept() == Counter(range(one.sent))
    assert "Traceback" not in one.told, one.told


async def test_a_fastapi_service_of_two_processes(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await lives(one, kafka, *FASTAPI, "--port", str(one.port), workers=2)
        await has_the_rest_kept(one)


async def test_an_aiohttp_service(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await lives(one, kafka, *AIOHTTP, str(one.port), workers=1)
        await has_the_rest_kept(one)

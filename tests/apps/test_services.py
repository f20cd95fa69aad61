"""The examples, run as their users run them."""

import sys
from collections import Counter
from pathlib import Path

from asyncconsumer.testing.handles import KafkaHandle
from tests.apps.services import Service, service
from tests.helpers import until

AIOHTTP = [sys.executable, "-m", "examples.aiohttp_service"]
FASTAPI = [sys.executable, *("-m", "uvicorn", "examples.fastapi_service:api", "--workers", "2")]


async def lives(one: Service, *command: str, workers: int) -> None:
    """Keep orders, answer for them, stand a pause of the brokers, and drain; the rest is left."""
    every_process = 1 if workers == 1 else 12  # connections: almost certainly some for each
    await one.send(100)
    one.start(*command)
    await one.says("/kafka/ready", 200, every_process)
    await one.keeps_them_all()
    (broker,) = one.kafka.server.brokers.values()
    broker.pause()
    try:
        await one.says("/kafka/ready", 503, every_process)
        assert (await one.get("/kafka/live"))[0] == 200
    finally:
        broker.resume()
    await one.says("/kafka/ready", 200, every_process)
    await one.send(500)
    await until(lambda: len(one.kept()) > 120)
    assert await one.ends() == 0, one.told
    assert len(one.kept()) < one.sent, "it was not in the midst of it"


async def has_the_rest_kept(one: Service) -> None:
    """By the next process of the group: nothing that was sent is lost, or there twice."""
    one.start(*AIOHTTP, str(one.port))
    await one.keeps_them_all()
    assert await one.ends() == 0, one.told
    assert one.kept() == Counter(range(one.sent))
    assert "Traceback" not in one.told, one.told


async def test_a_fastapi_service_of_two_processes(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await lives(one, *FASTAPI, "--port", str(one.port), workers=2)
        await has_the_rest_kept(one)


async def test_an_aiohttp_service(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with service(kafka, tmp_path) as one:
        await lives(one, *AIOHTTP, str(one.port), workers=1)
        await has_the_rest_kept(one)

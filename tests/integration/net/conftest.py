"""Secured brokers of both generations, for the tests of this folder."""

import asyncio
from collections.abc import Iterator

import pytest

from asyncconsumer.testing.servers import SECURE, Kafka, ZooKeeper


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def secure(request: pytest.FixtureRequest, _zookeeper_server: ZooKeeper) -> Iterator[Kafka]:
    """Yield a secured broker on KRaft, and one in ZooKeeper mode beside the one of the run."""
    old = request.param.startswith("3")
    chroot = f"{_zookeeper_server.connect}/{request.module.__name__}" if old else None
    kafka = Kafka(request.param, listeners=SECURE, acls=True, zookeeper=chroot)
    with asyncio.Runner() as runner:
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())

"""Clients of a fake cluster: raw requests, and the production code on top."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from aiokafka.protocol.api import Request

from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.messages import FetchPartition, FetchRequest, FetchTopic
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka import FakeCluster, RecordPayload
from asyncconsumer.types import TopicPartition

T0 = TopicPartition("t", 0)
ENOUGH = 10**6


def now() -> float:
    return asyncio.get_running_loop().time()


class Answer:
    """The result of a fetch."""

    def __init__(self, body: memoryview, version: int) -> None:
        answer = decoding.fetch_answer(body, version)
        self.code, self.session = answer.error_code, answer.session_id
        self.throttle_ms, self.endpoints = answer.throttle_ms, answer.node_endpoints
        self.topics = body[10] - 1 if version >= 12 else -1  # the number of topics
        self.parts = {part.partition: part for part in answer.partitions}
        self.codes = {part.partition: part.error_code for part in answer.partitions}
        self.data = {part.partition: body[part.start : part.end] for part in answer.partitions}
        self.order = [part.partition for part in answer.partitions]

    def observed(self, partition: int = 0, *, committed: bool = False) -> list[RecordPayload]:
        part = self.parts[partition]
        records = decoding.Records(
            self.data[partition],
            topic="t",
            partition=partition,
            offset=0,
            aborted=(part.aborted or ()) if committed else None,
            check_crc=True,
        )
        return [RecordPayload.of(record.value) for record in records]

    def offsets(self, partition: int = 0) -> list[int]:
        return [payload.offset for payload in self.observed(partition)]


class Client:
    """Raw requests to the brokers of a cluster. Topic `t` is known by its id."""

    def __init__(self, cluster: FakeCluster, brokers: BrokerPool) -> None:
        self.cluster = cluster
        self.brokers = brokers

    async def connection(self, node: int = 1, slot: int = 0) -> BrokerConnection:
        address = self.cluster.brokers[node].endpoint.address
        return await self.brokers.connection(address, Traffic.FETCH, slot=slot)

    async def ask(self, request: Request[Any], node: int = 1) -> dict[str, Any]:
        answer: dict[str, Any] = (await (await self.connection(node)).request(request)).to_object()
        return answer

    def fetching(self, *rows: tuple[int, ...], by_id: bool = True, **options: Any) -> FetchRequest:
        """Return a fetch of rows of partition, offset and more, with ENOUGH bytes for each."""
        topic = self.cluster.view.topics.get("t")
        known = FetchTopic("t", topic.topic_id if topic is not None and by_id else None)
        partitions = [FetchPartition(row[0], row[1], ENOUGH, *row[2:]) for row in rows]
        settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": ENOUGH, **options}
        return FetchRequest({known: partitions} if rows else {}, **settings)

    async def fetch(
        self, *rows: tuple[int, ...], node: int = 1, slot: int = 0, **options: Any
    ) -> Answer:
        raw = await (await self.connection(node, slot)).send_raw(self.fetching(*rows, **options))
        return Answer(raw.body, raw.version)


@asynccontextmanager
async def client_of(cluster: FakeCluster, **options: Any) -> AsyncIterator[Client]:
    config = cluster.config(**options)
    async with BrokerPool(config, randomness=Random(2), opener=cluster.open) as brokers:
        yield Client(cluster, brokers)


@asynccontextmanager
async def clients(
    partitions: int = 1, count: int = 0, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Client]]:
    """Yield a cluster with a topic `t` that broker 1 leads, with records, and a client."""
    async with FakeCluster(Random(1), **options) as cluster:
        cluster.add_topic("t", partitions)
        for partition in range(partitions):
            cluster.move_leader(TopicPartition("t", partition), 1)
            if count:
                cluster.append("t", partition, count)
        async with client_of(cluster) as client:
            yield cluster, client


def consumer_of(cluster: FakeCluster, randomness: Random | None = None) -> SimpleConsumer:
    """Return a SimpleConsumer that connects to the cluster."""
    consumer = SimpleConsumer(cluster.bootstrap_servers)
    consumer._session = KafkaClient(
        cluster.config(),
        patience_ms=60_000,
        opener=cluster.open,
        randomness=randomness or Random(3),
    )
    return consumer


async def read(consumer: SimpleConsumer, count: int, offset: int = 0) -> list[RecordPayload]:
    """Return the first records of t[0] from an offset on."""
    results = []
    stream = consumer.read("t", 0, offset)
    async for record in stream:
        results.append(RecordPayload.of(record.value))
        if len(results) == count:
            break
    stream.close()
    return results


def offsets(reported: Iterable[RecordPayload]) -> list[int]:
    return [payload.offset for payload in reported]

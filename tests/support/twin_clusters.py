"""A real cluster and a fake one with the same state, whose responses are compared."""

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.api import Request

from asyncconsumer.net.connection import RawResponse
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.messages import (
    EARLIEST,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
)
from asyncconsumer.records import decoding
from asyncconsumer.records.fetch_response import PartitionAnswer
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.log import Batch
from asyncconsumer.testing.fake_kafka.state import Partition, Topic
from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.types import Address

MOMENT = 1_700_000_000_000


def split(data: bytes) -> Iterator[Batch]:
    """Yield the batches of a record set."""
    while data:
        base, length, epoch = struct.unpack_from(">qii", data)
        (last,) = struct.unpack_from(">i", data, 23)
        (moment,) = struct.unpack_from(">q", data, 27)
        yield Batch(base, base + last + 1, epoch, moment, data[: length + 12])
        data = data[length + 12 :]


async def produce_batch(
    servers: str, topic: str, partition: int, values: list[bytes], moment: int
) -> None:
    """Write one batch, whose records are a millisecond apart."""
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        batch = producer.create_batch()
        for number, value in enumerate(values):
            batch.append(key=None, value=value, timestamp=moment + number)
        await (await producer.send_batch(batch, topic, partition=partition))


class Both:
    """A real cluster and a fake one that has the same topics, records, leaders and epochs."""

    def __init__(
        self, real: BrokerPool, fake: BrokerPool, kafka: KafkaCluster, cluster: FakeCluster
    ) -> None:
        self.sides = real, fake
        self.kafka = kafka
        self.cluster = cluster
        self.nodes: tuple[dict[Address, int], dict[Address, int]] = ({}, {})
        for node, broker in kafka.brokers.items():
            host, port = broker.address().split(":")
            self.nodes[0][Address(host, int(port))] = node
            self.nodes[1][cluster.brokers[node].endpoint.address] = node

    async def send(self, side: int, node: int, request: Request[Any], version: int) -> RawResponse:
        address = next(where for where, which in self.nodes[side].items() if which == node)
        connection = await self.sides[side].connection(address, Traffic.FETCH)
        connection.versions = {request.API_KEY: (version, version)}
        return await connection.send_raw(request)

    async def answers(
        self, node: int, request: Request[Any], version: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the decoded responses of both clusters, without fields that may differ."""
        results = []
        for side in (0, 1):
            raw = await self.send(side, node, request, version)
            prepared = request.prepare({request.API_KEY: (version, version)})
            answer = prepared.RESPONSE_TYPE.decode(bytes(raw.body)).to_object()
            for broker in answer.get("brokers", ()):
                place = Address(broker.pop("host"), broker.pop("port"))
                assert self.nodes[side][place] == broker["node_id"]
                broker.pop("rack")
            answer.get("brokers", []).sort(key=lambda row: row["node_id"])
            answer["topics"].sort(key=lambda row: row.get("name") or row["topic"])
            for topic in answer["topics"]:
                topic["partitions"].sort(key=lambda row: row["partition"])
            for name in ("throttle_time_ms", "cluster_id", "controller_id"):
                answer.pop(name, None)
            results.append(answer)
        return results[0], results[1]

    async def same(self, node: int, request: Request[Any], version: int) -> dict[str, Any]:
        real, fake = await self.answers(node, request, version)
        self.check(real, fake, f"{type(request).__name__} {version} at {node}")
        return real

    def check(self, real: object, fake: object, what: str) -> None:
        assert fake == real, f"{what}: Kafka responds {real}, the fake {fake}"

    async def fetched(
        self, node: int, version: int, *requests: FetchRequest
    ) -> tuple[list[int], list[dict[str, Any]]]:
        """Return the session ids of both clusters, and their equal response for each partition."""
        results, ids = [], []
        for side in (0, 1):
            raw = await self.send(side, node, requests[side % len(requests)], version)
            answer = decoding.fetch_answer(raw.body, raw.version)
            ids.append(answer.session_id)
            parts = [
                {
                    **{field: getattr(part, field) for field in PartitionAnswer._fields},
                    "data": bytes(raw.body[part.start : part.end]),
                    "start": 0,
                    "end": 0,
                }
                for part in answer.partitions
            ]
            endpoints = [
                (row[0], self.nodes[side][Address(str(row[1]), row[2])])
                for row in answer.node_endpoints
            ]
            whole = {"code": answer.error_code, "session": bool(answer.session_id)}
            results.append([{**whole, "endpoints": endpoints}, *parts])
        self.check(results[0], results[1], f"Fetch {version} at {node}")
        return ids, results[0]

    # --- the real state, and its copy ------------------------------------------------------------

    async def mirror(self, name: str, *ends: int) -> None:
        """Copy the current state of a topic, whose logs end at `ends`, to the fake cluster."""
        node = next(iter(self.kafka.brokers))
        raw = await self.send(0, node, MetadataRequest([name]), 12)
        response = MetadataRequest([name]).prepare({3: (12, 12)}).RESPONSE_TYPE
        (row,) = response.decode(bytes(raw.body)).to_object()["topics"]
        topic = Topic(name, row["topic_id"], 1, [])
        if name in self.cluster.view.topics:
            self.cluster.view.remove(name)
        for reported in sorted(row["partitions"], key=lambda client: client["partition"]):
            partition = Partition(
                reported["partition"],
                reported["leader"],
                tuple(reported["replicas"]),
                tuple(reported["isr"]),
                reported["leader_epoch"],
            )
            topic.partitions.append(partition)
            await self._copy_log(topic, partition, ends[partition.number])
        self.cluster.view.add(topic)

    async def _copy_log(self, topic: Topic, partition: Partition, end: int) -> None:
        start = await self._start(topic.name, partition)
        known = FetchTopic(topic.name, topic.topic_id)
        partitions = {known: [FetchPartition(partition.number, start, 10**6)]}
        request = FetchRequest(partitions, max_wait_ms=0, min_bytes=0, max_bytes=10**6)
        while True:  # a new leader raises its high watermark gradually
            raw = await self.send(0, partition.leader, request, 13)
            (part,) = decoding.fetch_answer(raw.body, raw.version).partitions
            if part.high_watermark == end:
                break
            await asyncio.sleep(0.02)
        log = partition.log
        for batch in split(bytes(raw.body[part.start : part.end])):
            if not log.epochs or log.epochs[-1][0] != batch.epoch:
                log.epochs.append((batch.epoch, batch.base))
            log.add(batch)
        log.start, log.high = part.log_start_offset, end
        log.end = end
        log.begin_epoch(partition.epoch)

    async def _start(self, name: str, partition: Partition) -> int:
        request = ListOffsetsRequest({name: [ListedOffset(partition.number, EARLIEST)]})
        raw = await self.send(0, partition.leader, request, 7)
        answer = request.prepare({2: (7, 7)}).RESPONSE_TYPE.decode(bytes(raw.body)).to_object()
        offset: int = answer["topics"][0]["partitions"][0]["offset"]
        return offset

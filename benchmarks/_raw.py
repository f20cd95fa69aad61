"""The limit of all consumers: fetch responses that are read into one buffer and dropped."""

import socket
import time

from asyncconsumer.config import ConnectionConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.fetch_request import PartitionFetch, build_request
from asyncconsumer.net.pool import Traffic
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition
from benchmarks._peers import tell


async def _learn(
    servers: str, tp: TopicPartition
) -> tuple[dict[int, tuple[int, int]], PartitionFetch]:
    async with KafkaClient(
        ConnectionConfig(bootstrap_servers=servers), patience_ms=5_000
    ) as session:
        connection, place = await session.leaders.connect(tp, Traffic.FETCH)
        return connection.versions, PartitionFetch(0, 2**20, place.leader_epoch, place.topic_id)


async def read_and_drop(servers: str, topic: str, count: int) -> None:
    tp = TopicPartition(topic, 0)
    versions, ask = await _learn(servers, tp)
    host, port = servers.split(",", maxsplit=1)[0].split(":")
    room = memoryview(bytearray(4 * 2**20))
    started, cpu = time.perf_counter(), time.process_time()
    with socket.create_connection((host, int(port))) as connection:
        offset = 0
        while offset < count:
            struct = build_request({tp: ask._replace(offset=offset)}, FetchConfig()).prepare(
                versions
            )
            head = struct.build_request_header(0, "raw").encode()
            body = struct.encode()
            connection.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
            size = int.from_bytes(_exactly(connection, room, 4), "big")
            frame = _exactly(connection, room, size)
            (part,) = decoding.fetch_answer(frame[5:], struct.API_VERSION).partitions
            offset, _ = decoding.record_set_end(frame[5 + part.start : 5 + part.end], offset)
    tell(offset, started, cpu)


def _exactly(connection: socket.socket, room: memoryview, size: int) -> memoryview:
    got = 0
    while got < size:
        got += connection.recv_into(room[got:size])
    return room[:size]

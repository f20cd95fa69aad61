"""Brokers that are killed at random moments, while a feeder and a Spark stream run."""

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from asyncconsumer.testing.servers import Kafka
from tests.support.helpers import until
from tests.support.kills.feeder import A_RUN, PARTITIONS, Feeders
from tests.support.kills.source import Table

Row = tuple[int, int, int]  # value, partition, offset


class Found(NamedTuple):
    """The result of a run."""

    records: int
    feeder_restarts: int
    query_restarts: int


async def create(kafka: Kafka, topic: str) -> None:
    """Create a topic whose acknowledged records survive the loss of one broker."""
    config = {"min.insync.replicas": "2"}
    await kafka.admin.create_topic(
        topic, partitions=PARTITIONS, replication_factor=3, config=config
    )


async def send_all(kafka: Kafka, topic: str, numbers: Iterable[int]) -> None:
    """Send until all replicas acknowledge. Retries may write a record twice."""
    remaining = list(numbers)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, acks="all", request_timeout_ms=5_000
    ) as producer:
        while remaining:
            sent = [
                (number, await producer.send(topic, b"%d" % number, partition=number % PARTITIONS))
                for number in remaining
            ]
            remaining = [number for number, answer in sent if not await _is_acknowledged(answer)]


async def _is_acknowledged(answer: Awaitable[object]) -> bool:
    try:
        await answer
    except KafkaError:
        return False
    return True


async def records_in(kafka: Kafka, topic: str) -> list[Row]:
    """Return the records of the topic, read by another client."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    rows: list[Row] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id=None
    ) as consumer:
        ends = await consumer.end_offsets(places)
        consumer.assign([tp for tp in places if ends[tp]])
        while any([await consumer.position(tp) < ends[tp] for tp in consumer.assignment()]):
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                rows += [(int(record.value), tp.partition, record.offset) for record in records]
    return sorted(rows)


async def kill_brokers(
    kafka: Kafka, feeders: Feeders, table: Table, runs: int, chance: Random
) -> Found:
    """Kill one broker of three at a time, and check that each record is written once."""
    feeders.start("a")
    await feeders.ready("a")
    restarts = 0
    for run in range(runs):
        numbers = range(run * A_RUN, (run + 1) * A_RUN)
        victim = chance.choice(list(kafka.brokers.values()))
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(kafka, feeders.topic, numbers))
            await asyncio.sleep(chance.uniform(0, 2))
            await victim.kill()
            await asyncio.sleep(chance.uniform(0, 2))
            await victim.start()
        await kafka.wait_until_whole()
        table.restart_if_ended()
        if not feeders.alive("a"):
            restarts += 1
            feeders.start("a")
            await feeders.ready("a")
    rows = await records_in(kafka, feeders.topic)
    assert {value for value, _, _ in rows} == set(range(runs * A_RUN))
    values = [value for value, _, _ in rows]
    with suppress(TimeoutError):
        await until(lambda: len(feeders.held()) >= len(rows), 120)
        await until(lambda: len(table.held()) >= len(rows), 120)
    assert feeders.held() == values
    assert table.held() == rows
    return Found(len(rows), restarts, table.restarts)

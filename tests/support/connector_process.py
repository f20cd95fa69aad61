"""A `ConsumerConnector` in its own process, which a test can kill and freeze.

    python -m tests.support.connector_process PROPERTIES EVENTS PAUSE KIND SUBSCRIPTION...

It has the arguments and the output of the Scala program, so that one driver serves both.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TextIO

from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.group.zookeeper.filters import Blacklist, Whitelist
from asyncconsumer.records import decoding
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.servers import ScalaConsumer
from asyncconsumer.types import TopicPartition


class OwnConsumer(ScalaConsumer):
    """A member with the interface of `ScalaConsumer`. It pauses for `pause` seconds per record."""

    pause = 0.0

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        events = str(folder / "events")
        words = map(str, (properties, events, self.pause, *self._subscription))
        return [sys.executable, "-m", __spec__.name, *words]


class EventWriter(RebalanceListener):
    """A listener that writes one line of JSON for each event."""

    def __init__(self, events: TextIO) -> None:
        self._events = events

    def write(self, event: str, **more: Any) -> None:
        self._events.write(json.dumps({"event": event, **more}) + "\n")
        self._events.flush()

    def record(self, record: decoding.Record, stream: int) -> None:
        self.write(
            "record",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=None if record.key is None else record.key.hex(),
            value=None if record.value is None else record.value.hex(),
            stream=stream,
            at_ms=time.time_ns() // 10**6,
        )

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        owned: dict[str, list[int]] = {}
        for topic, partition in partitions:
            owned.setdefault(topic, []).append(partition)
        self.write("releasing", partitions=owned)

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        group: dict[str, dict[int, str]] = {}
        for (topic, partition), thread in owners.items():
            group.setdefault(topic, {})[partition] = thread
        self.write("starting", owners=group)


async def read(
    stream: MessageStream[Any, Any], number: int, writer: EventWriter, pause: float
) -> None:
    async for record in stream.records:
        writer.record(record, number)
        if pause:
            await asyncio.sleep(pause)


async def streams_of(
    connector: ConsumerConnector, kind: str, requested: dict[str, int]
) -> list[MessageStream[Any, Any]]:
    if kind == "static":
        streams: dict[str, list[MessageStream[Any, Any]]]
        streams = await connector.create_message_streams(requested)
        return [stream for of_topic in streams.values() for stream in of_topic]
    ((expression, count),) = requested.items()
    topics = Whitelist(expression) if kind == "white_list" else Blacklist(expression)
    return await connector.create_message_streams_by_filter(topics, count)


async def run(properties: str, events: TextIO, pause: float, kind: str, *subscription: str) -> None:
    lines = Path(properties).read_text().splitlines()
    writer = EventWriter(events)
    connector = ConsumerConnector.from_properties(
        dict(line.split("=", 1) for line in lines), listener=writer
    )
    requested = {topic: int(count) for topic, count in zip(*[iter(subscription)] * 2, strict=True)}
    async with connector, asyncio.TaskGroup() as readers:
        for number, stream in enumerate(await streams_of(connector, kind, requested)):
            readers.create_task(read(stream, number, writer, pause))
        writer.write("ready")
        leaving = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
        await leaving.wait()
        await connector.shutdown()
    writer.write("stopped")


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        asyncio.run(run(sys.argv[1], file, float(sys.argv[3]), *sys.argv[4:]))

"""A `Consumer` in its own process, which a test can kill and freeze.

    python -m tests.support.consumer_process PAUSE PROPERTIES EVENTS COMMIT_MS KIND TOPIC...

It has the arguments and the output of the Java program, so that one driver serves both.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from asyncconsumer import Consumer, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.streams.messages import Message
from asyncconsumer.testing.servers import JavaConsumer

_JAVA: Final = "org.apache.kafka.clients.consumer."
_JAVA_ASSIGNORS: Final = {
    "range": f"{_JAVA}RangeAssignor",
    "roundrobin": f"{_JAVA}RoundRobinAssignor",
    "sticky": f"{_JAVA}StickyAssignor",
    "cooperative-sticky": f"{_JAVA}CooperativeStickyAssignor",
}
_ASSIGNOR_NAMES: Final = {java: name for name, java in _JAVA_ASSIGNORS.items()}
_SHORTEST_WAIT_MS: Final = 50  # between two commits; Java's client commits after polls


def strategies(*names: str) -> dict[str, str]:
    """Return the property for these assignors, in the order of preference."""
    classes = ",".join(_JAVA_ASSIGNORS[name] for name in names)
    return {"partition.assignment.strategy": classes}


class OwnConsumer(JavaConsumer):
    """A member with the interface of `JavaConsumer`. It pauses for `pause` seconds per record."""

    pause = 0.0

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        words = map(str, (self.pause, properties, folder / "events", *self._arguments))
        return [sys.executable, "-m", __spec__.name, *words]


class EventWriter(ConsumerRebalanceListener):
    """A listener that writes one line of JSON for each event."""

    def __init__(self, events: TextIO) -> None:
        self._events = events

    def write(self, event: str, **more: Any) -> None:
        self._events.write(json.dumps({"event": event, **more}) + "\n")
        self._events.flush()

    def record(self, record: Message[Any, Any]) -> None:
        self.write(
            "record",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=None if record.key is None else record.key.hex(),
            value=None if record.value is None else record.value.hex(),
            at_ms=time.time_ns() // 10**6,
        )

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._change("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._change("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._change("lost", partitions)

    def _change(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        numbers: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            numbers.setdefault(topic, []).append(partition)
        self.write(kind, partitions=numbers)


def options_of(lines: Sequence[str], commit_ms: int) -> dict[str, Any]:
    """Return Java's properties as options."""
    settings: dict[str, Any] = dict(line.split("=", 1) for line in lines)
    classes = settings.pop("partition.assignment.strategy", _JAVA_ASSIGNORS["range"])
    # Java would commit records that its program has not reported
    del settings["enable.auto.commit"]
    options = {
        "metadata_refresh_ms": settings.pop("metadata.max.age.ms"),
        "auto_commit_interval_ms": max(commit_ms, _SHORTEST_WAIT_MS),
        "partition_assignment_strategy": [
            _ASSIGNOR_NAMES[class_name] for class_name in classes.split(",")
        ],
        **{name.replace(".", "_"): value for name, value in settings.items()},
    }
    return {name: int(v) if name.endswith("_ms") else v for name, v in options.items()}


async def read(consumer: Consumer[Any, Any], writer: EventWriter, pause: float) -> None:
    async for record in consumer:
        writer.record(record)
        if pause:
            await asyncio.sleep(pause)


async def run(
    pause: float, properties: Path, writer: EventWriter, commit_ms: int, kind: str, *requested: str
) -> None:
    options = options_of(properties.read_text().splitlines(), commit_ms)
    topics, pattern = ((), requested[0]) if kind == "pattern" else (requested, None)
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    consumer: Consumer = Consumer(*topics, pattern=pattern, listener=writer, **options)
    async with consumer, asyncio.TaskGroup() as group:
        reading = group.create_task(read(consumer, writer, pause))
        await consumer.wait_assigned()
        writer.write("ready")
        await leaving.wait()
        reading.cancel()
    writer.write("stopped")


if __name__ == "__main__":
    pause, properties, events_path, commits, *subscription = sys.argv[1:]
    with Path(events_path).open("a") as file:
        asyncio.run(
            run(float(pause), Path(properties), EventWriter(file), int(commits), *subscription)
        )

"""A program that is one member of a group, with asyncconsumer, aiokafka or confluent-kafka.

`python -m benchmarks._rebalance_members KIND SERVERS TOPIC DIARY OPTIONS`. The lines of its input
are commands: `join`, `slow`, `block SECONDS`, `leave`. Its events are printed as lines of JSON. It
notes each delivered record in the file DIARY at once, so that the record is known even if the
process is killed.
"""

import asyncio
import json
import logging
import os
import queue
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

ENTRY: Final = struct.Struct("<IIqq")  # partition, offset, appended at, delivered at, both in ns
_SECONDS_OF_SLOW_WORK: Final = 0.01


class Partition(Protocol):
    @property
    def partition(self) -> int: ...


class Record(Partition, Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...


class Wanted(NamedTuple):
    """The arguments of the command line. `diary` is the file descriptor of the diary."""

    servers: str
    topic: str
    diary: int
    options: dict[str, Any]  # for example group_id, strategy, session_ms and heartbeat_ms

    def deliver(self, partition: int, offset: int, timestamp_ms: int) -> None:
        entry = ENTRY.pack(partition, offset, timestamp_ms * 10**6, time.time_ns())
        os.write(self.diary, entry)

    def common(self) -> dict[str, Any]:
        """Return the options that have the same names in asyncconsumer and in aiokafka."""
        return {
            "bootstrap_servers": self.servers,
            "group_id": self.options["group_id"],
            "session_timeout_ms": self.options["session_ms"],
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1000,
        } | self.heartbeats("heartbeat_interval_ms")

    def heartbeats(self, name: str) -> dict[str, Any]:
        """Return the heartbeat interval as the option `name`.

        Return an empty dict to use the client's default.
        """
        return {name: value} if (value := self.options.get("heartbeat_ms")) else {}


def tell(event: str, partitions: Iterable[Partition] = ()) -> None:
    numbers = sorted(partition.partition for partition in partitions)
    print(
        json.dumps({"event": event, "time_ns": time.time_ns(), "partitions": numbers}), flush=True
    )


class Listener:
    """A rebalance listener that prints its calls as events."""

    def on_partitions_assigned(self, partitions: Iterable[Partition]) -> None:
        tell("assigned", partitions)

    def on_partitions_revoked(self, partitions: Iterable[Partition]) -> None:
        tell("revoked", partitions)

    def on_partitions_lost(self, partitions: Iterable[Partition]) -> None:
        tell("revoked", partitions)


class Work:
    """The work of an asyncio member on records: usually none, or a wait, or a blocked loop."""

    def __init__(self, requested: Wanted) -> None:
        self._targets = requested
        self._slow = False
        self._block = 0.0

    def obey(self, order: str) -> None:
        name, _, seconds = order.partition(" ")
        self._slow = name == "slow"
        self._block = float(seconds or 0)

    async def on(self, records: AsyncIterator[Record]) -> None:
        async for record in records:
            self._targets.deliver(record.partition, record.offset, record.timestamp)
            if self._slow:
                await asyncio.sleep(_SECONDS_OF_SLOW_WORK)
            if self._block:
                tell("blocked")
                time.sleep(self._block)  # noqa: ASYNC251 - that is the fault
                self._block = 0.0
                tell("unblocked")


@asynccontextmanager
async def orders() -> AsyncIterator[Callable[[], Coroutine[Any, Any, str]]]:
    """Return an async context manager that yields a function, which reads the next command."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )

    async def order() -> str:
        return (await reader.readline()).decode().strip() or "leave"

    try:
        yield order
    finally:
        transport.close()


async def until_leave(work: Work, records: Any, order: Callable[[], Any]) -> None:  # noqa: ANN401
    """Read records, and obey commands, until the command `leave`."""
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(work.on(records))
        while (command := await order()) != "leave":
            work.obey(command)
        tell("leaving")
        reading.cancel()


async def asyncconsumer(requested: Wanted) -> None:
    from asyncconsumer.consumer.consumer import Consumer

    async with orders() as order:
        tell("ready")
        await order()
        tell("joining")
        async with Consumer(
            requested.topic,
            **requested.common(),
            listener=Listener(),
            partition_assignment_strategy=requested.options["strategy"],
            heartbeat_thread=requested.options["heartbeat_thread"],
        ) as consumer:
            await until_leave(Work(requested), consumer, order)


async def aiokafka(requested: Wanted) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Telling(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
            tell("assigned", assigned)

        async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
            tell("revoked", revoked)

    async with orders() as order:
        tell("ready")
        await order()
        tell("joining")
        consumer = AIOKafkaConsumer(
            **requested.common(), partition_assignment_strategy=(RangePartitionAssignor,)
        )
        consumer.subscribe([requested.topic], listener=Telling())
        async with consumer:
            await until_leave(Work(requested), consumer, order)


async def confluent(requested: Wanted) -> None:
    """Run a member that calls the blocking `poll`, as in the examples of confluent-kafka."""
    from confluent_kafka import Consumer

    simple_queue: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(simple_queue,), daemon=True).start()
    tell("ready")
    simple_queue.get()
    tell("joining")
    consumer = Consumer(
        {
            "bootstrap.servers": requested.servers,
            "group.id": requested.options["group_id"],
            "session.timeout.ms": requested.options["session_ms"],
            **requested.heartbeats("heartbeat.interval.ms"),
            "partition.assignment.strategy": requested.options["strategy"],
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe(
        [requested.topic],
        on_assign=lambda _, partitions: tell("assigned", partitions),
        on_revoke=lambda _, partitions: tell("revoked", partitions),
        on_lost=lambda _, partitions: tell("revoked", partitions),
    )
    while simple_queue.empty():
        message = consumer.poll(0.05)
        if message is not None and not message.error():
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            requested.deliver(partition, offset, message.timestamp()[1])
    tell("leaving")
    consumer.close()


def _pass_on(queue: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        queue.put(line)


KINDS: Final = {"asyncconsumer": asyncconsumer, "aiokafka": aiokafka, "confluent": confluent}


def main() -> None:
    kind, servers, topic, diary, options = sys.argv[1:]
    logging.basicConfig(
        level=os.environ.get("BENCHMARK_LOG", "CRITICAL"), format="%(asctime)s %(name)s %(message)s"
    )
    opened = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asyncio.run(KINDS[kind](Wanted(servers, topic, opened, json.loads(options))))
    tell("left")


if __name__ == "__main__":
    main()

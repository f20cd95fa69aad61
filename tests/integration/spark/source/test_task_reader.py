"""The Python process of an executor, on a real broker."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from uuid import UUID

import pytest

from asyncconsumer.errors import DataLoss
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import Traffic
from asyncconsumer.spark.options.selection import SubscribedTopicNames
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import WorkerLoop
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import OffsetRange
from tests.spark.source.test_task_reader import ANOTHER, OFFSETS, batches, offsets
from tests.support.spark_queries import fill


@pytest.fixture
def home() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.close()


def test_ranges_of_a_task_are_read_one_after_the_other(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    topic = asyncio.run(kafka.topic(partitions=3))
    asyncio.run(fill(kafka, topic, 90, 3))
    ranges = [
        OffsetRange(topic, 2, 5, 9),
        OffsetRange(topic, 0, 0, 30),
        OffsetRange(topic, 1, 3, 3),
    ]
    for _ in range(2):  # the second time over the same connections
        assert offsets(batches(home, kafka, *ranges)) == [*range(5, 9), *range(30)]


def test_a_reader_that_has_enough_may_stop(home: WorkerLoop, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 200))
    for _ in range(3):
        result = batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500)
        assert offsets(islice(result, 1))[0] == 0
        result.close()  # type: ignore[attr-defined]
    assert len(offsets(batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500))) == 200


def test_a_client_is_kept_for_all_of_its_options(home: WorkerLoop, kafka: KafkaHandle) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    first = home.client(servers)
    assert home.client(dict(servers)) is first
    assert home.client({**servers, "isolation.level": "read_committed"}) is not first
    others = [home.client({**servers, "client.id": str(number)}) for number in range(8)]
    assert home.client({**servers, "client.id": "7"}) is others[7]
    assert home.client(servers) is not first  # closed: too many came after it


def test_a_small_range_does_not_ask_for_much(home: WorkerLoop) -> None:
    small, large = OffsetRange("t", 0, 0, 10_000), OffsetRange("t", 0, 0, 10_000_000)
    client = home.client({"bootstrap.servers": "localhost:1"})
    assert client.fetch_bytes(small) < client.fetch_bytes(large) == 4 * 2**20
    assert client.fetch_bytes(OffsetRange("t", 0, 0, 1)) == 2**18
    client = home.client({"bootstrap.servers": "localhost:1", "max.partition.fetch.bytes": "9999"})
    assert client.fetch_bytes(small) == 9999


def test_a_topic_that_goes_while_a_task_waits(home: WorkerLoop, kafka: KafkaHandle) -> None:
    retained, gone = asyncio.run(kafka.topic()), "gone-before-it-was-read"
    asyncio.run(fill(kafka, retained, 4))
    ranges = [OffsetRange(gone, 0, 0, 5), OffsetRange(retained, 0, 1, 4)]
    with pytest.raises(DataLoss, match=gone):
        offsets(batches(home, kafka, *ranges))
    assert offsets(batches(home, kafka, *ranges, fail=False)) == [1, 2, 3]


def test_nothing_looks_late_because_spark_takes_its_time(home: WorkerLoop) -> None:
    late: list[str] = []

    async def things() -> AsyncGenerator[list[str], None]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, late.append, "a deadline that was nobody's fault")
        yield list(late)
        for _ in range(3):
            await asyncio.sleep(0)
        yield list(late)
        await asyncio.sleep(0.1)
        yield list(late)

    result = home.iterate(things())
    assert next(result) == []
    time.sleep(0.3)
    assert next(result) == []
    assert len(next(result)) == 1  # time that the loop is run does pass
    assert list(result) == []


def test_between_tasks_time_passes(home: WorkerLoop) -> None:
    passed: list[str] = []

    async def once() -> None:
        asyncio.get_running_loop().call_later(0.1, passed.append, "a login, or what is idle")

    async def things() -> AsyncGenerator[int, None]:
        yield 1

    home.run(once())
    assert list(home.iterate(things())) == [1]
    time.sleep(0.15)
    for _ in range(2):
        home.run(asyncio.sleep(0))
    assert len(passed) == 1


def test_two_that_read_in_turns_share_a_clock_that_stands_still(home: WorkerLoop) -> None:
    async def times() -> AsyncGenerator[float, None]:
        while True:
            yield asyncio.get_running_loop().time()

    clock, other = home.iterate(times()), home.iterate(times())
    begun, _ = next(clock), next(other)
    for _ in range(3):
        time.sleep(0.1)
        ended = max(next(clock), next(other))
    assert ended - begun < 0.1
    clock.close()
    other.close()


def test_a_connection_that_ended_meanwhile_is_not_used(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    brokers = home.client(options)._session.brokers
    address = brokers.config.addresses[0]
    connection = home.run(brokers.connection(address, Traffic.CONTROL))
    connection._transport.get_extra_info("socket").shutdown(socket.SHUT_RD)  # as if it hung up
    assert connection.ending is None
    home.client(options)
    assert connection.ending is not None


def test_only_who_reads_alone_keeps_the_loop_to_itself(
    home: WorkerLoop, kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained: list[object] = []
    receive = BrokerConnection.receive

    def noted(connection: BrokerConnection, answer: asyncio.Future[RawResponse]) -> None:
        retained.append(connection)
        receive(connection, answer)

    monkeypatch.setattr(BrokerConnection, "receive", noted)
    topic = asyncio.run(kafka.topic(partitions=2))
    asyncio.run(fill(kafka, topic, 20, 2))
    ranges = [OffsetRange(topic, number, 0, 10) for number in range(2)]
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    assert home.run(client.record_bytes(ranges))[topic] > 0
    assert retained == []  # many topics are asked at once
    assert len(offsets(batches(home, kafka, *ranges))) == 20
    assert retained


def test_who_stops_early_ends_what_it_read_from(home: WorkerLoop) -> None:
    ended: list[str] = []

    async def things() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("all")

    for _ in home.iterate(things()):
        break
    assert ended == ["all"]


def test_a_task_of_a_topic_that_was_created_again_since_it_was_planned(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    """By a process that never saw the old one, so that nothing but the id tells."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    ranges = [OffsetRange(topic, 0, 5, 10)]

    def read_with(ids: dict[str, UUID], *, fail: bool) -> list[int]:
        generator = read(client, ranges, OFFSETS, fail_on_data_loss=fail, topic_ids=ids)
        return offsets(home.iterate(generator))

    assert read_with({}, fail=True) == list(range(5, 10))
    ids = client.topic_ids([topic])
    assert read_with(ids, fail=True) == list(range(5, 10))
    with pytest.raises(DataLoss, match="was deleted and re-created"):
        read_with({topic: ANOTHER}, fail=True)
    assert read_with({topic: ANOTHER}, fail=False) == list(range(5, 10))


def test_a_process_that_knew_the_topic_before_reads_the_new_one(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    """Spark's workers live longer than queries: what they know of a topic may be old."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    generator = read(client, [OffsetRange(topic, 0, 0, 10)], OFFSETS, fail_on_data_loss=True)
    assert offsets(home.iterate(generator)) == list(range(10))
    old = client.topic_ids([topic])
    asyncio.run(kafka.admin.delete_topic(topic))
    asyncio.run(kafka.admin.create_topic(topic))
    asyncio.run(fill(kafka, topic, 20))
    planner = WorkerLoop()
    other = planner.client({"bootstrap.servers": kafka.bootstrap_servers})
    planner.run(other.partitions(SubscribedTopicNames((topic,))))
    new = other.topic_ids([topic])
    planner.close()
    assert new != old
    requested = [OffsetRange(topic, 0, 10, 20)]
    generator = read(client, requested, OFFSETS, fail_on_data_loss=True, topic_ids=new)
    assert offsets(home.iterate(generator)) == list(range(10, 20))
    with pytest.raises(DataLoss, match="was deleted and re-created"):
        offsets(
            home.iterate(read(client, requested, OFFSETS, fail_on_data_loss=True, topic_ids=old))
        )

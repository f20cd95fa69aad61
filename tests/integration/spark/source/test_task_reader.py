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
def worker_loop() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.close()


def test_ranges_of_a_task_are_read_in_order(worker_loop: WorkerLoop, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic(partitions=3))
    asyncio.run(fill(kafka, topic, 90, 3))
    ranges = [
        OffsetRange(topic, 2, 5, 9),
        OffsetRange(topic, 0, 0, 30),
        OffsetRange(topic, 1, 3, 3),
    ]
    for _ in range(2):  # the second time over the same connections
        assert offsets(batches(worker_loop, kafka, *ranges)) == [*range(5, 9), *range(30)]


def test_a_read_can_be_closed_before_its_end(worker_loop: WorkerLoop, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 200))
    for _ in range(3):
        result = batches(worker_loop, kafka, OffsetRange(topic, 0, 0, 200), size=500)
        assert offsets(islice(result, 1))[0] == 0
        result.close()  # type: ignore[attr-defined]
    assert len(offsets(batches(worker_loop, kafka, OffsetRange(topic, 0, 0, 200), size=500))) == 200


def test_a_client_is_kept_for_each_set_of_options(
    worker_loop: WorkerLoop, kafka: KafkaHandle
) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    first = worker_loop.client(servers)
    assert worker_loop.client(dict(servers)) is first
    assert worker_loop.client({**servers, "isolation.level": "read_committed"}) is not first
    others = [worker_loop.client({**servers, "client.id": str(number)}) for number in range(8)]
    assert worker_loop.client({**servers, "client.id": "7"}) is others[7]
    assert (
        worker_loop.client(servers) is not first
    )  # closed, because too many other clients were opened


def test_a_small_range_is_fetched_with_a_small_limit(worker_loop: WorkerLoop) -> None:
    small, large = OffsetRange("t", 0, 0, 10_000), OffsetRange("t", 0, 0, 10_000_000)
    client = worker_loop.client({"bootstrap.servers": "localhost:1"})
    assert client.fetch_bytes(small) < client.fetch_bytes(large) == 4 * 2**20
    assert client.fetch_bytes(OffsetRange("t", 0, 0, 1)) == 2**18
    client = worker_loop.client(
        {"bootstrap.servers": "localhost:1", "max.partition.fetch.bytes": "9999"}
    )
    assert client.fetch_bytes(small) == 9999


def test_a_missing_topic_is_data_loss_or_left_out(
    worker_loop: WorkerLoop, kafka: KafkaHandle
) -> None:
    retained, gone = asyncio.run(kafka.topic()), "gone-before-it-was-read"
    asyncio.run(fill(kafka, retained, 4))
    ranges = [OffsetRange(gone, 0, 0, 5), OffsetRange(retained, 0, 1, 4)]
    with pytest.raises(DataLoss, match=gone):
        offsets(batches(worker_loop, kafka, *ranges))
    assert offsets(batches(worker_loop, kafka, *ranges, fail=False)) == [1, 2, 3]


def test_the_loops_clock_stands_still_between_batches(worker_loop: WorkerLoop) -> None:
    late: list[str] = []

    async def things() -> AsyncGenerator[list[str], None]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, late.append, "a deadline")
        yield list(late)
        for _ in range(3):
            await asyncio.sleep(0)
        yield list(late)
        await asyncio.sleep(0.1)
        yield list(late)

    result = worker_loop.iterate(things())
    assert next(result) == []
    time.sleep(0.3)
    assert next(result) == []
    assert len(next(result)) == 1  # time passes while the loop runs
    assert list(result) == []


def test_the_loops_clock_advances_between_tasks(worker_loop: WorkerLoop) -> None:
    passed: list[str] = []

    async def once() -> None:
        asyncio.get_running_loop().call_later(0.1, passed.append, "an idle timeout")

    async def things() -> AsyncGenerator[int, None]:
        yield 1

    worker_loop.run(once())
    assert list(worker_loop.iterate(things())) == [1]
    time.sleep(0.15)
    for _ in range(2):
        worker_loop.run(asyncio.sleep(0))
    assert len(passed) == 1


def test_two_alternating_reads_share_a_clock_that_stands_still(worker_loop: WorkerLoop) -> None:
    async def times() -> AsyncGenerator[float, None]:
        while True:
            yield asyncio.get_running_loop().time()

    clock, other = worker_loop.iterate(times()), worker_loop.iterate(times())
    begun, _ = next(clock), next(other)
    for _ in range(3):
        time.sleep(0.1)
        ended = max(next(clock), next(other))
    assert ended - begun < 0.1
    clock.close()
    other.close()


def test_a_connection_that_was_closed_between_tasks_is_not_used(
    worker_loop: WorkerLoop, kafka: KafkaHandle
) -> None:
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    brokers = worker_loop.client(options)._session.brokers
    address = brokers.config.addresses[0]
    connection = worker_loop.run(brokers.connection(address, Traffic.CONTROL))
    connection._transport.get_extra_info("socket").shutdown(
        socket.SHUT_RD
    )  # as if the broker closed the connection
    assert connection.ending is None
    worker_loop.client(options)
    assert connection.ending is not None


def test_fetches_block_the_loop_and_lookups_of_many_topics_do_not(
    worker_loop: WorkerLoop, kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch
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
    client = worker_loop.client({"bootstrap.servers": kafka.bootstrap_servers})
    assert worker_loop.run(client.record_bytes(ranges))[topic] > 0
    assert retained == []  # topics are looked up concurrently
    assert len(offsets(batches(worker_loop, kafka, *ranges))) == 20
    assert retained


def test_a_loop_that_stops_early_closes_its_generator(worker_loop: WorkerLoop) -> None:
    ended: list[str] = []

    async def things() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("all")

    for _ in worker_loop.iterate(things()):
        break
    assert ended == ["all"]


def test_a_task_detects_a_topic_re_created_after_planning(
    worker_loop: WorkerLoop, kafka: KafkaHandle
) -> None:
    """Check a process that has not seen the old topic, so that only the id shows the change."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = worker_loop.client({"bootstrap.servers": kafka.bootstrap_servers})
    ranges = [OffsetRange(topic, 0, 5, 10)]

    def read_with(ids: dict[str, UUID], *, fail: bool) -> list[int]:
        generator = read(client, ranges, OFFSETS, fail_on_data_loss=fail, topic_ids=ids)
        return offsets(worker_loop.iterate(generator))

    assert read_with({}, fail=True) == list(range(5, 10))
    ids = client.topic_ids([topic])
    assert read_with(ids, fail=True) == list(range(5, 10))
    with pytest.raises(DataLoss, match="was deleted and re-created"):
        read_with({topic: ANOTHER}, fail=True)
    assert read_with({topic: ANOTHER}, fail=False) == list(range(5, 10))


def test_a_process_with_old_metadata_reads_a_re_created_topic(
    worker_loop: WorkerLoop, kafka: KafkaHandle
) -> None:
    """Check outdated metadata, because Spark's workers live longer than queries."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = worker_loop.client({"bootstrap.servers": kafka.bootstrap_servers})
    generator = read(client, [OffsetRange(topic, 0, 0, 10)], OFFSETS, fail_on_data_loss=True)
    assert offsets(worker_loop.iterate(generator)) == list(range(10))
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
    assert offsets(worker_loop.iterate(generator)) == list(range(10, 20))
    with pytest.raises(DataLoss, match="was deleted and re-created"):
        offsets(
            worker_loop.iterate(
                read(client, requested, OFFSETS, fail_on_data_loss=True, topic_ids=old)
            )
        )

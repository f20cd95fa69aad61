"""Records that failed, were aborted or were corrupt, and their redelivery, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import chain
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.consumer.dead_letters import DeadLetterProducer
from asyncconsumer.consumer.stream import ConsumerStream
from asyncconsumer.errors import ConfigError, CorruptRecords
from asyncconsumer.serdes import make_deserializer
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)


@asynccontextmanager
async def world(records: int, *, one_by_one: bool = False) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        for _ in range(records if one_by_one else 1):
            cluster.append("t", 0, 1 if one_by_one else records)
        yield cluster


def corrupt_batch(cluster: FakeCluster, base: int) -> None:
    batches = cluster.view.partition(AT).log.batches
    for number, batch in enumerate(batches):
        if batch.base == base:
            corrupt = bytearray(batch.data)
            corrupt[-3] ^= 1
            batches[number] = batch._replace(data=bytes(corrupt))


def bad_at(offset: int) -> Any:
    """Return a deserializer that fails at an offset, which the values of the fake contain."""

    def make(data: bytes) -> bytes:
        if data.split(b"/")[2] == b"%d" % offset:
            raise ValueError("bad")
        return data

    return make_deserializer(make)


class Producer:
    """A fake transactional producer."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.offsets: list[int] = []
        self._now: list[int] = []
        self._offset = -1

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self._now, self._offset = [], -1
        yield
        await asyncio.sleep(0.01)
        self.sent += self._now
        self.offsets.append(self._offset)

    def send(self, what: int) -> None:
        self._now.append(what)

    async def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        (self._offset,) = offsets.values()


# --- a corrupt batch -----------------------------------------------------------------------------


@simulated([1])
async def test_a_corrupt_batch_is_skipped() -> None:
    async with world(8, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        async with make_consumer(cluster, on_poison="skip", idle_timeout_ms=20_000) as consumer:
            assert [record.offset async for record in consumer] == [0, 1, 3, 4, 5, 6, 7]
            assert consumer.counts["record_unreadable"] == 1


@simulated([1])
async def test_a_reader_can_seek_past_reported_corruption() -> None:
    async with world(6, one_by_one=True) as cluster:
        corrupt_batch(cluster, 2)
        got: list[int] = []
        async with make_consumer(cluster, idle_timeout_ms=20_000) as consumer:
            try:
                async for record in consumer:
                    got.append(record.offset)  # noqa: PERF401 - it fails on the way
            except CorruptRecords as error:
                consumer.seek(AT, error.resume or 0)
            got += [record.offset async for record in consumer]
        assert got == [0, 1, 3, 4, 5]


# --- an end, and then back -----------------------------------------------------------------------


@simulated([1])
async def test_a_job_reads_the_records_of_an_aborted_transaction_again() -> None:
    async with world(10) as cluster:
        producer, failures = Producer(), 0
        async with make_consumer(cluster, commit_policy="manual", stop_at="end") as consumer:
            async for record in consumer:
                try:
                    async with consumer.transaction(producer):
                        producer.send(record.offset)
                        if record.offset == 4 and not failures:
                            failures += 1
                            raise ValueError("the second time it works")  # noqa: TRY301
                except ValueError:
                    continue
        assert producer.sent == list(range(10))


@simulated(seeds=range(3))
async def test_a_paused_job_ends_after_it_is_resumed() -> None:
    async with world(5, one_by_one=True) as cluster:
        got: list[int] = []
        async with make_consumer(cluster, stop_at="end") as consumer, asyncio.TaskGroup() as tasks:
            async for record in consumer:
                got.append(record.offset)
                if record.offset == 1:
                    consumer.pause(AT)
                    tasks.create_task(_resume_later(consumer))
        assert got == [*range(5)]


async def _resume_later(consumer: Consumer[Any, Any]) -> None:
    await asyncio.sleep(60)
    consumer.resume(AT)


@simulated([1])
async def test_a_job_whose_task_failed_is_completed_by_another_task() -> None:
    async with world(10) as cluster:
        got: list[int] = []

        async def read(consumer: Consumer[Any, Any], dies_at: int) -> None:
            async for record in consumer:
                await asyncio.sleep(0.1)
                if record.offset == dies_at:
                    raise ValueError("over this one")
                got.append(record.offset)

        async with make_consumer(cluster, stop_at="end") as consumer:
            for dies_at in (4, -1):
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(read(consumer, dies_at))
                except* ValueError:
                    pass  # the next task continues
        assert got == list(range(10))


@simulated(seeds=range(3))
async def test_a_late_partition_is_routed_to_a_stream_with_a_reader() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 3)
        for number, count in enumerate((2, 40, 5)):
            for _ in range(count):
                cluster.append("t", number, 1)
        got: list[tuple[int, int]] = []
        ended = asyncio.Event()

        async def read(stream: ConsumerStream[Any, Any], pause: float) -> None:
            async for record in stream:
                await asyncio.sleep(pause)
                got.append((record.partition, record.offset))
            ended.set()

        tested = make_consumer(cluster, stop_at="end")
        async with tested as consumer, asyncio.TaskGroup() as tasks, make_consumer(cluster) as two:
            await two.wait_assigned()
            while len(consumer.assignment) != 2:
                await asyncio.sleep(0.1)
            for number, stream in enumerate(consumer.streams(2)):
                tasks.create_task(read(stream, number * 2.0))
            await ended.wait()
        assert sorted(got) == [
            *((0, n) for n in range(2)), *((1, n) for n in range(40)), *((2, n) for n in range(5)),
        ]  # fmt: skip


@simulated([1])
async def test_a_stream_without_a_partition_ends_immediately() -> None:
    async with world(2_000, one_by_one=True) as cluster:
        options: dict[str, Any] = {"partitions": [AT], "group_id": None, "stop_at": "end"}
        little = {"max_buffered_bytes": 2**16, "max_partition_fetch_bytes": 2**12}
        async with make_consumer(cluster, (), **options, **little) as consumer:
            streams = consumer.streams(3)
            for stream in reversed(streams):
                results = [record.offset async for record in stream]
                assert len(results) == (2_000 if stream is streams[0] else 0)


@simulated(seeds=range(3))
async def test_a_job_continues_after_a_rebalance_with_all_records_fetched() -> None:
    async with world(10) as cluster:
        got: list[int] = []
        async with make_consumer(cluster, stop_at="end") as consumer:
            async for record in consumer:
                got.append(record.offset)
                if (
                    got.count(4) == 1 and record.offset == 4
                ):  # the partition is revoked and assigned again
                    async with make_consumer(cluster) as other:
                        await other.wait_assigned()
        assert got == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]  # record 4 was not acknowledged in time


# --- a wait that was given up --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["batches", "chunks", "arrow"])
def test_a_timeout_does_not_end_the_iterator(way: str) -> None:
    @simulated([1])
    async def played() -> None:
        async with world(3) as cluster, make_consumer(cluster) as consumer:
            ways: dict[str, Callable[[], AsyncIterator[Any]]]
            ways = {"batches": consumer.batches, "chunks": consumer.chunks, "arrow": consumer.arrow}
            iterator = ways[way]()
            await anext(iterator)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await anext(iterator)
            cluster.append("t", 0, 2)
            async with asyncio.timeout(60):
                assert await anext(iterator) is not None

    played()


@simulated([1])
async def test_invalid_arguments_of_arrow_are_reported_by_the_call() -> None:
    async with world(0) as cluster, make_consumer(cluster) as consumer:
        with pytest.raises(ConfigError, match="no_such"):
            consumer.arrow(columns=("offset", "no_such"))
        with pytest.raises(ConfigError, match="max_rows=0"):
            consumer.arrow(max_rows=0)


@simulated([1])
async def test_batches_chunks_and_arrow_end_after_the_idle_timeout() -> None:
    async with world(3) as cluster:
        for way in ("batches", "chunks", "arrow"):
            options: dict[str, Any] = {"group_id": way, "idle_timeout_ms": 1_000}
            async with make_consumer(cluster, **options) as consumer, asyncio.timeout(60):
                assert len([part async for part in getattr(consumer, way)()]) == 1


@simulated([1])
async def test_a_cancelled_dead_letter_write_is_completed_before_later_records() -> None:
    written: list[int] = []

    async def slow(self: DeadLetterProducer, dead_letter: Any) -> int:
        await asyncio.sleep(1)
        written.append(dead_letter.record.offset)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterProducer, "_write", slow)
        async with world(4) as cluster:
            options = {"on_poison": "dead_letter", "dead_letter_topic": "dead"}
            async with make_consumer(cluster, value_deserializer=bad_at(2), **options) as consumer:
                got: list[int] = []
                iterator = aiter(consumer)
                async with asyncio.timeout(600):
                    while len(got) < 3:
                        try:
                            async with asyncio.timeout(0.6):
                                got.append((await anext(iterator)).offset)
                        except TimeoutError:
                            assert written or max(got) < 2  # no later record yet
                assert got == [0, 1, 3]
                assert set(written) == {2}


@pytest.mark.parametrize("way", ["batches", "getmany"])
def test_a_batch_cancelled_while_a_dead_letter_is_written_is_read_again(way: str) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> int:
        started.set()
        await may_end.wait()
        return 0

    async def read(consumer: Consumer[Any, Any]) -> list[int]:
        if way == "batches":
            return [message.offset for message in await anext(consumer.batches(4, 1_000))]
        calls = [await consumer.getmany(timeout_ms=1_000) for _ in range(2)]
        return [message.offset for call in calls for message in chain(*call.values())]

    @simulated([1])
    async def play() -> None:
        async with world(5) as cluster:
            options = {"on_poison": "dead_letter", "dead_letter_topic": "dead"}
            async with make_consumer(cluster, value_deserializer=bad_at(2), **options) as consumer:
                async with asyncio.TaskGroup() as tasks:
                    cancelled = tasks.create_task(read(consumer))
                    await started.wait()
                    cancelled.cancel()
                may_end.set()
                assert await read(consumer) == [0, 1, 3, 4]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterProducer, "_write", slow)
        play()


# --- transactions contain delivered records only -------------------------------------------------


@simulated([1])
async def test_undelivered_records_are_in_no_transaction() -> None:
    async with world(10) as cluster:
        producer = Producer()
        options = {"commit_policy": "manual", "value_deserializer": bad_at(5)}
        async with make_consumer(cluster, **options) as consumer:
            batch = await anext(consumer.batches(10, 5_000))
            async with consumer.transaction(producer):
                for message in batch:
                    producer.send(message.offset)
        assert producer.sent == [0, 1, 2, 3, 4]
        assert producer.offsets == [5]


@simulated([1])
async def test_records_without_a_transaction_are_redelivered_to_the_next_task() -> None:
    async with world(9) as cluster:
        producer = Producer()

        async def read(consumer: Consumer[Any, Any], dies_at: int) -> None:
            held: list[int] = []
            async for record in consumer:
                held.append(record.offset)
                if record.offset == dies_at:
                    raise ValueError("over this one")
                if len(held) == 3:
                    async with consumer.transaction(producer):
                        for offset in held:
                            producer.send(offset)
                    held = []

        async with make_consumer(cluster, commit_policy="manual", stop_at="end") as consumer:
            for dies_at in (4, -1):
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(read(consumer, dies_at))
                except* ValueError:
                    pass  # the next task continues
        assert producer.sent == list(range(9))
        assert producer.offsets == [3, 6, 9]


@simulated([1])
async def test_several_streams_refuse_max_records_and_transactions() -> None:
    async with world(1) as cluster:
        async with make_consumer(cluster, commit_policy="manual", max_records=3) as consumer:
            with pytest.raises(ConfigError, match="`max_records` ends a single reader"):
                consumer.streams(2)
            with pytest.raises(ConfigError, match="`max_records` ends a single reader"):
                consumer.partitions()
        async with make_consumer(cluster, commit_policy="manual") as other:
            other.streams(2)
            with pytest.raises(ConfigError, match="has divided this consumer"):
                other.transaction(Producer())


# --- the loop that everybody writes --------------------------------------------------------------


async def records(consumer: Consumer[Any, Any], work: Callable[[int], Any]) -> None:
    async for record in consumer:
        await work(record.offset)


async def batches(consumer: Consumer[Any, Any], work: Callable[[int], Any]) -> None:
    async for batch in consumer.batches(max_records=1):
        for record in batch:
            await work(record.offset)


async def chunks(consumer: Consumer[Any, Any], work: Callable[[int], Any]) -> None:
    async for chunk in consumer.chunks():
        for record in chunk:
            await work(record.offset)


@pytest.mark.parametrize("read", [records, batches, chunks])
@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes}], ids=["raw", "messages"])
@pytest.mark.parametrize("failure", ["error", "timeout"])
@simulated([1, 2])
async def test_a_failed_loop_body_gets_its_record_again_in_the_same_task(
    read: Callable[..., Any], options: dict[str, Any], failure: str
) -> None:
    done: list[int] = []
    failed = 0

    async def work(offset: int) -> None:
        nonlocal failed
        if offset == 2 and failed < 2:
            failed += 1
            if failure == "error":
                raise OSError("the database is down")
            await asyncio.sleep(100)
        done.append(offset)

    async with world(5, one_by_one=True) as cluster, make_consumer(cluster, **options) as consumer:
        while 4 not in done:
            try:
                async with asyncio.timeout(1):
                    await read(consumer, work)
            except (OSError, TimeoutError):
                assert 2 not in done or failed == 2
    assert done[-3:] == [2, 3, 4]
    assert done[:2] == [0, 1]
    assert read is chunks or len(done) == 5  # a chunk is redelivered as a whole
    assert cluster.storage.offsets["g"][AT]["offset"] in (4, 5)


@simulated([1, 2])
async def test_a_break_acknowledges_the_record() -> None:
    async with world(5) as cluster, make_consumer(cluster) as consumer:
        seen: list[int] = []
        while len(seen) < 5:
            async for record in consumer:
                seen.append(record.offset)
                break
    assert seen == [0, 1, 2, 3, 4]

"""The dead-letter producer on a fake cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from asyncconsumer import ClosedError, Record, TopicPartition
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure, failure_headers
from asyncconsumer.errors.tracebacks import LONGEST_TRACEBACK, traceback_text
from asyncconsumer.protocol.produce import PRODUCE
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.helpers import until

pytestmark = pytest.mark.fast


WRONG = Failure(ValueError("wrong"), 3, "g", "h")


@asynccontextmanager
async def dead_letter_producer(
    topic: str = "dead",
) -> AsyncIterator[tuple[CompleteCluster, DeadLetterProducer]]:
    async with CompleteCluster(Random(1), brokers=1, topic_partitions=None) as cluster:
        cluster.add_topic("dead", 1)
        async with DeadLetterProducer(
            topic, cluster.config(), randomness=Random(1), opener=cluster.open
        ) as producer:
            yield cluster, producer


def written(cluster: CompleteCluster, topic: str = "dead") -> list[bytes]:
    return [record.value or b"" for record in cluster.committed_records(TopicPartition(topic, 0))]


def dead_letter(value: bytes, offset: int = 7) -> Record:
    return Record(
        "t", 0, offset, key=b"k", value=value, headers=[("mine", b"1"), ("dlt.topic", b"x")]
    )


@simulated(seeds=range(2))
async def test_a_write_is_retried_until_it_succeeds() -> None:
    async with dead_letter_producer() as (cluster, producer), asyncio.TaskGroup() as group:
        cluster.kill(1)
        writing = [
            group.create_task(producer.write(dead_letter(b"%d" % n, n), WRONG)) for n in range(3)
        ]
        await asyncio.sleep(300)
        assert not any(task.done() for task in writing)
        assert "Connection refused" in (producer.last_error or "")
        assert "3 records cannot be written to dead" in (producer.trouble or "")
        cluster.start(1)
        await asyncio.wait(writing)
        assert sorted(task.result() for task in writing) == [0, 1, 2]
        assert sorted(written(cluster)) == [b"0", b"1", b"2"]
        assert producer.trouble is None


@simulated(seeds=range(5))
async def test_a_record_whose_response_is_lost_is_written_once() -> None:
    """A batch is sent again after a long outage."""
    async with dead_letter_producer() as (cluster, producer), asyncio.TaskGroup() as group:
        await producer.write(dead_letter(b"first"), WRONG)
        cluster.lose_next(PRODUCE.key, Fate.LOST_AFTER)
        writing = group.create_task(producer.write(dead_letter(b"second", 8), WRONG))
        await until(lambda: len(written(cluster)) == 2)
        cluster.kill(1)
        await asyncio.sleep(300)
        assert "Connection refused" in (producer.trouble or "")
        cluster.start(1)
        assert await writing == 1
        assert written(cluster) == [b"first", b"second"]


@simulated(seeds=range(5))
async def test_a_refused_record_does_not_block_others() -> None:
    async with dead_letter_producer() as (cluster, producer), asyncio.TaskGroup() as group:
        cluster.producing.max_message_bytes = 1500
        large = group.create_task(producer.write(dead_letter(b"large" * 300), WRONG))
        await asyncio.sleep(60)
        await producer.write(dead_letter(b"small", 8), WRONG)
        assert not large.done()
        cluster.producing.max_message_bytes = 15_000  # the topic was reconfigured
        await large
        assert written(cluster) == [b"small", b"large" * 300]


@simulated(seeds=range(2))
async def test_a_missing_topic_is_reported() -> None:
    async with dead_letter_producer("absent") as (cluster, producer), asyncio.TaskGroup() as group:
        producer.check_topic()
        await asyncio.sleep(60)
        assert "records could not be written to absent: the topic is not there" in (
            producer.trouble or ""
        )
        writing = group.create_task(producer.write(dead_letter(b"v"), WRONG))
        await asyncio.sleep(60)
        assert "1 records cannot be written to absent" in (producer.trouble or "")
        cluster.add_topic("absent", 1)
        assert await writing == 0
        assert producer.trouble is None


@simulated(seeds=range(2))
async def test_a_deleted_topic_is_reported_and_used_after_its_recreation() -> None:
    async with dead_letter_producer() as (cluster, producer), asyncio.TaskGroup() as group:
        await producer.write(dead_letter(b"first"), WRONG)
        cluster.delete_topic("dead")
        writing = group.create_task(producer.write(dead_letter(b"second", 8), WRONG))
        await asyncio.sleep(60)
        assert "the topic is not there" in (producer.trouble or "")
        cluster.add_topic("dead", 1)
        await writing
        assert written(cluster) == [b"second"]


@simulated(seeds=range(5))
async def test_close_does_not_wait_for_unwritable_records() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        async with dead_letter_producer() as (cluster, producer):
            cluster.kill(1)
            writing = group.create_task(is_closed(producer.write(dead_letter(b"x"), WRONG)))
            await asyncio.sleep(60)
            before = loop.time()
        assert loop.time() - before < 1
        assert await writing
    with pytest.raises(ClosedError):
        await producer.write(dead_letter(b"y"), WRONG)


async def is_closed(writing: Awaitable[int]) -> bool:
    try:
        await writing
    except ClosedError:
        return True
    return False


@simulated(seeds=range(2))
async def test_dead_letters_whose_callers_were_cancelled_are_written_once() -> None:
    """The partition was revoked. Later, a re-created topic has other records at these offsets."""
    async with dead_letter_producer() as (cluster, producer):
        cluster.kill(1)
        for _ in range(2):
            for n in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await producer.write(dead_letter(b"%d" % n, n), WRONG)
        cluster.start(1)
        await asyncio.sleep(60)
        assert sorted(written(cluster)) == [b"0", b"1", b"2"]
        assert not producer._pending
        await producer.write(dead_letter(b"another", 1), WRONG)
        assert written(cluster)[3:] == [b"another"]
        assert not producer._pending


@pytest.mark.parametrize("known", [False, True])
@simulated(seeds=range(2))
async def test_a_cancelled_write_to_a_retry_topic_is_withdrawn(known: bool) -> None:
    """Otherwise the record would be retried after later records of the new owner."""
    async with dead_letter_producer() as (cluster, producer), asyncio.TaskGroup() as group:
        expected = [b"parked", b"others"]
        if known:
            await producer.write(dead_letter(b"first", 1), WRONG, partition=0)
            expected.insert(0, b"first")
        cluster.kill(1)
        other = group.create_task(producer.write(dead_letter(b"others", 8), WRONG, partition=0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await producer.write(dead_letter(b"parked"), WRONG, partition=0)
        cluster.start(1)
        await other
        assert written(cluster) == [value for value in expected if value != b"parked"]
        assert not producer._pending
        await producer.write(dead_letter(b"parked"), WRONG, partition=0)
        assert written(cluster)[-1] == b"parked"


@simulated(seeds=range(2))
async def test_two_records_of_one_offset_are_two_dead_letters() -> None:
    """The topic was re-created before the first record's dead letter was written."""
    async with dead_letter_producer() as (cluster, producer):
        cluster.kill(1)
        async with asyncio.TaskGroup() as group:
            for value in (b"old", b"new", b"new"):
                group.create_task(producer.write(dead_letter(value), WRONG))
            await asyncio.sleep(1)
            cluster.start(1)
        assert sorted(written(cluster)) == [b"new", b"old"]


def test_the_traceback_is_reported_with_its_end_and_bounded_length() -> None:
    def fail(length: int) -> None:
        raise ValueError("x" * length)

    short, long = 10, LONGEST_TRACEBACK
    reported = {}
    for length in (short, long):
        with pytest.raises(ValueError, match="xxx") as caught:
            fail(length)
        headers = dict(failure_headers(dead_letter(b"v"), Failure(caught.value)))
        reported[length] = headers["dlt.error.traceback"].decode()
    assert reported[short].startswith("Traceback (most recent call last)")
    assert "in fail" in reported[short]
    assert len(reported[long]) == LONGEST_TRACEBACK
    assert reported[long].startswith("...\n")
    assert reported[long].endswith("xxx\n")


def test_a_traceback_without_messages_has_the_classes_of_all_causes() -> None:
    try:
        try:
            raise KeyError("4111")  # noqa: TRY301
        except KeyError as inner:
            group = ExceptionGroup("4111", [OSError("4111")])
            group.add_note("4111")
            raise group from inner
    except ExceptionGroup as error:
        text = traceback_text(error, messages=False)
    assert all(kind in text for kind in ("KeyError", "ExceptionGroup", "OSError"))
    assert "4111" not in text.replace('("4111"', "")  # the source lines of this test


def test_an_error_that_is_no_valid_text_is_reported_escaped() -> None:
    """Python represents a path that is no UTF-8 by surrogates, for instance."""
    reported = dict(failure_headers(dead_letter(b"v"), Failure(ValueError("\udcff"))))
    assert reported["dlt.error.message"] == b"\\udcff"


@simulated(seeds=range(2))
async def test_dead_letters_go_to_allowed_hosts_only() -> None:
    async with CompleteCluster(Random(1), brokers=2, topic_partitions=None) as cluster:
        cluster.add_topic("dead", 1)
        cluster.move_leader(TopicPartition("dead", 0), 2)
        config = replace(
            cluster.config(), bootstrap_servers="broker-1:9092", allowed_hosts="broker-1"
        )
        async with DeadLetterProducer(
            "dead", config, randomness=Random(1), opener=cluster.open
        ) as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await producer.write(dead_letter(b"x"), WRONG)
            assert "allowed_hosts" in (producer.last_error or "")
            assert cluster.brokers[1].connections
            assert not cluster.brokers[2].connections
            assert not cluster.brokers[2].requests

"""Transactions of a producer on real brokers: visible records, offsets, fencing and faults."""

import asyncio

import pytest

from asyncconsumer import Consumer, GroupMetadata, Producer, TopicPartition
from asyncconsumer.config.choices import IsolationLevel
from asyncconsumer.errors import (
    ConfigError,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    ProducerFenced,
    RecordTooLarge,
    TransactionAborted,
    UnknownMemberId,
)
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.proxy.faults import Frame, Verdict
from asyncconsumer.testing.proxy.frames import kafka_api_key
from tests.support.helpers import until
from tests.support.real_apps import offsets

PRODUCE, END_TXN = 0, 26


async def values(
    kafka: KafkaHandle, topic: str, isolation_level: IsolationLevel = "read_committed"
) -> list[bytes | None]:
    """Return the values that a reader of the topic sees."""
    async with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        stop_at="end",
    ) as consumer:
        return sorted([message.value async for message in consumer], key=lambda value: value or b"")


async def committed_values(kafka: KafkaHandle, topic: str, count: int) -> list[bytes | None]:
    """Return the committed values, as soon as there are `count`.

    A commit returns before the brokers have written its markers to all partitions.
    """
    async with asyncio.timeout(30):
        while len(seen := await values(kafka, topic)) < count:
            await asyncio.sleep(0.05)
    return seen


async def test_records_of_a_transaction_are_visible_together(kafka: KafkaHandle) -> None:
    topics = [await kafka.topic(partitions=2), await kafka.topic()]
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topics[0]
    ) as producer:
        for number in range(3):
            async with producer.transaction():
                for topic in topics:
                    for n in range(10):
                        await producer.send(topic, b"%d-%d" % (number, n), key=b"%d" % n)
                await producer.flush()
                assert len(await values(kafka, topics[1])) == number * 10
            for topic in topics:
                count = (number + 1) * 10
                assert len(await committed_values(kafka, topic, count)) == count


async def test_an_exception_aborts_only_its_transaction(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
    ) as producer:
        async with producer.transaction():
            await producer.send(topic, b"1", partition=0)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a transaction and its steps
            async with producer.transaction():
                written = await producer.send(topic, b"2", partition=0)
                await producer.flush()
                unwritten = await producer.send(topic, b"2", partition=1)
                raise ZeroDivisionError
        await written
        with pytest.raises(TransactionAborted):
            await unwritten
        async with producer.transaction():
            await producer.send(topic, b"3", partition=0)
            await producer.send(topic, b"3", partition=1)
        async with producer.transaction():
            pass  # empty
    assert await committed_values(kafka, topic, 3) == [b"1", b"3", b"3"]
    assert b"2" in await values(kafka, topic, "read_uncommitted")


async def test_sending_outside_of_a_transaction_is_refused(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    servers = kafka.bootstrap_servers
    async with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        with pytest.raises(ConfigError, match=r"within `async with producer.transaction\(\)`"):
            await producer.send(topic, b"1")
        async with producer.transaction():
            with pytest.raises(ConfigError, match="one at a time"):
                async with producer.transaction():
                    pass
    async with Producer(bootstrap_servers=servers) as plain:
        with pytest.raises(ConfigError, match="transactional_id"):
            plain.transaction()


async def test_a_newer_producer_with_the_same_id_fences_the_older_one(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    servers = kafka.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers, transactional_id=topic) as older,
        Producer(bootstrap_servers=servers, transactional_id=topic) as newer,
    ):
        with pytest.raises(TransactionAborted) as aborted:  # noqa: PT012 - a transaction and its steps
            async with older.transaction():
                await older.send_and_wait(topic, b"older")
                async with newer.transaction():
                    await newer.send(topic, b"newer")
                await older.send(topic, b"older, too")
        assert isinstance(aborted.value.cause, InvalidProducerEpoch | ProducerFenced)
        with pytest.raises(ProducerFenced):
            async with older.transaction():
                await older.send(topic, b"older")
        async with newer.transaction():
            await newer.send(topic, b"newer")
    assert await committed_values(kafka, topic, 2) == [b"newer", b"newer"]


async def test_offsets_are_committed_or_aborted_with_the_records(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    tp = TopicPartition(topic, 0)
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
    ) as producer:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a transaction and its steps
            async with producer.transaction() as transaction:
                await transaction.send_offsets({tp: 7}, group)
                raise ZeroDivisionError
        assert await offsets(kafka, group) == {}
        async with producer.transaction() as transaction:
            await producer.send(topic, b"1")
            await transaction.send_offsets({tp: 7}, group)
            await transaction.send_offsets({tp: 8}, group)
    assert await offsets(kafka, group) == {tp: 8}


async def test_the_group_refuses_offsets_of_a_fenced_member(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    tp, servers = TopicPartition(topic, 0), kafka.bootstrap_servers
    async with (
        Consumer(
            topic, bootstrap_servers=servers, group_id=group, commit_policy="manual"
        ) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        await until(lambda: bool(consumer.assignment))
        member = consumer.group_metadata()
        assert member.group_id == group
        assert member.member_id
        async with producer.transaction() as transaction:
            await transaction.send_offsets({tp: 1}, member)
        fenced: list[tuple[GroupMetadata, type[Exception]]] = [
            (member._replace(generation=member.generation - 1), IllegalGeneration),
            (member._replace(member_id="someone"), UnknownMemberId),
        ]
        for metadata, error in fenced:
            with pytest.raises(error):  # noqa: PT012 - a transaction and its steps
                async with producer.transaction() as transaction:
                    await producer.send(topic, b"fenced")
                    await transaction.send_offsets({tp: 2}, metadata)
    assert await offsets(kafka, group) == {tp: 1}
    assert await values(kafka, topic) == []


async def test_a_record_that_is_too_large_aborts_the_transaction(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(config={"max.message.bytes": "5000"})
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic, linger_ms=600_000
    ) as producer:
        with pytest.raises(TransactionAborted) as aborted:  # noqa: PT012 - a transaction and its steps
            async with producer.transaction():
                good = [await producer.send(topic, b"%d" % n) for n in range(3)]
                bad = await producer.send(topic, bytes(6000))
                good.append(await producer.send(topic, b"last"))
        assert isinstance(aborted.value.cause, RecordTooLarge)
        with pytest.raises(RecordTooLarge):
            await bad
        with pytest.raises(TransactionAborted):
            await good[-1]
        async with producer.transaction():
            for n in range(1000):
                await producer.send(topic, b"%3d" % n * 10)
    assert len(await committed_values(kafka, topic, 1000)) == 1000


async def test_a_transaction_timeout_that_brokers_refuse_is_an_error(kafka: KafkaHandle) -> None:
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id=await kafka.topic(),
        transaction_timeout_ms=2**31 - 1,
    ) as producer:
        with pytest.raises(InvalidTransactionTimeout):
            async with producer.transaction():
                pass


@pytest.mark.parametrize("key", [PRODUCE, END_TXN])
async def test_lost_responses_neither_lose_nor_repeat_records(
    kafka_cluster: KafkaCluster, key: int
) -> None:
    topic = await kafka_cluster.topic(partitions=3)
    requested: set[int] = set()
    remaining = 3

    def see(frame: Frame) -> Verdict:
        if kafka_api_key(frame) == key:
            requested.add(frame.connection)
        return Verdict.PASS

    def lose(frame: Frame) -> Verdict:
        nonlocal remaining
        if frame.connection not in requested or not remaining:
            return Verdict.PASS
        requested.discard(frame.connection)
        remaining -= 1
        return Verdict.CUT

    for proxy in kafka_cluster.proxies.values():
        proxy.on_frame("up", see)
        proxy.on_frame("down", lose)
    async with Producer(
        bootstrap_servers=kafka_cluster.proxied_servers, transactional_id=topic
    ) as producer:
        for number in range(5):
            async with producer.transaction():
                for n in range(30):
                    await producer.send(topic, b"%d-%02d" % (number, n), key=b"%d" % n)
    assert remaining == 0
    expected = sorted(b"%d-%02d" % (number, n) for number in range(5) for n in range(30))
    assert await committed_values(kafka_cluster, topic, len(expected)) == expected


async def test_transactions_continue_while_brokers_are_killed(kafka_cluster: KafkaCluster) -> None:
    """Kill each broker once, so that the coordinator moves at least once."""
    topic, group = await kafka_cluster.topic(partitions=3, replication_factor=3), "moves"
    tp = TopicPartition(topic, 0)
    async with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=topic
    ) as producer:

        async def produce(number: int) -> None:
            async with producer.transaction() as transaction:
                for n in range(10):
                    await producer.send(topic, b"%d-%d" % (number, n), key=b"%d" % n)
                await transaction.send_offsets({tp: number}, group)

        await produce(0)
        for number, broker in enumerate(kafka_cluster.brokers.values(), start=1):
            await broker.kill()
            async with asyncio.timeout(100):
                await produce(number)
            await broker.start()
            await kafka_cluster.server.wait_until_whole()
    assert len(await committed_values(kafka_cluster, topic, 40)) == 40
    assert await offsets(kafka_cluster, group) == {tp: 3}

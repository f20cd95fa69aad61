"""Seeks, commits and closes during rebalances."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from asyncconsumer import Consumer, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.errors import StoreFailed
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer, next_of, partitions, send, take


class Memory:
    """A user's offset store that can be made to fail."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.trouble: Exception | None = None

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self.committed.get(tp) for tp in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.committed |= offsets


class Slow(ConsumerRebalanceListener):
    """A listener that blocks all calls after the first until `proceed` is set."""

    def __init__(self) -> None:
        self.observed = 0
        self.proceed = asyncio.Event()

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.observed += 1
        if self.observed > 1:
            await self.proceed.wait()


async def test_a_seek_is_effective_while_a_listener_is_running(kafka: KafkaHandle) -> None:
    topic, listener = await kafka.topic(partitions=2), Slow()
    first, second = partitions(topic, 0, 1)
    await send(kafka, topic, range(0, 200, 2), 2)
    options = {"group_id": kafka.group(), "enable_auto_commit": False, "listener": listener}
    async with make_consumer(kafka, partitions=[first], **options) as consumer:
        await take(consumer, 50)
        await consumer.assign([first, second])
        await until(lambda: listener.observed == 2)
        consumer.seek(first, 90)
        assert await consumer.position(first) == 90
        assert await next_of(consumer) == 180
        assert (await consumer.commit())[first] == 91  # with the unfinished record
        listener.proceed.set()
        assert await consumer.wait_assigned() == {first, second}


async def test_a_listener_can_commit_revoked_partitions_when_closing(kafka: KafkaHandle) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(10))
    committed: list[Mapping[TopicPartition, int]] = []

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            committed.append(await consumer.commit())
            committed.append(await consumer.commit({tp: 7}))

    options = {"group_id": kafka.group(), "enable_auto_commit": False}
    async with make_consumer(kafka, topic, listener=Committing(), **options) as consumer:
        await take(consumer, 4)
    assert committed == [{tp: 4}, {tp: 7}]
    async with make_consumer(kafka, topic, **options) as other:
        assert await take(other, 1) == [7]


async def test_closing_commits_and_leaves_though_a_record_is_in_flight(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    busy = asyncio.Event()

    async def read(consumer: Consumer[Any, Any]) -> None:
        async for record in consumer:
            if record.offset == 5:
                busy.set()
                await asyncio.Event().wait()

    async with make_consumer(kafka, topic, group_id=group, session_timeout_ms=60_000) as consumer:
        reading = asyncio.get_running_loop().create_task(read(consumer))
        await busy.wait()
    reading.cancel()
    async with make_consumer(kafka, topic, group_id=group) as other:  # joins without a wait
        assert await take(other, 1) == [5]


async def test_a_cancelled_unsubscribe_leaves_no_committer_running(kafka: KafkaHandle) -> None:
    topic, store = await kafka.topic(), Memory()
    await send(kafka, topic, range(10))

    class Hanging(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.Event().wait()

    names = {"commit", "auto-commit", "rebalance"}
    async with make_consumer(
        kafka, partitions=partitions(topic, 0), offsets=store, listener=Hanging()
    ) as consumer:
        await take(consumer, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await consumer.unsubscribe()
        await asyncio.sleep(0)
        assert not names & {task.get_name() for task in asyncio.all_tasks()}


async def test_commits_after_a_seek_to_the_beginning_are_lower(kafka: KafkaHandle) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(100))
    async with make_consumer(
        kafka, topic, group_id=kafka.group(), enable_auto_commit=False
    ) as consumer:
        await take(consumer, 51)
        assert await consumer.commit() == {tp: 51}
        consumer.seek_to_beginning()
        await consumer.commit()
        await take(consumer, 11)
        assert await consumer.commit() == {tp: 11}


async def test_a_failing_store_raises_and_the_consumer_continues(kafka: KafkaHandle) -> None:
    topic, (tp,), store = (topic := await kafka.topic()), partitions(topic, 0), Memory()
    await send(kafka, topic, range(10))
    async with make_consumer(
        kafka, partitions=[tp], offsets=store, enable_auto_commit=False
    ) as consumer:
        await take(consumer, 5)
        store.trouble = OSError("database is locked")
        with pytest.raises(StoreFailed, match="database is locked"):
            await consumer.commit()
        store.trouble = None
        assert await consumer.commit() == {tp: 5} == store.committed


async def test_concurrent_subscribe_calls_are_serialized(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with make_consumer(kafka, group_id=kafka.group()) as consumer:
        first = asyncio.get_running_loop().create_task(consumer.subscribe(topic))
        await asyncio.sleep(0)
        await consumer.subscribe(topic)
        await first
        assert await consumer.wait_assigned() == {TopicPartition(topic, 0)}


async def test_listeners_are_called_in_the_order_in_which_they_were_added(
    kafka: KafkaHandle,
) -> None:
    topic, messages = await kafka.topic(), list[str]()

    class Noting(ConsumerRebalanceListener):
        def __init__(self, name: str) -> None:
            self._name = name

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            messages.append(f"{self._name} +{len(partitions)}")

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            messages.append(f"{self._name} -{len(partitions)}")

    consumer = make_consumer(kafka, topic, group_id=kafka.group(), listener=Noting("first"))
    consumer.listen(Noting("second"))
    states = [consumer.is_open]
    async with consumer:
        states.append(consumer.is_open)
        await consumer.wait_assigned()
        consumer.listen(Noting("third"))
    assert [*states, consumer.is_open] == [False, True, False]
    assert messages == ["first +1", "second +1", "first -1", "second -1", "third -1"]

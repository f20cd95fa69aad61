"""Seeks, commits and endings in the midst of rebalances."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from asyncconsumer import Consumer, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.errors import StoreFailed
from asyncconsumer.testing.handles import KafkaHandle
from tests.consumer.real import consumer, next_of, partitions, send, take
from tests.helpers import until


class Memory:
    """A store of one's own, which can be made to fail."""

    def __init__(self) -> None:
        self.kept: dict[TopicPartition, int] = {}
        self.trouble: Exception | None = None

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {one: self.kept.get(one) for one in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.kept |= offsets


class Slow(ConsumerRebalanceListener):
    """Takes its time with what is assigned after the first."""

    def __init__(self) -> None:
        self.told = 0
        self.go_on = asyncio.Event()

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.told += 1
        if self.told > 1:
            await self.go_on.wait()


async def test_a_seek_while_a_listener_takes_its_time_is_done_at_once(kafka: KafkaHandle) -> None:
    topic, listener = await kafka.topic(partitions=2), Slow()
    first, second = partitions(topic, 0, 1)
    await send(kafka, topic, range(0, 200, 2), 2)
    options = {"group_id": kafka.group(), "enable_auto_commit": False, "listener": listener}
    async with consumer(kafka, partitions=[first], **options) as one:
        await take(one, 50)
        await one.assign([first, second])
        await until(lambda: listener.told == 2)
        one.seek(first, 90)
        assert await one.position(first) == 90
        assert await next_of(one) == 180
        assert (await one.commit())[first] == 91  # with what is in hand
        listener.go_on.set()
        assert await one.wait_assigned() == {first, second}


async def test_what_is_revoked_may_be_committed_and_what_ends_as_well(kafka: KafkaHandle) -> None:
    topic, (at,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(10))
    committed: list[Mapping[TopicPartition, int]] = []

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            committed.append(await one.commit())
            committed.append(await one.commit({at: 7}))

    options = {"group_id": kafka.group(), "enable_auto_commit": False}
    async with consumer(kafka, topic, listener=Committing(), **options) as one:
        await take(one, 4)
    assert committed == [{at: 4}, {at: 7}]
    async with consumer(kafka, topic, **options) as other:
        assert await take(other, 1) == [7]


async def test_an_ending_commits_and_leaves_though_somebody_works_on_a_record(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    busy = asyncio.Event()

    async def read(one: Consumer[Any, Any]) -> None:
        async for record in one:
            if record.offset == 5:
                busy.set()
                await asyncio.Event().wait()

    async with consumer(kafka, topic, group_id=group, session_timeout_ms=60_000) as one:
        reading = asyncio.get_running_loop().create_task(read(one))
        await busy.wait()
    reading.cancel()
    async with consumer(kafka, topic, group_id=group) as other:  # has no session to wait for
        assert await take(other, 1) == [5]


async def test_an_ending_that_is_given_up_leaves_nobody_who_commits(kafka: KafkaHandle) -> None:
    topic, store = await kafka.topic(), Memory()
    await send(kafka, topic, range(10))

    class Hanging(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.Event().wait()

    names = {"commit", "auto-commit", "rebalance"}
    async with consumer(
        kafka, partitions=partitions(topic, 0), offsets=store, listener=Hanging()
    ) as one:
        await take(one, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await one.unsubscribe()
        await asyncio.sleep(0)
        assert not names & {task.get_name() for task in asyncio.all_tasks()}


async def test_after_a_seek_to_the_beginning_commits_begin_there(kafka: KafkaHandle) -> None:
    topic, (at,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(100))
    async with consumer(kafka, topic, group_id=kafka.group(), enable_auto_commit=False) as one:
        await take(one, 51)
        assert await one.commit() == {at: 51}
        one.seek_to_beginning()
        await one.commit()
        await take(one, 11)
        assert await one.commit() == {at: 11}


async def test_a_store_that_fails_is_told_of_and_ends_nothing(kafka: KafkaHandle) -> None:
    topic, (at,), store = (topic := await kafka.topic()), partitions(topic, 0), Memory()
    await send(kafka, topic, range(10))
    async with consumer(kafka, partitions=[at], offsets=store, enable_auto_commit=False) as one:
        await take(one, 5)
        store.trouble = OSError("database is locked")
        with pytest.raises(StoreFailed, match="database is locked"):
            await one.commit()
        store.trouble = None
        assert await one.commit() == {at: 5} == store.kept


async def test_two_changes_at_once_are_made_one_after_the_other(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with consumer(kafka, group_id=kafka.group()) as one:
        first = asyncio.get_running_loop().create_task(one.subscribe(topic))
        await asyncio.sleep(0)
        await one.subscribe(topic)
        await first
        assert await one.wait_assigned() == {TopicPartition(topic, 0)}


async def test_who_listens_later_is_told_as_well_after_the_first(kafka: KafkaHandle) -> None:
    topic, told = await kafka.topic(), list[str]()

    class Noting(ConsumerRebalanceListener):
        def __init__(self, name: str) -> None:
            self._name = name

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            told.append(f"{self._name} +{len(partitions)}")

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            told.append(f"{self._name} -{len(partitions)}")

    one = consumer(kafka, topic, group_id=kafka.group(), listener=Noting("first"))
    one.listen(Noting("second"))
    states = [one.is_open]
    async with one:
        states.append(one.is_open)
        await one.wait_assigned()
        one.listen(Noting("third"))
    assert [*states, one.is_open] == [False, True, False]
    assert told == ["first +1", "second +1", "first -1", "second -1", "third -1"]

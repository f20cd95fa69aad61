"""Methods of reading, closing and committing, on a real broker."""

import asyncio
import json
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer, structs

from asyncconsumer import Consumer, Producer, TopicPartition
from asyncconsumer.consumer.stream import ConsumerStream
from asyncconsumer.errors import ConfigError, ConsumerTimeout, DeserializationFailed
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.streams.messages import Message
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer, next_of, partitions, send, take


def number(message: Any) -> int:
    return int(message.value)


# --- batches -------------------------------------------------------------------------------------


async def test_a_batch_of_all_partitions_is_acknowledged_as_a_whole(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(300), 3)
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        await consumer.wait_assigned()
        batches = consumer.batches(max_records=200, max_wait_ms=2_000)
        first = await anext(batches)
        assert len(first) == 200
        committed = await consumer.committed()
        assert all(offset in (0, None) for offset in committed.values())
        second = await anext(batches)
        assert sorted(map(number, first + second)) == list(range(300))
        async with asyncio.TaskGroup() as tasks:
            done = tasks.create_task(consumer.commit())  # not by the task that reads
        assert sum(done.result().values()) == 200
        assert sum((await consumer.commit()).values()) == 300


async def test_getmany_and_getone_read_the_selected_partitions(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(40), 2)
    first, second = partitions(topic, 0, 1)
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        await consumer.wait_assigned()
        seen: dict[TopicPartition, list[int]] = {first: [], second: []}
        while len(seen[second]) < 20:
            result = await consumer.getmany(second, timeout_ms=1_000, max_records=7)
            assert result.keys() <= {second}
            seen[second] += map(number, result.get(second, []))
        assert await consumer.getmany(second) == {}
        while len(seen[first]) < 20:
            seen[first].append(number(await consumer.getone(first)))
        assert sorted(seen[first] + seen[second]) == list(range(40))
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        await consumer.wait_assigned()
        assert sum(offset or 0 for offset in (await consumer.committed()).values()) == 40


async def test_a_batch_waits_for_more_records_up_to_max_wait_ms(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with make_consumer(kafka, partitions=partitions(topic, 0)) as consumer:
        batches = consumer.batches(max_records=10, max_wait_ms=50)
        waiting = asyncio.ensure_future(anext(batches))  # noqa: TID251 - of this test alone
        await send(kafka, topic, range(3))
        got = [number(record) for record in await waiting]
        while len(got) < 3:
            got += [number(record) for record in await anext(batches)]
        assert got == [0, 1, 2]


async def test_records_of_a_cancelled_batch_are_in_the_next_one(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(5))
    async with make_consumer(kafka, partitions=partitions(topic, 0)) as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(consumer.batches(max_records=10, max_wait_ms=60_000))
        await send(kafka, topic, range(5, 10))
        batch = await anext(consumer.batches(max_records=10, max_wait_ms=60_000))
        assert list(map(number, batch)) == list(range(10))


# --- several streams -----------------------------------------------------------------------------


async def test_streams_divide_the_partitions(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    await send(kafka, topic, range(400), 4)
    results: list[list[Message[bytes, bytes]]] = [[], []]

    async def read(stream: ConsumerStream[bytes, bytes], into: list[Message[bytes, bytes]]) -> None:
        async for record in stream:
            into.append(record)  # noqa: PERF401 - read by another task meanwhile

    async with (
        make_consumer(kafka, topic, group_id=group) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        readers = [
            tasks.create_task(read(stream, into))
            for stream, into in zip(consumer.streams(2), results, strict=True)
        ]
        await until(lambda: sum(map(len, results)) == 400)
        parts = [{record.partition for record in each} for each in results]
        assert [len(each) for each in parts] == [2, 2]
        assert not parts[0] & parts[1]
        for reader in readers:
            reader.cancel()
    # each cancelled reader had one record in flight
    async with make_consumer(kafka, topic, group_id=group, stop_at="end") as other:
        assert len([record async for record in other]) <= 2


async def test_each_partition_has_a_stream_while_it_is_assigned(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(20), 2)
    read: dict[int, list[int]] = {}
    ended: list[int] = []

    async def follow(stream: ConsumerStream[bytes, bytes]) -> None:
        assert stream.partition is not None
        async for record in stream:
            read.setdefault(stream.partition.partition, []).append(number(record))
        ended.append(stream.partition.partition)

    async def all_of(consumer: Consumer, tasks: asyncio.TaskGroup) -> None:
        async for stream in consumer.partitions():
            tasks.create_task(follow(stream))

    async with (
        asyncio.TaskGroup() as tasks,
        make_consumer(kafka, topic, group_id=group) as consumer,
    ):
        tasks.create_task(all_of(consumer, tasks))
        await until(lambda: sum(map(len, read.values())) == 20)
        assert read == {0: list(range(0, 20, 2)), 1: list(range(1, 20, 2))}
        async with make_consumer(kafka, topic, group_id=group) as two:
            await until(lambda: len(consumer.assignment) == 1)
            await until(lambda: len(ended) == 2)  # both, because the range assignor revokes all
            await until(lambda: consumer.health().lag == dict.fromkeys(consumer.assignment, 0))
            assert len(await two.wait_assigned()) == 1
    assert len(ended) > 2  # all streams end with the consumer


async def test_a_second_method_of_reading_is_refused(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(2))
    async with make_consumer(kafka, partitions=partitions(topic, 0)) as consumer:
        await next_of(consumer)
        with pytest.raises(ConfigError, match="already being read in another way"):
            consumer.streams(2)
        with pytest.raises(ConfigError, match="`number` must be"):
            consumer.streams(0)


# --- stop conditions -----------------------------------------------------------------------------


async def test_stop_at_end_reads_up_to_the_end_at_the_start(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(30), 3)
    async with make_consumer(kafka, topic, group_id=group, stop_at="end") as consumer:
        first = await next_of(consumer)
        await send(kafka, topic, range(30, 60), 3)
        rest = [number(record) async for record in consumer]
        assert sorted([first, *rest]) == list(range(30))
    async with make_consumer(kafka, topic, group_id=group, stop_at="end") as other:
        assert sorted([number(record) async for record in other]) == list(range(30, 60))
    async with make_consumer(kafka, topic, group_id=group, stop_at="end") as last:
        assert [record async for record in last] == []


async def test_stop_at_offsets_and_stop_at_end_from_the_latest_offset(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(10))
    (tp,) = partitions(topic, 0)
    async with make_consumer(kafka, partitions=[tp], stop_at={tp: 4}) as consumer:
        assert [number(record) async for record in consumer] == [0, 1, 2, 3]
    options = {"auto_offset_reset": "latest", "stop_at": "end"}
    async with make_consumer(kafka, partitions=[tp], **options) as other:
        async with asyncio.timeout(30):
            assert [record async for record in other] == []


async def test_a_progress_bar_shows_the_records_read(
    kafka: KafkaHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(10))
    offset = partitions(topic, 0)
    async with make_consumer(kafka, partitions=offset, stop_at="end", progress=True) as consumer:
        assert len([record async for record in consumer]) == 10
    assert "10/10" in capsys.readouterr().err


async def test_max_records_records_are_read_and_committed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(30))
    async with make_consumer(kafka, topic, group_id=group, max_records=7) as consumer:
        assert [number(record) async for record in consumer] == list(range(7))
        with pytest.raises(ConfigError, match="max_records"):
            await anext(consumer.chunks())
    async with make_consumer(kafka, topic, group_id=group, max_records=12) as other:
        sizes = [len(batch) async for batch in other.batches(max_records=5)]
        assert sizes == [5, 5, 2]
    async with make_consumer(kafka, topic, group_id=group) as last:
        assert await next_of(last) == 19


async def test_a_loop_ends_after_idle_timeout_ms_without_records(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(3))
    offset = partitions(topic, 0)
    async with make_consumer(kafka, partitions=offset, idle_timeout_ms=300) as consumer:
        assert [number(record) async for record in consumer] == [0, 1, 2]
        assert [batch async for batch in consumer.batches()] == []
    async with make_consumer(kafka, partitions=offset, consumer_timeout_ms=300) as other:
        await take(other, 3)
        with pytest.raises(ConsumerTimeout):
            await next_of(other)


# --- ways to commit ------------------------------------------------------------------------------


async def test_the_manual_policy_commits_only_on_request(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    (tp,) = partitions(topic, 0)
    async with make_consumer(kafka, topic, group_id=group, commit_policy="manual") as consumer:
        messages = aiter(consumer)
        taken = [await anext(messages) for _ in range(6)]
        assert await consumer.committed([tp]) == {tp: None}
        await taken[3].commit()
        await taken[1].commit()  # committed before: commits do not decrease
        assert await consumer.committed([tp]) == {tp: 4}
        assert await consumer.commit(taken[4]) == {tp: 5}
    async with make_consumer(kafka, topic, group_id=group) as other:
        assert await next_of(other) == 5


async def test_commit_of_a_message_is_refused_without_the_manual_policy(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(1))
    for options in ({}, {"value_deserializer": json}, {"max_records": 5}):
        async with make_consumer(kafka, topic, group_id=kafka.group(), **options) as consumer:
            message = await anext(aiter(consumer))
            with pytest.raises(ConfigError, match="commit_policy='manual'"):
                await message.commit()
            assert message.record.value == b"0"


async def test_at_most_once_commits_before_delivery_and_closing_loses_none(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(50))
    (tp,) = partitions(topic, 0)
    options = {"group_id": group, "commit_policy": "at_most_once"}
    async with make_consumer(kafka, topic, **options) as consumer:
        assert await next_of(consumer) == 0
        committed = (await consumer.committed([tp]))[tp]
        assert committed is not None
        assert committed >= 1  # a crash now would repeat nothing
        assert await take(consumer, 2) == [1, 2]
    async with make_consumer(kafka, topic, **options) as other:
        assert await next_of(other) == 3


# --- unreadable records --------------------------------------------------------------------------


async def test_a_deserialization_error_does_not_acknowledge_its_record(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await _send_texts(kafka, topic, "1", "2", "no number", "4")
    async with make_consumer(kafka, topic, group_id=group, value_deserializer=json) as consumer:
        values = aiter(consumer)
        assert [(await anext(values)).value for _ in range(2)] == [1, 2]
        with pytest.raises(DeserializationFailed) as failed:
            await anext(values)
        assert failed.value.record.value == b"no number"  # type: ignore[attr-defined]
    async with make_consumer(kafka, topic, group_id=group, value_deserializer=json) as other:
        with pytest.raises(DeserializationFailed):  # the record was not acknowledged
            await anext(aiter(other))


async def test_unreadable_records_are_skipped_counted_and_reported(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await _send_texts(kafka, topic, "1", "no number", "3")
    options: dict[str, Any] = {"group_id": group, "value_deserializer": json, "on_poison": "skip"}
    async with make_consumer(kafka, topic, stop_at="end", **options) as consumer:
        events = consumer.events()
        assert [message.value async for message in consumer] == [1, 3]
        assert consumer.counts["record_unreadable"] == 1
        messages = [str(await anext(events)) for _ in range(2)]
        assert "JSONDecodeError" in messages[-1]
        assert f"{topic}[0]@1" in messages[-1]
    async with make_consumer(kafka, topic, max_records=3, **options) as other:
        await _send_texts(kafka, topic, "4", "worse", "6", "7")
        batches = [[message.value for message in batch] async for batch in other.batches()]
        assert [value for batch in batches for value in batch] == [4, 6, 7]


async def test_an_unreadable_record_becomes_a_dead_letter(kafka: KafkaHandle) -> None:
    topic, dead = await kafka.topic(), await kafka.topic()
    await _send_texts(kafka, topic, "1", "no number", "3")
    options: dict[str, Any] = {
        "group_id": kafka.group(),
        "value_deserializer": json,
        "on_poison": "dead_letter",
        "dead_letter_topic": dead,
    }
    async with make_consumer(kafka, topic, stop_at="end", **options) as consumer:
        assert [message.value async for message in consumer] == [1, 3]
    async with make_consumer(
        kafka, partitions=partitions(dead, 0), stop_at="end"
    ) as dead_letter_records:
        (dead_letter,) = [record async for record in dead_letter_records]
    reported = dict(dead_letter.headers)
    assert dead_letter.value == b"no number"
    assert reported["dlt.topic"] == topic.encode()
    assert reported["dlt.offset"] == b"1"
    assert b"DeserializationFailed" in (reported["dlt.error.type"] or b"")


async def _send_texts(kafka: KafkaHandle, topic: str, *texts: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for text in texts:
            await producer.send_and_wait(topic, text.encode(), partition=0)


# --- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Producer, AIOKafkaProducer])
async def test_a_transaction_commits_offsets_and_results_atomically(
    kafka: KafkaHandle, kind: Any
) -> None:
    source, sink, group = await kafka.topic(partitions=2), await kafka.topic(), kafka.group()
    await send(kafka, source, range(20), 2)
    options: dict[str, Any] = {"group_id": group, "commit_policy": "manual"}
    failures = 0
    async with kind(bootstrap_servers=kafka.bootstrap_servers, transactional_id=group) as producer:
        async with make_consumer(kafka, source, **options) as consumer:
            seen: list[int] = []
            async with asyncio.timeout(60):
                async for record in consumer:
                    try:
                        async with consumer.transaction(producer):
                            await producer.send(sink, b"%d" % (number(record) * 10))
                            if number(record) in (4, 7) and number(record) not in seen:
                                seen.append(number(record))
                                raise ValueError("the first attempt fails")  # noqa: TRY301
                    except ValueError:
                        failures += 1
                        continue
                    seen.append(number(record))
                    if len(seen) == 15 + failures:
                        break
        async with make_consumer(kafka, source, stop_at="end", **options) as two:
            async for batch in two.batches(max_records=3):
                async with two.transaction(producer):
                    for record in batch:
                        await producer.send(sink, b"%d" % (number(record) * 10))
    assert failures == 2
    read = {"isolation_level": "read_committed", "stop_at": "end"}
    async with make_consumer(kafka, partitions=partitions(sink, 0), **read) as results:
        made = sorted([number(record) async for record in results])
    assert made == [10 * each for each in range(20)]


async def test_a_member_waits_for_offsets_of_a_pending_transaction(
    kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    (tp,) = partitions(topic, 0)
    answers: list[Any] = []
    loaded = KafkaOffsets._loaded

    def received(self: KafkaOffsets, response: Any, requested: Any) -> Any:
        answers.append(response)
        return loaded(self, response, requested)

    monkeypatch.setattr(KafkaOffsets, "_loaded", received)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=group
    ) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({structs.TopicPartition(*tp): 5}, group)
        async with make_consumer(kafka, topic, group_id=group, commit_policy="manual") as consumer:
            await until(lambda: bool(answers))
            await producer.commit_transaction()
            assert await next_of(consumer) == 5


async def test_a_transaction_needs_the_manual_commit_policy(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with make_consumer(kafka, topic, group_id=kafka.group()) as consumer:
        with pytest.raises(ConfigError, match="commit_policy='manual'"):
            consumer.transaction(cast("AIOKafkaProducer", None))


# --- health and events ---------------------------------------------------------------------------


async def test_health_reports_state_lag_and_progress(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(10))
    (tp,) = partitions(topic, 0)
    options = {"group_id": kafka.group(), "stall_timeout_ms": 500}
    async with make_consumer(kafka, topic, **options) as consumer:
        assert consumer.health().state == "rebalancing"
        assert not consumer.health().ready
        await consumer.wait_assigned()
        await until(lambda: consumer.health().lag == {tp: 10})
        await take(consumer, 10)
        await until(lambda: consumer.health().lag == {tp: 0})
        await until(lambda: consumer.health().state == "consuming")
        health = consumer.health()
        assert health.ready
        assert health.last_heartbeat is not None
        assert health.last_fetch is not None
        await until(lambda: consumer.health().last_progress is not None)
        await send(kafka, topic, range(1))
        await until(lambda: consumer.health().state == "handler_bound")  # the record is not read
        assert "is not read" in (consumer.health().reason or "")
    assert consumer.health().state == "closed"
    assert not consumer.health().live


async def test_events_report_rebalances(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    both = frozenset(partitions(topic, 0, 1))
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        events = consumer.events()
        first: Any = await anext(events)
        assert (first.gained, first.revoked, first.lost) == (both, frozenset(), frozenset())
        async with make_consumer(kafka, topic, group_id=group) as two:
            await two.wait_assigned()
            second: Any = await anext(events)
            assert second.revoked == both  # the range assignor revokes all
            assert second.seconds >= 0
    assert [event async for event in events]  # the last revocation, then the end of the stream


def test_contradicting_options_are_refused() -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            Consumer("t", **{"bootstrap_servers": "k:9092", "group_id": "g", **options})

    refused("Did you mean manual", commit_policy="manuel")
    refused("`on_poison` must be one of", on_poison="ignore")
    refused("need each other", on_poison="dead_letter")
    refused("need each other", dead_letter_topic="dead")
    refused("`max_records` must be", max_records=0)
    refused("`stop_at` must be 'end'", stop_at="latest")
    refused("its keys must be TopicPartitions", stop_at={("t", 0): 3})
    refused("must be an offset", stop_at={TopicPartition("t", 0): -1})
    refused("needs a `group_id`", group_id=None, commit_policy="manual")
    refused("needs `group_protocol='zookeeper'`", zookeeper_connect="zk:2181")
    refused("is not a rebalance listener. It needs one of on_partitions_assigned", listener=5)
    refused(r"an OffsetStore needs load\(\) and commit\(\)", offsets=5)

"""A consumer on a real broker."""

import asyncio
import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import pytest

from asyncconsumer import (
    ConfigError,
    Consumer,
    ConsumerRebalanceListener,
    Interceptor,
    Offset,
    Record,
    TopicPartition,
)
from asyncconsumer.errors import (
    DeserializationFailed,
    InvalidTopic,
    ListenerFailed,
    NoBrokerAnswered,
    NoCommittedOffset,
    NotAssigned,
    SubscriptionConflict,
)
from asyncconsumer.serdes import SchemaRegistry
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.registry import FakeRegistry
from tests.support.helpers import produce, until
from tests.support.real_consumer import make_consumer, next_of, partitions, reading, send, take
from tests.support.registry_serializers import framed

# --- groups --------------------------------------------------------------------------------------


async def test_a_new_member_continues_at_the_committed_offsets(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(100), 3)
    async with make_consumer(kafka, topic, group_id=group) as first:
        assert await first.wait_assigned() == frozenset(partitions(topic, 0, 1, 2))
        seen = await take(first, 60)
    async with make_consumer(kafka, topic, group_id=group) as second:
        seen += await take(second, 40)
    assert sorted(seen) == list(range(100))


async def test_rebalances_between_two_members_lose_and_repeat_no_record(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    await send(kafka, topic, range(200), 4)
    async with make_consumer(kafka, topic, group_id=group) as first, reading(first) as by_first:
        await until(lambda: len(by_first) == 200)
        async with (
            make_consumer(kafka, topic, group_id=group) as second,
            reading(second) as by_second,
        ):
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            await send(kafka, topic, range(200, 400), 4)
            await until(lambda: len(by_first) + len(by_second) >= 400)
            assert by_second
        await until(lambda: len(first.assignment) == 4)
        await send(kafka, topic, range(400, 500), 4)
        await until(lambda: len(by_first) + len(by_second) >= 500)
    assert sorted(by_first + by_second) == list(range(500))


async def test_a_revocation_waits_until_the_record_in_flight_is_acknowledged(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(2), 2)
    async with make_consumer(kafka, topic, group_id=group) as first:
        records = aiter(first)

        async def next_value() -> int:
            return int((await anext(records)).value or b"")

        in_flight = await next_value()
        async with make_consumer(kafka, topic, group_id=group) as second:
            await asyncio.sleep(1)  # no condition to wait for: the assignment must not change
            assert len(first.assignment) == 2
            asking = asyncio.get_running_loop().create_task(next_value())
            await until(lambda: len(second.assignment) == 1)
            last = await asking if in_flight in _owned(second) else await next_of(second)
            assert last == 1 - in_flight
            asking.cancel()


def _owned(consumer: Consumer[Any, Any]) -> list[int]:
    return [tp.partition for tp in consumer.assignment]


async def test_a_pattern_reads_later_topics_from_their_beginning(kafka: KafkaHandle) -> None:
    stem = await kafka.topic()
    pattern = re.compile(re.escape(stem) + "(-more)?")
    async with (
        make_consumer(
            kafka, pattern=pattern, group_id=kafka.group(), auto_offset_reset="latest"
        ) as consumer,
        reading(consumer) as values,
    ):
        await consumer.wait_assigned()
        await kafka.admin.create_topic(f"{stem}-more")
        await send(kafka, f"{stem}-more", range(5))
        await until(lambda: values == [0, 1, 2, 3, 4])
        assert {tp.topic for tp in consumer.assignment} == {stem, f"{stem}-more"}


async def test_a_subscription_can_change_while_the_consumer_reads(kafka: KafkaHandle) -> None:
    name, other = await kafka.topic(), await kafka.topic()
    await send(kafka, name, [1])
    await send(kafka, other, [2])
    async with make_consumer(kafka, name, group_id=kafka.group()) as both, reading(both) as values:
        await until(lambda: values == [1])
        await both.subscribe(other)
        await until(lambda: values == [1, 2])
        assert both.assignment == {TopicPartition(other, 0)}


# --- manual assignment ---------------------------------------------------------------------------


async def test_manually_assigned_partitions_need_no_group(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    await send(kafka, topic, range(10), 2)
    async with make_consumer(kafka, partitions=partitions(topic, 1)) as consumer:
        assert await take(consumer, 5) == [1, 3, 5, 7, 9]
        with pytest.raises(ConfigError, match="without a `group_id`"):
            await consumer.commit()
        await consumer.assign(partitions(topic, 0))
        assert await take(consumer, 5) == [0, 2, 4, 6, 8]


async def test_topics_and_manual_partitions_cannot_be_combined(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    with pytest.raises(SubscriptionConflict, match=r"topics \(.*manually assigned.*unsubscribe"):
        make_consumer(kafka, topic, partitions=partitions(topic, 0), group_id="g")
    async with make_consumer(kafka, topic, group_id=kafka.group()) as consumer:
        with pytest.raises(SubscriptionConflict):
            await consumer.assign(partitions(topic, 0))
        await consumer.unsubscribe()
        with pytest.raises(ConfigError, match="nothing is subscribed"):
            aiter(consumer)
        await consumer.assign(partitions(topic, 0))
        assert await consumer.wait_assigned() == {TopicPartition(topic, 0)}


# --- offsets -------------------------------------------------------------------------------------


async def test_seeks_change_the_position_and_the_next_record(kafka: KafkaHandle) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(10))
    async with make_consumer(kafka, topic, group_id=kafka.group()) as consumer:
        await consumer.wait_assigned()
        assert await consumer.position(tp) == 0
        assert await take(consumer, 4) == [0, 1, 2, 3]
        assert await consumer.position(tp) == 4
        consumer.seek(tp, 8)
        assert await consumer.position(tp) == 8
        assert await take(consumer, 2) == [8, 9]
        consumer.seek_to_beginning()
        assert await take(consumer, 1) == [0]
        consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 10
        with pytest.raises(NotAssigned, match="no-such"):
            consumer.seek(TopicPartition("no-such", 0), 1)
        with pytest.raises(ConfigError, match="seek_to_beginning"):
            consumer.seek(tp, -2)


async def test_a_commit_after_a_seek_back_stores_the_lower_offset(kafka: KafkaHandle) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(10))
    async with make_consumer(
        kafka, topic, group_id=kafka.group(), enable_auto_commit=False
    ) as consumer:
        await take(consumer, 9)
        assert await consumer.commit() == {tp: 9}
        consumer.seek(tp, 3)
        assert await consumer.commit() == {tp: 3}
        assert await consumer.committed() == {tp: 3}


async def test_committed_offsets_have_metadata_and_the_leader_epoch(
    kafka: KafkaHandle,
) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(10))
    async with make_consumer(
        kafka, topic, group_id=kafka.group(), enable_auto_commit=False
    ) as consumer:
        await take(consumer, 5)
        await consumer.commit()
        offset = (await consumer.committed())[tp]
        assert isinstance(offset, Offset)
        assert (offset, offset.leader_epoch) == (5, 0)
        await consumer.commit({tp: Offset(5, metadata="half of it")})
        offset = (await consumer.committed([tp]))[tp]
        assert isinstance(offset, Offset)
        assert (offset, offset.metadata) == (5, "half of it")


async def test_beginning_end_and_time_offsets_are_looked_up(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    both = partitions(topic, 0, 1)
    before = datetime.now(UTC)
    await send(kafka, topic, range(10), 2)
    async with make_consumer(kafka, partitions=both) as consumer:
        assert await consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
        assert await consumer.end_offsets(both) == dict.fromkeys(both, 5)
        result = await consumer.offsets_for_times({both[0]: before, both[1]: 2**42})
        assert result[both[1]] is None
        assert (first := result[both[0]]) is not None
        assert first.offset == 0
        iterator = aiter(consumer)
        records = [await anext(iterator) for _ in range(10)]
        assert first.timestamp in {record.timestamp for record in records if record.offset == 0}


async def test_a_missing_committed_offset_without_a_reset_policy_is_an_error(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    async with make_consumer(
        kafka, topic, group_id=kafka.group(), auto_offset_reset="none"
    ) as consumer:
        with pytest.raises(NoCommittedOffset, match="earliest"):
            await take(consumer, 1)


async def test_a_pause_is_effective_at_once_and_survives_rebalances(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(20), 2)
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        first = await next_of(consumer)
        held, other = partitions(topic, first % 2, 1 - first % 2)
        consumer.pause(held)
        values = [await next_of(consumer) for _ in range(10)]
        assert {value % 2 for value in values} == {other.partition}
        async with make_consumer(kafka, topic, group_id=group) as second:
            reading_on = asyncio.get_running_loop().create_task(next_of(consumer))
            await until(lambda: len(second.assignment) == 1)
            if held in second.assignment:
                assert first not in await take(second, 5)
        await until(lambda: len(consumer.assignment) == 2)
        assert consumer.paused == {held}
        await send(kafka, topic, range(20, 24), 2)
        assert await reading_on % 2 == other.partition
        consumer.resume(held)
        async with asyncio.timeout(30):
            while await next_of(consumer) % 2 == other.partition:
                pass


# --- listeners, interceptors and deserializers ---------------------------------------------------


class RecordingListener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.log: list[tuple[str, set[int]]] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.log.append(("assigned", {tp.partition for tp in partitions}))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.log.append(("revoked", {tp.partition for tp in partitions}))


async def test_a_listener_is_called_for_assigned_and_revoked_partitions(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    log = RecordingListener()
    async with make_consumer(kafka, topic, group_id=group, listener=log, **strategy) as consumer:
        await consumer.wait_assigned()
        async with make_consumer(kafka, topic, group_id=group, **strategy) as second:
            await until(lambda: len(second.assignment) == 1)
            (gone,) = (tp.partition for tp in second.assignment)
    stays = 1 - gone
    assert log.log[:2] == [("assigned", {0, 1}), ("revoked", {gone})]
    assert log.log[-1][0] == "revoked"
    assert stays in log.log[-1][1]


async def test_a_listener_can_seek_the_assigned_partitions(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(10))

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            for tp in partitions:
                consumer.seek(tp, 7)

    async with make_consumer(kafka, topic, group_id=kafka.group(), listener=Seeking()) as consumer:
        assert await take(consumer, 3) == [7, 8, 9]


async def test_a_hanging_listener_is_cancelled_and_a_failing_one_is_raised(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(3))

    class Hanging(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.Event().wait()

    class Failing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise OSError("disk full")

    options = {"group_id": kafka.group(), "listener_timeout_ms": 200}
    async with make_consumer(kafka, topic, listener=Hanging(), **options) as consumer:
        assert await take(consumer, 3) == [0, 1, 2]
    assert "on_partitions_assigned took more than 0.2 s and was cancelled" in caplog.text
    async with make_consumer(kafka, topic, listener=Failing(), **options) as consumer:
        with pytest.raises(ListenerFailed, match="disk full"):
            await take(consumer, 1)


async def test_interceptors_see_records_and_commits(kafka: KafkaHandle) -> None:
    topic, (tp,) = (topic := await kafka.topic()), partitions(topic, 0)
    await send(kafka, topic, range(3))
    seen: list[object] = []

    class Counting(Interceptor):
        def on_consume(self, record: Record) -> Record:
            seen.append(record.offset)
            return record

        def on_commit(self, offsets: Any) -> None:
            seen.append(offsets)
            raise RuntimeError("is ignored")

    options = {"group_id": kafka.group(), "enable_auto_commit": False}
    async with make_consumer(kafka, topic, interceptors=[Counting()], **options) as consumer:
        assert await take(consumer, 3) == [0, 1, 2]
        await consumer.commit()
    assert seen == [0, 1, 2, {tp: 3}]


async def test_a_deserialization_error_names_the_offset_and_has_the_record(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [5])
    options: dict[str, Any] = {"group_id": kafka.group(), "auto_offset_reset": "earliest"}
    servers = kafka.bootstrap_servers
    async with Consumer(
        topic, bootstrap_servers=servers, value_deserializer=json.loads, **options
    ) as consumer:
        message = await anext(aiter(consumer))
        assert (message.value, message.record.value, message.headers) == (5, b"5", ())

    def broken(data: bytes) -> int:
        raise ValueError("no")

    options["group_id"] = kafka.group()
    async with Consumer(
        topic, bootstrap_servers=servers, value_deserializer=broken, **options
    ) as other:
        with pytest.raises(DeserializationFailed, match=rf"value of {topic}\[0\]@0") as excinfo:
            await anext(aiter(other))
        assert excinfo.value.record.value == b"5"  # type: ignore[attr-defined] # a record


async def test_a_record_is_redelivered_after_the_schema_registry_failed(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    async with FakeRegistry() as fake:
        schema = fake.register("s", '"string"')
        values = [framed(schema, b"\2a"), framed(schema, b"\2b")]
        await produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)
        registry = SchemaRegistry(fake.url, patience_ms=0)
        consumer = Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            value_deserializer=registry.avro(str),
            group_id=kafka.group(),
            auto_offset_reset="earliest",
        )
        async with consumer:
            fake.fail((503, {}))
            with pytest.raises(DeserializationFailed, match="schema registry") as excinfo:
                await anext(aiter(consumer))
            assert excinfo.value.retriable
            assert await consumer.commit() in ({}, {TopicPartition(topic, 0): 0})
            messages = aiter(consumer)
            assert [(await anext(messages)).value for _ in "ab"] == ["a", "b"]
            assert await consumer.commit() == {TopicPartition(topic, 0): 2}


async def test_a_second_task_cannot_read_a_stream(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with make_consumer(kafka, partitions=partitions(topic, 0)) as consumer:
        await consumer.wait_assigned()
        waiting = asyncio.get_running_loop().create_task(next_of(consumer))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already waits for the next"):
            await next_of(consumer)
        waiting.cancel()


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group_id": ""}, "`group_id` must be a name"),
        ({"group_id": "g", "max_poll_interval_ms": 0}, "`max_poll_interval_ms` must be a whole"),
        ({"group_idd": "g"}, "Did you mean `group_id`"),
        ({"group_id": "g", "retry_backoff_ms": 100}, "refresh_leader_backoff_ms"),
        ({"group_id": "g", "ssl_cafile": "a.pem"}, "does not use TLS"),
        ({"topics": ["t"]}, "Pass topics as arguments"),
        ({"group_id": "g", "group_protocol": "clasic"}, "Did you mean classic"),
        ({"group_id": "g", "partition_assignment_strategy": "rang"}, "Did you mean range"),
        ({"group_id": "g", "session_timeout_ms": 1000}, "at most a third"),
        (
            {"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 45_000},
            r"group\.consumer\.session\.timeout\.ms",
        ),
        (
            {"group_id": "g", "group_protocol": "consumer", "heartbeat_interval_ms": 1_000},
            r"group\.consumer\.heartbeat\.interval\.ms",
        ),
        (
            {
                "group_id": "g",
                "group_protocol": "consumer",
                "partition_assignment_strategy": "range",
            },
            "group_remote_assignor",
        ),
        ({"group_instance_id": "a"}, "`group_id` is not"),
    ],
)
def test_wrong_options_are_reported_by_the_constructor(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        Consumer("topic", bootstrap_servers="k:9092", **options)


async def test_unreachable_bootstrap_servers_are_reported_by_the_block() -> None:
    consumer: Consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(NoBrokerAnswered, match=r"127\.0\.0\.1:1"):
        async with consumer:
            pass


async def test_an_invalid_topic_is_an_error_and_a_missing_one_is_waited_for(
    kafka: KafkaHandle,
) -> None:
    with pytest.raises(InvalidTopic, match="no such topic!"):
        async with make_consumer(kafka, "no such topic!", group_id=kafka.group()):
            pass
    to_come = f"{await kafka.topic()}-to-come"
    async with (
        make_consumer(kafka, to_come, group_id=kafka.group()) as consumer,
        reading(consumer) as values,
    ):
        assert await consumer.wait_assigned() == frozenset()
        await kafka.admin.create_topic(to_come)
        await send(kafka, to_come, range(3))
        await until(lambda: values == [0, 1, 2])

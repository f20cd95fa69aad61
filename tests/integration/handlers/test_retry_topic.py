"""Retry topics on a real broker: a waiting record delays only its key."""

from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import ConsumerApp, Context, Record, Retry, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_apps import make_app, offsets, read


class Sales:
    """A topic with a retry topic, and apps whose handler fails for the values in `bad`."""

    def __init__(self, kafka: KafkaHandle, topic: str, waiting: str, dead: str) -> None:
        self.kafka, self.topic, self.waiting, self.dead = kafka, topic, waiting, dead
        self.group = kafka.group()
        self.seen: list[bytes | None] = []  # finished
        self.failed: list[bytes | None] = []
        self.records: list[Record] = []
        self.bad: set[bytes] = set()

    def app(self, attempts: int = 100, delay_ms: int = 100) -> ConsumerApp:
        app = make_app(self.kafka, group_id=self.group)
        retry = Retry(attempts, backoff_ms=10, topic=self.waiting, delay_ms=delay_ms)

        @app.handler(self.topic, retry=retry, dead_letter_topic=self.dead)
        async def sell(value: bytes, record: Record) -> None:
            self.records.append(record)
            if value in self.bad:
                self.failed.append(value)
                raise ValueError(value)
            self.seen.append(value)

        return app

    async def send(self, *values: bytes) -> None:
        """Send values with their first character as key."""
        for value in values:
            await send_keyed(self.kafka, self.topic, value)

    async def committed_is(self, offset: int) -> bool:
        result = await offsets(self.kafka, self.group)
        return result.get(TopicPartition(self.topic, 0)) == offset


async def send_keyed(kafka: KafkaHandle, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, value, key=value[:1], headers=[("h", b"1")])


@pytest.fixture
async def sales(kafka: KafkaHandle) -> Sales:
    return Sales(kafka, await kafka.topic(), await kafka.topic(), await kafka.topic())


async def test_a_record_in_the_retry_topic_is_processed_by_the_next_app(sales: Sales) -> None:
    """Check that a record that failed again and waits in the retry topic is not lost."""
    sales.bad = {b"a1"}
    await sales.send(b"a1", b"b1", b"a2")
    app = make_app(sales.kafka, group_id=sales.group)
    retry = Retry(100, backoff_ms=600_000, max_backoff_ms=600_000, topic=sales.waiting, delay_ms=1)

    @app.handler(sales.topic, retry=retry)
    async def sell(value: bytes) -> None:
        if value in sales.bad:
            sales.failed.append(value)
            raise ValueError("no")
        sales.seen.append(value)

    async with app:
        await until(lambda: len(sales.failed) == 2)
        await until(lambda: sales.committed_is(3))
        drained = await app.drain()
        assert (bool(drained), drained.cut_short) == (True, {})
    sales.bad.clear()
    async with sales.app():
        await until(lambda: sales.seen == [b"b1", b"a1", b"a2"])


async def test_a_waiting_record_delays_only_records_of_its_key(sales: Sales) -> None:
    sales.bad = {b"a1"}
    await sales.send(b"a1", b"b1", b"a2", b"b2", b"a3")
    async with sales.app():
        await until(lambda: sales.seen == [b"b1", b"b2"])
        await until(lambda: sales.committed_is(5))
        await until(lambda: len(sales.failed) > 2)
        await sales.send(b"a4", b"b3")
        await until(lambda: sales.seen == [b"b1", b"b2", b"b3"])
        sales.bad.clear()
        await until(lambda: len(sales.seen) == 7)
        await sales.send(b"a5")
        await until(lambda: len(sales.seen) == 8)
    assert [value for value in sales.seen if value and value[:1] == b"a"] == [
        b"a1", b"a2", b"a3", b"a4", b"a5",
    ]  # fmt: skip
    retained = await offsets(sales.kafka, sales.group)
    assert retained == {TopicPartition(sales.topic, 0): 8, TopicPartition(sales.waiting, 0): 4}


async def test_a_retried_record_has_its_original_offset_and_headers(sales: Sales) -> None:
    sales.bad = {b"a1"}
    await sales.send(b"b1", b"a1")
    async with sales.app():
        await until(lambda: len(sales.failed) > 1)
    for record in sales.records[1:]:
        assert (record.topic, record.partition, record.offset) == (sales.topic, 0, 1)
        assert (record.key, record.value, record.headers) == (b"a", b"a1", (("h", b"1"),))


async def test_a_record_becomes_a_dead_letter_after_the_last_attempt(
    sales: Sales,
) -> None:
    sales.bad = {b"a1"}
    await sales.send(b"a1", b"a2")
    async with sales.app(attempts=3, delay_ms=50):
        (dead_letter,) = await read(sales.kafka, sales.dead, 1)
        await until(lambda: sales.seen == [b"a2"])
    reported = {name: text.decode() for name, text in dead_letter.headers}
    assert (reported["dlt.topic"], reported["dlt.offset"]) == (sales.topic, "0")
    assert reported["dlt.attempts"] == "3"
    assert len(sales.failed) == 3


async def test_the_next_member_keeps_the_order_of_keys_with_waiting_records(sales: Sales) -> None:
    sales.bad = {b"a1"}
    await sales.send(b"a1", b"b1")
    async with sales.app(delay_ms=60_000):
        await until(lambda: sales.seen == [b"b1"] and len(sales.failed) == 1)
        await until(lambda: sales.committed_is(2))
    await sales.send(b"a2", b"b2")
    sales.bad.clear()
    async with sales.app(delay_ms=60_000):
        await until(lambda: sales.seen == [b"b1", b"b2"])
        await until(lambda: sales.committed_is(4))
        assert b"a2" not in sales.seen  # waits for the first record of its key
    async with sales.app(delay_ms=0):
        await until(lambda: len(sales.seen) == 4)
    assert sales.seen == [b"b1", b"b2", b"a1", b"a2"]


async def test_a_foreign_record_in_the_retry_topic_becomes_a_dead_letter(sales: Sales) -> None:
    await send_keyed(sales.kafka, sales.waiting, b"a1")
    await sales.send(b"a2")
    async with sales.app():
        (dead_letter,) = await read(sales.kafka, sales.dead, 1)
        await until(lambda: sales.seen == [b"a2"])
    assert dead_letter.value == b"a1"


# --- several partitions, and members that join and leave -----------------------------------------

KEYS, OF_EACH = 12, 8
GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "KIP-848": {"group_protocol": "consumer"},
}


class KeyedWork:
    """The work of the apps of one group on records in order of key."""

    def __init__(self, kafka: KafkaHandle, topic: str, retry: Retry, how: dict[str, Any]) -> None:
        self.kafka, self.topic, self.retry, self.how = kafka, topic, retry, how
        self.group = kafka.group()
        self.failed: Counter[tuple[str, int]] = Counter()
        self.done: dict[str, list[int]] = {f"key{n}": [] for n in range(KEYS)}
        self.too_early: list[tuple[str, int]] = []

    def app(self) -> ConsumerApp:
        app = make_app(self.kafka, group_id=self.group, **self.how)

        @app.handler(self.topic, retry=self.retry)
        async def handle(record: Record) -> None:
            key, value = (record.key or b"").decode(), int(record.value or b"")
            if set(range(value)) - set(self.done[key]):
                self.too_early.append((key, value))
            if value % 4 == 1 and self.failed[key, value] < 2:
                self.failed[key, value] += 1
                raise ValueError((key, value))
            self.done[key].append(value)

        return app

    async def send(self, numbers: range) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for number in numbers:
                for key in self.done:
                    await producer.send(self.topic, b"%d" % number, key=key.encode())

    def is_all_done(self) -> bool:
        return all(set(each) == set(range(OF_EACH)) for each in self.done.values())


@pytest.mark.parametrize(
    ("how", "delays_ms"),
    [*((how, [300]) for how in GROUPS.values()), (GROUPS["cooperative"], [200, 500])],
    ids=[*GROUPS, "two retry topics"],
)
async def test_keys_keep_their_order_during_rebalances_with_waiting_records(
    kafka: KafkaHandle, how: dict[str, Any], delays_ms: list[int]
) -> None:
    topic = await kafka.topic(partitions=3)
    waiting = {await kafka.topic(partitions=3): delay_ms for delay_ms in delays_ms}
    work = KeyedWork(kafka, topic, Retry(10, backoff_ms=10, topic=waiting), how)
    await work.send(range(2))
    async with work.app():
        await until(lambda: len(work.failed) == KEYS)  # all wait
        async with work.app() as two:
            await work.send(range(2, 5))
            await until(lambda: bool(two.consumer.assignment))
            await work.send(range(5, 6))
            await until(lambda: any(work.failed[key, 5] for key in work.done))
        await work.send(range(6, OF_EACH))
        await until(work.is_all_done)
    assert work.too_early == []
    assert sum(work.failed.values()) >= KEYS * 2 * 2


async def test_context_attempt_counts_attempts_of_both_topics(sales: Sales) -> None:
    seen: list[tuple[str, bytes | None, int]] = []
    await sales.send(b"a1", b"b1", b"a2")
    app = make_app(sales.kafka, group_id=sales.group)

    @app.handler(sales.topic, retry=Retry(3, backoff_ms=10, topic=sales.waiting, delay_ms=10))
    async def sell(context: Context) -> None:
        record = context.record
        seen.append((record.topic, record.value, context.attempt))
        if record.value == b"a1" and context.attempt < 3:
            raise ValueError("no")

    async with app:
        await until(lambda: len(seen) == 5)
    expected = {(b"a1", 1), (b"a1", 2), (b"a1", 3), (b"a2", 1), (b"b1", 1)}
    assert {(value, attempt) for _, value, attempt in seen} == expected
    assert {topic for topic, _, _ in seen} == {sales.topic}

"""Exactly-once apps on a fake cluster: outputs, offsets and failures in transactions."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from asyncconsumer import Batch, ConsumerApp, Outgoing, Retry, TopicPartition
from asyncconsumer.errors import ConfigError, HandlerFailed
from asyncconsumer.handlers.commit_metadata import LONGEST, OffsetWithRanges, encode
from asyncconsumer.handlers.outputs import Outputs, plan_commit
from asyncconsumer.handlers.partition_work import PartitionWork
from asyncconsumer.handlers.priorities import Level
from asyncconsumer.records.decoding import Record
from asyncconsumer.testing.kafka import FakeKafka

pytestmark = pytest.mark.fast


def make_app(**options: Any) -> ConsumerApp:
    return ConsumerApp(bootstrap_servers="kafka:9092", group_id="g", exactly_once=True, **options)


def committed(kafka: FakeKafka, topic: str) -> list[bytes | None]:
    """Return the values that a read_committed consumer reads."""
    partitions = range(kafka.partition_count(topic))
    return sorted(
        (
            record.value
            for number in partitions
            for record in kafka.cluster.committed_records(TopicPartition(topic, number))
        ),
        key=lambda value: value or b"",
    )


async def test_results_and_offsets_are_committed_together() -> None:
    app = make_app()

    @app.handler("orders", publish="billed")
    async def bill(value: bytes) -> list[Any]:
        await asyncio.sleep(0)
        return [value + b"!", Outgoing("audit", value=value, key=b"k", headers={"h": b"1"})]

    async with app.testing() as kafka:
        for n in range(20):
            await kafka.send("orders", b"%02d" % n, key=b"%d" % (n % 5))
        await kafka.settled()
        assert committed(kafka, "billed") == [b"%02d!" % n for n in range(20)]
        assert committed(kafka, "audit") == [b"%02d" % n for n in range(20)]
        assert not kafka.cluster.transactions.is_pending("g", TopicPartition("orders", 0))
        [name] = kafka.cluster.transactions.ids
        assert name.startswith("g-")


async def test_a_failed_attempt_leaves_no_output() -> None:
    app, attempts = make_app(), Counter[bytes]()

    @app.handler("orders", publish="billed", retry=Retry(3, delay_ms=1), on_error="skip")
    async def bill(value: bytes) -> Any:
        attempts[value] += 1
        yield value
        if value == b"1" or (value == b"2" and attempts[value] < 3):
            raise ValueError
        yield value + b"!"

    async with app.testing() as kafka:
        for n in range(4):
            await kafka.send("orders", b"%d" % n)
        await kafka.settled()
        expected = [b"0", b"0!", b"2", b"2!", b"3", b"3!"]
        assert committed(kafka, "billed") == expected
        assert attempts == {b"0": 1, b"1": 3, b"2": 3, b"3": 1}


async def test_dead_letters_belong_to_the_transaction() -> None:
    app = make_app()

    @app.handler("orders", publish="billed", dead_letter_topic="dead")
    async def bill(value: bytes) -> bytes:
        if value == b"1":
            raise ValueError("no")
        return value

    async with app.testing() as kafka:
        for n in range(3):
            await kafka.send("orders", b"%d" % n)
        await kafka.settled()
        assert committed(kafka, "billed") == [b"0", b"2"]
        assert committed(kafka, "dead") == [b"1"]
        [dead] = kafka.published("dead")
        assert dict(dead.headers)["dlt.error.message"] == b"no"


async def test_each_result_that_is_too_large_is_dead_lettered() -> None:
    app = make_app()

    @app.handler("orders", publish="billed", dead_letter_topic="dead")
    async def bill(value: bytes) -> list[bytes]:
        return [value, bytes(6000) if value in (b"2", b"5") else b"more"]

    async with app.testing() as kafka:
        kafka.cluster.producing.max_message_bytes = 5000
        for n in range(8):
            await kafka.send("orders", b"%d" % n, key=b"%d" % n)
        await kafka.settled()
        assert (
            committed(kafka, "billed") == [*(b"%d" % n for n in (0, 1, 3, 4, 6, 7))] + [b"more"] * 6
        )
        assert committed(kafka, "dead") == [b"2", b"5"]
        await kafka.send("orders", b"8")
        await kafka.settled()
        assert committed(kafka, "billed")[6:7] == [b"8"]


@pytest.mark.parametrize("policy", ["skip", "stop", "dead"])
async def test_a_result_that_is_too_large_follows_the_failure_policy(policy: str) -> None:
    app, calls = make_app(), Counter[bytes]()
    options: dict[str, Any] = (
        {"dead_letter_topic": "dead"} if policy == "dead" else {"on_error": policy}
    )

    @app.handler("orders", publish="billed", **options)
    async def bill(value: bytes) -> bytes:
        calls[value] += 1
        return bytes(6000) if value == b"1" else value

    async def run() -> None:
        async with app.testing() as kafka:
            kafka.cluster.producing.max_message_bytes = 5000
            for n in range(3):
                await kafka.send("orders", b"%d" % n)
            await kafka.settled()
            assert committed(kafka, "billed") == [b"0", b"2"]
            assert policy == "skip" or committed(kafka, "dead") == [b"1"]
            assert calls.total() == 3

    if policy == "stop":
        with pytest.raises(HandlerFailed):
            await run()
    else:
        await run()


async def test_batches_and_plain_functions_are_committed_completely() -> None:
    app = make_app()

    @app.handler("orders", publish="billed", batch=Batch(5, max_wait_ms=10), ordering="none")
    def bill(values: list[bytes]) -> list[bytes]:
        return [value + b"!" for value in values]

    async with app.testing() as kafka:
        for n in range(23):
            await kafka.send("orders", b"%02d" % n)
        await kafka.settled()
        assert committed(kafka, "billed") == [b"%02d!" % n for n in range(23)]


WORK = PartitionWork(TopicPartition("t", 0), 0, None, Level(0, 1, 1))


def outputs_of(*items: list[int]) -> dict[int, Outputs]:
    result = {}
    for offsets in items:
        records = [Record("t", 0, offset, 0, key=None, value=None) for offset in offsets]
        item = records if len(records) > 1 else records[0]
        outputs = Outputs(WORK, item, lambda *_: None)
        outputs.add("out", None, b"%d" % offsets[0])
        result[offsets[0]] = outputs
    return result


def planned(base: int, ranges: list[tuple[int, int]], *items: list[int]) -> tuple[int, list[int]]:
    offset = OffsetWithRanges(base, metadata=encode(base, ranges))
    plan = plan_commit(offset, outputs_of(*items), LONGEST)
    return int(plan.offset), [outputs.offsets[0] for outputs in plan.outputs]


def test_a_commit_has_the_outputs_of_its_processed_records() -> None:
    assert planned(5, [(7, 9), (12, 13)], [3], [5], [6], [7], [8], [9], [12]) == (5, [3, 7, 8, 12])
    assert planned(5, [], [5]) == (5, [])


def test_a_batch_is_committed_completely_or_not_at_all() -> None:
    assert planned(5, [(7, 9)], [3, 4], [7, 8]) == (5, [3, 7])
    assert planned(5, [(7, 9), (11, 12)], [3], [8, 9], [11]) == (5, [3])
    assert planned(5, [(7, 9)], [2], [3, 9], [7]) == (3, [2])


def test_records_that_do_not_fit_into_the_metadata_wait() -> None:
    offsets = [n * n * 3 + 2 for n in range(1, 3_000)]
    ranges = [(offset, offset + 1) for offset in offsets]
    offset = OffsetWithRanges(0, metadata=encode(0, ranges))
    outputs = outputs_of(*([each] for each in offsets))
    few = plan_commit(offset, outputs, 200).outputs
    many = plan_commit(offset, outputs, LONGEST).outputs
    assert 10 < len(few) < len(many) < len(offsets)
    assert [each.offsets[0] for each in many] == offsets[: len(many)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"offsets": object()}, "offsets"),
    ({"auto_commit_interval_ms": 1}, "transaction_interval_ms"),
    ({"group_protocol": "zookeeper"}, "zookeeper"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_do_not_work_in_transactions_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_app(**options)


async def test_a_retry_topic_is_refused() -> None:
    app = make_app()

    @app.handler("orders", retry=Retry(topic="retry"))
    async def bill(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match="a retry topic does not work with `exactly_once`"):
        async with app.testing():
            pass


def test_each_worker_of_an_exactly_once_app_has_its_transactional_id() -> None:
    app = ConsumerApp(
        bootstrap_servers="kafka:9092", group_id="g", exactly_once=True, transactional_id="x"
    )
    app.set_worker_number(2)
    app.enable_topic_creation()
    assert app._settings.transactional_id == "x-2"
    assert app._settings.create_topics


def test_a_transactional_id_needs_exactly_once() -> None:
    with pytest.raises(ConfigError, match="exactly_once=True"):
        ConsumerApp(bootstrap_servers="kafka:9092", group_id="g", transactional_id="x")


async def test_a_seek_is_refused() -> None:
    app = make_app()

    @app.handler("orders")
    async def bill(value: bytes) -> None: ...

    async with app.testing():
        await app.caught_up()
        with pytest.raises(ConfigError, match="cannot seek"):
            app.consumer.seek(TopicPartition("orders", 0), 0)

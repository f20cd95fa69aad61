"""Priorities of the topics of one handler: on virtual time, without a broker."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from asyncconsumer import ConfigError, ConsumerApp, Record, Router, TopicPartition
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.priorities import Levels
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import Bench, open_bench, record, settle, submit
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast

LOW, URGENT = TopicPartition("t", 0), TopicPartition("urgent", 0)
FIRST_URGENT = 10_000  # offsets of urgent records start here, to distinguish them in `begun`


def low(bench: Bench, count: int, keys: int = 1_000) -> None:
    work = bench.queue.open(LOW, 0, None)
    submit(bench.queue, work, [record(n, b"%d" % (n % keys), LOW) for n in range(count)])


def urgent(bench: Bench, count: int) -> None:
    numbers = range(FIRST_URGENT, FIRST_URGENT + count)
    work = bench.queue.open(URGENT, FIRST_URGENT, None)
    submit(bench.queue, work, [record(n, b"%d" % n, URGENT) for n in numbers])


def kinds(bench: Bench, start: int) -> str:
    """Return one character for each call from `start` on: U for urgent, and l for low."""
    return "".join("U" if offset >= FIRST_URGENT else "l" for offset in bench.started[start:])


async def finish_all(bench: Bench) -> None:
    while bench.pending:
        await bench.finish(*bench.pending)


# --- which record is next ------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ["key", "none", "partition"])
@simulated(seeds=range(3))
async def test_urgent_records_overtake_a_backlog(ordering: str) -> None:
    async with open_bench(ordering=ordering, concurrency=1, priorities={"urgent": 10}) as bench:
        low(bench, 100)
        await settle()
        urgent(bench, 30)
        await finish_all(bench)
    assert kinds(bench, 1)[:36].count("U") == 30
    assert (
        bench.started.index(FIRST_URGENT) <= 17
    )  # earlier calls were started before the urgent records arrived


@simulated(seeds=range(3))
async def test_urgent_records_overtake_records_that_waited_for_their_key() -> None:
    """Each processed record makes the next one of its key ready."""
    async with open_bench(concurrency=2, priorities={"urgent": 10}) as bench:
        low(bench, 200, keys=4)
        await settle()
        await bench.finish(*bench.pending)
        before = len(bench.started)
        urgent(bench, 20)
        await finish_all(bench)
    assert kinds(bench, before)[:24].count("U") == 20
    by_key = [[n for n in bench.started if n < FIRST_URGENT and n % 4 == key] for key in range(4)]
    assert all(numbers == sorted(numbers) for numbers in by_key)


@simulated(seeds=range(3))
async def test_urgent_batches_overtake_others() -> None:
    options = {"batch": Batch(10, max_wait_ms=10), "ordering": "none", "concurrency": 1}
    async with open_bench(priorities={"urgent": 1}, max_in_flight=2_000, **options) as bench:
        low(bench, 500)
        await settle()
        urgent(bench, 50)
        await settle()
        await finish_all(bench)
    assert kinds(bench, 1)[:5] == "UUUUU"


@simulated(seeds=range(3))
async def test_lower_priorities_get_a_tenth_of_the_calls() -> None:
    async with open_bench(ordering="none", concurrency=1, priorities={"urgent": 10}) as bench:
        urgent(bench, 400)
        low(bench, 100)
        await settle()
        while len(bench.started) < 220:
            await bench.finish(*bench.pending)
    assert kinds(bench, 20).count("l") == 20


@simulated(seeds=range(3))
async def test_lower_priorities_get_a_share_of_handlers_that_never_wait() -> None:
    """Each choice is a run of up to 256 records."""
    begun: list[str] = []
    async with cluster_of() as cluster:
        cluster.add_topic("urgent")
        app = make_app(cluster)

        @app.handler("t", "urgent", priorities={"urgent": 1}, concurrency=1)
        async def handle(record: Record) -> None:
            begun.append(record.topic)

        cluster.append("t", 0, 20_000)
        cluster.append("urgent", 0, 20_000)
        async with app:
            await until(lambda: len(begun) >= 12_000)
    calls = Counter(begun[2_000:12_000])
    assert calls["urgent"] > 4 * calls["t"] > 0


def test_each_priority_leaves_a_tenth_to_lower_priorities() -> None:
    levels = Levels(1, 1, {})
    assert Counter(levels.choose({0, 5, -3}) for _ in range(1000)) == {5: 900, 0: 90, -3: 10}
    assert [levels.choose({priority}) for priority in (0, 7)] == [0, 7]


# --- room, rebalances, commits -------------------------------------------------------------------


@simulated(seeds=range(3))
async def test_lower_priorities_take_no_room_from_higher_ones() -> None:
    async with open_bench(
        ordering="none", concurrency=4, max_in_flight=8, priorities={"urgent": 1}
    ) as bench:
        low(bench, 8)
        await settle()
        work = bench.queue.open(URGENT, 0, None)
        assert not bench.queue.has_room(bench.queue.partitions[LOW])
        assert bench.queue.room(work)[0] == 4
        assert bench.queue.load.count == 8
        await finish_all(bench)
        assert bench.queue.load.count == 0


@simulated(seeds=range(3))
async def test_a_held_partition_does_not_delay_lower_priorities() -> None:
    async with open_bench(ordering="none", concurrency=1, priorities={"urgent": 1}) as bench:
        low(bench, 5)
        urgent(bench, 5)
        work = bench.queue.partitions[URGENT]
        bench.queue.hold(work)
        await settle()
        await finish_all(bench)
        assert set(kinds(bench, 0)) == {"l"}
        bench.queue.release(work)
        await settle()
        await finish_all(bench)
        assert work.ledger.committable() == FIRST_URGENT + 5


@simulated(seeds=range(10))
async def test_all_records_are_processed_in_order_and_committed() -> None:
    """A second member joins and leaves meanwhile."""
    seen: dict[TopicPartition, list[int]] = {}
    topics = {"t": 300, "urgent": 300, "bulk": 300}
    async with cluster_of(partitions=2) as cluster:
        for topic in ("urgent", "bulk"):
            cluster.add_topic(topic, 2)
        for topic, count in topics.items():
            for number in range(2):
                cluster.append(topic, number, count)

        def new_app() -> ConsumerApp:
            app = make_app(cluster, shutdown_grace_ms=100)

            @app.handler(
                *topics,
                priorities={"urgent": 10, "bulk": -1},
                ordering="partition",
                concurrency=5,
            )
            async def handle(record: Record) -> None:
                await asyncio.sleep(0.01)
                tp = TopicPartition(record.topic, record.partition)
                seen.setdefault(tp, []).append(record.offset)

            return app

        async with new_app():
            await until(lambda: sum(map(len, seen.values())) > 300)
            async with new_app():
                await until(lambda: sum(map(len, seen.values())) > 900)
            await until(lambda: sum(len({*each}) for each in seen.values()) == 1_800)
        offsets = cluster.storage.offsets["g"]
    assert {tp: row["offset"] for tp, row in offsets.items()} == {
        TopicPartition(topic, number): 300 for topic in topics for number in range(2)
    }
    for offsets_seen in seen.values():
        first = list(dict.fromkeys(offsets_seen))  # a record may be repeated after a rebalance
        assert first == sorted(first)


# --- declarations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "priorities", "message"),
    [
        (["a", "b"], {"c": 1}, "has a priority for 'c', but does not read it: remove"),
        (["a"], {"a": 1}, "`priorities` are for a handler of several topics"),
        (["a", "b"], {"a": "high"}, r"`priorities\['a'\]` must be a whole number"),
        (["a", "b"], ["a"], "`priorities` must map topics to numbers"),
    ],
)
def test_invalid_priorities_are_refused(topics: list[str], priorities: Any, message: str) -> None:
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=message):
        Router().handler(*topics, priorities=priorities)(handle)


def test_a_prefix_applies_to_the_topics_of_priorities() -> None:
    router = Router(prefix="eu.")

    @router.handler("a", "b", priorities={"a": 1})
    async def handle(value: bytes) -> None: ...

    [handler] = router.close()
    assert handler.handling.priorities == {"eu.a": 1}

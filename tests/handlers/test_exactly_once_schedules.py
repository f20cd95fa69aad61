"""Exactly-once apps on a fake Kafka, with faults of members, brokers and transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Record, TopicPartition
from asyncconsumer.errors import ConsumerError, ProducerFenced
from asyncconsumer.handlers.exactly_once import TransactionalOffsets
from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.protocol.transactions import TXN_OFFSET_COMMIT
from asyncconsumer.testing.virtual_time import simulated
from tests.support.schedules import Bug, must_find, play
from tests.support.worlds.exactly_once import Process, run_schedule
from tests.support.worlds.handlers import cluster_of, make_app, until

pytestmark = pytest.mark.fast
A = TopicPartition("t", 0)


def test_each_result_is_written_once_and_in_order() -> None:
    for seed in range(6):
        play(run_schedule, seed)


def _drops_the_outputs_of_a_failed_transaction(patch: pytest.MonkeyPatch) -> None:
    failed = TransactionalOffsets._failed

    def drop(self: TransactionalOffsets, attempt: Any, sending: Any, error: ConsumerError) -> None:
        failed(self, attempt, sending, error)
        for tp in attempt.plans:
            attempt.done(tp)

    patch.setattr(TransactionalOffsets, "_failed", drop)


def _ignores_what_the_last_owner_processed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "is_finished", lambda ledger, offset: False)


@pytest.mark.parametrize(
    "bug",
    [
        _drops_the_outputs_of_a_failed_transaction,
        _ignores_what_the_last_owner_processed,
    ],
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)


@simulated(seeds=range(3))
async def test_records_processed_before_a_new_leader_are_not_repeated() -> None:
    """One chunk has records of the old and of the new leader."""
    seen: list[int] = []
    blocked = asyncio.Event()
    async with cluster_of(brokers=3) as cluster:

        def declare(app: ConsumerApp, waits: Callable[[], Awaitable[object]] | None = None) -> None:
            @app.handler("t", ordering="none", concurrency=10)
            async def handle(record: Record) -> None:
                if record.offset in (0, 3) and waits is not None:
                    await waits()
                seen.append(record.offset)

        cluster.append("t", 0, 6)
        app = make_app(cluster, shutdown_grace_ms=100)
        declare(app, blocked.wait)
        async with app:
            await until(lambda: sorted(seen) == [1, 2, 4, 5])
        cluster.kill(cluster.view.partition(A).leader)
        await asyncio.sleep(5)
        cluster.append("t", 0, 4)
        app = make_app(cluster)
        declare(app)
        async with app:
            await until(lambda: 9 in seen and len(seen) >= 10)
    assert sorted(seen) == list(range(10))


@simulated(seeds=range(3))
async def test_a_leaving_member_repeats_a_fenced_transaction() -> None:
    """The partition is no longer read, but its last offsets are committed with their outputs."""
    async with cluster_of() as cluster:
        cluster.add_topic("out")
        cluster.append("t", 0, 3)
        app = make_app(
            cluster,
            exactly_once=True,
            auto_commit_interval_ms=None,
            transaction_interval_ms=3_600_000,
        )
        seen: list[int] = []

        @app.handler("t", publish="out")
        async def handle(record: Record) -> bytes:
            seen.append(record.offset)
            return b"%d" % record.offset

        async with asyncio.TaskGroup() as group, app:
            await until(lambda: len(seen) == 3)
            cluster.fail_next(TXN_OFFSET_COMMIT.key, ProducerFenced.code)
            cluster.slow(1, 0.1)
            group.create_task(fails(app.consumer.commit()))
            await asyncio.sleep(0.05)
        results = [record.value for record in cluster.committed_records(TopicPartition("out", 0))]
        assert results == [b"0", b"1", b"2"]
        assert cluster.storage.offsets["g"][A]["offset"] == 3


@simulated(seeds=range(3))
async def test_a_member_loads_offsets_after_its_own_transaction() -> None:
    """A lost member may return to its generation while its transaction is being committed."""
    async with cluster_of() as cluster:
        cluster.add_topic("out")
        cluster.append("t", 0, 3)
        app = make_app(
            cluster,
            exactly_once=True,
            auto_commit_interval_ms=None,
            transaction_interval_ms=3_600_000,
        )
        seen: list[int] = []

        @app.handler("t", publish="out")
        async def handle(record: Record) -> bytes:
            seen.append(record.offset)
            return b"%d" % record.offset

        async with asyncio.TaskGroup() as group, app:
            await until(lambda: len(seen) == 3)
            cluster.slow(1, 0.1)
            commit = group.create_task(app.consumer.commit())
            await asyncio.sleep(0.05)
            assert await app.consumer.committed([A]) == {A: 3}
            assert commit.done()


@simulated(seeds=range(3))
async def test_a_named_app_continues_after_a_transaction_that_timed_out() -> None:
    """The abort is refused like that of a fenced producer, because the broker has aborted it."""
    async with cluster_of() as cluster:
        cluster.add_topic("out")
        cluster.append("t", 0, 3)
        process = Process(cluster, "m")
        app = make_app(
            cluster,
            opener=process.open,
            exactly_once=True,
            transactional_id="m",
            auto_commit_interval_ms=None,
            transaction_interval_ms=500,
            transaction_timeout_ms=5_000,
        )

        @app.handler("t", publish="out")
        async def handle(record: Record) -> bytes:
            return b"%d" % record.offset

        async with app:
            cluster.slow(1, 0.1)
            await until(lambda: cluster.transactions.is_pending("g", A))
            process.disconnect()
            cluster.slow(1, 0)
            await asyncio.sleep(20)
            process.online = True
            await until(lambda: "g" in cluster.storage.offsets)
            await until(lambda: cluster.storage.offsets["g"][A]["offset"] == 3)
        results = [record.value for record in cluster.committed_records(TopicPartition("out", 0))]
        assert results == [b"0", b"1", b"2"]


async def fails(commit: Awaitable[object]) -> None:
    with pytest.raises(ProducerFenced):
        await commit

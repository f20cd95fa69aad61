"""Apps on a fake Kafka with truncated logs, faults and cancellations, on virtual time."""

import asyncio
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Record, Retry, TopicPartition
from asyncconsumer.errors import CorruptRecords, HandlerFailed
from asyncconsumer.handlers import ledger as ledger_module
from asyncconsumer.handlers.commit_metadata import Ranges, encode
from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.handlers.workers import Workers
from asyncconsumer.testing.fake_kafka import RecordPayload
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import Offset
from tests.consumer.test_redelivery import corrupt_batch
from tests.support.schedules import Bug, must_find, play
from tests.support.worlds.handlers import cluster_of, make_app, run_schedule, until

pytestmark = pytest.mark.fast
A = TopicPartition("t", 0)


async def committed(app: ConsumerApp, tp: TopicPartition = A) -> int | None:
    await app.consumer.commit()
    return (await app.consumer.committed([tp]))[tp]


@simulated(seeds=range(5))
async def test_gaps_and_markers_do_not_delay_commits() -> None:
    seen: list[int] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 3)
        cluster.append_transaction("t", 0, 4, commit=True)
        cluster.append("t", 0, 3, gap=20)
        cluster.append_transaction("t", 0, 4, commit=False)
        end = 3 + 5 + 20 + 3 + 5
        app = make_app(cluster, isolation_level="read_committed")

        @app.handler("t", ordering="none")
        async def handle(record: Record) -> None:
            await asyncio.sleep(Random(record.offset).random())
            seen.append(record.offset)

        async with app:
            await until(lambda: len(seen) == 10)
            await until(lambda: app.consumer._rebalancer.finished().get(A) == end)
            assert await committed(app) == end
    assert sorted(seen) == [0, 1, 2, 3, 4, 5, 6, 28, 29, 30]


@simulated(seeds=range(5))
async def test_a_truncated_log_is_read_from_its_new_end() -> None:
    seen: list[RecordPayload] = []
    async with cluster_of(brokers=3) as cluster:
        cluster.append("t", 0, 10, batches=10)
        app = make_app(cluster)

        @app.handler("t", ordering="none")
        async def handle(value: bytes) -> None:
            seen.append(RecordPayload.of(value))

        async with app:
            await until(lambda: len(seen) == 10)
            assert await committed(app) == 10
            assert cluster.truncate(A, 4) == 6
            cluster.append("t", 0, 2)
            await until(lambda: len(seen) == 12)
            assert [payload.offset for payload in seen[10:]] == [6, 7]
            assert await committed(app) == 8


@pytest.mark.parametrize("still", [4, 6, 8])
@simulated(seeds=range(5))
async def test_only_truncated_records_in_flight_are_abandoned(still: int) -> None:
    """Records from offset `still` on are in flight when the log is truncated to offset 6."""
    go = asyncio.Event()
    begun: list[RecordPayload] = []
    finished: list[RecordPayload] = []
    async with cluster_of(brokers=3) as cluster:
        cluster.append("t", 0, 10, batches=10)
        first = cluster.view.partition(A).epoch
        app = make_app(cluster)

        @app.handler("t", ordering="none")
        async def handle(value: bytes) -> None:
            begun.append(RecordPayload.of(value))
            if begun[-1].epoch == first and begun[-1].offset >= still:
                await go.wait()
            finished.append(RecordPayload.of(value))

        async with app:
            await until(lambda: len(begun) == 10)
            assert cluster.truncate(A, 4) == 6
            cluster.append("t", 0, 2)
            await until(
                lambda: {payload.offset for payload in begun if payload.epoch > first} == {6, 7}
            )
            go.set()
            await asyncio.sleep(1)
            assert {payload.offset for payload in finished if payload.epoch == first} >= set(
                range(6)
            )
            assert sorted(payload.offset for payload in finished if payload.epoch > first) == [6, 7]
            assert app.health().handlers[f"{handle.__qualname__}"].running == 0
            assert await committed(app) == 8


@simulated(seeds=range(5))
async def test_new_records_at_truncated_finished_offsets_are_processed() -> None:
    """All records except offset 2 are finished when the log is truncated to 5 and extended."""
    first: set[int] = set()
    second: list[RecordPayload] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 10, batches=10)
        before = cluster.view.partition(A).epoch
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t", ordering="none")
        async def leave_one(record: Record) -> None:
            if record.offset == 2:
                await asyncio.Event().wait()
            first.add(record.offset)

        async with app:
            await until(lambda: len(first) == 9)
        cluster.truncate(A, 5)
        cluster.append("t", 0, 7, batches=7)
        two = make_app(cluster, seed=3)

        @two.handler("t", ordering="none")
        async def handle(value: bytes) -> None:
            second.append(RecordPayload.of(value))

        async with two:
            await until(lambda: two.consumer._rebalancer.finished().get(A) == 12)
    assert {payload.offset for payload in second if payload.epoch > before} == set(range(5, 12))


@simulated(seeds=range(5))
async def test_an_app_closes_although_no_broker_answers() -> None:
    async with cluster_of() as cluster:
        cluster.append("t", 0, 10)
        begun: list[int] = []
        app = make_app(cluster, shutdown_grace_ms=5_000)

        @app.handler("t", ordering="none", concurrency=2)
        async def handle(record: Record) -> None:
            begun.append(record.offset)
            await asyncio.Event().wait()

        async with app:
            await until(lambda: len(begun) == 2)
            cluster.kill(1)
            remaining = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - remaining < 30
        assert app.health().state == "closed"


@pytest.mark.parametrize("policy", ["skip", "stop"])
@simulated(seeds=range(5))
async def test_a_cancelled_call_that_raises_is_neither_finished_nor_failed(
    policy: Any,
) -> None:
    """The call is cancelled by the drain or by a seek, which is no failure of the record."""
    begun: list[int] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1)
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t", on_error=policy)
        async def handle(record: Record) -> None:
            begun.append(record.offset)
            try:
                await asyncio.Event().wait()
            finally:
                raise ConnectionError("the connection is closed")

        async with app:
            await until(lambda: len(begun) == 1)
            app.consumer.seek(A, 0)
            await until(lambda: len(begun) == 2)
            assert (await app.drain()).cut_short == {A: [0]}
        assert cluster.storage.offsets["g"][A]["offset"] == 0
        assert app.health().handlers[handle.__qualname__].failed == 0


@simulated(seeds=range(5))
async def test_a_cancelled_call_that_returns_is_not_finished() -> None:
    begun: list[int] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1)
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t")
        async def handle(record: Record) -> None:
            begun.append(record.offset)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        async with app:
            await until(lambda: len(begun) == 1)
            assert (await app.drain()).cut_short == {A: [0]}
        assert cluster.storage.offsets["g"][A]["offset"] == 0
        assert app.health().handlers[handle.__qualname__].finished == 0


@pytest.mark.parametrize("fails", [False, True])
@simulated(seeds=range(3))
async def test_a_pending_cancellation_of_a_handler_does_not_end_its_worker(fails: bool) -> None:
    """Some libraries cancel the task at a timeout, and do not call `uncancel`."""
    begun: list[int] = []
    async with cluster_of() as cluster:
        cluster.append("t", 0, 10)
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t", ordering="none", concurrency=2, on_error="skip")
        async def handle(record: Record) -> None:
            begun.append(record.offset)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
            if fails:
                raise TimeoutError

        async with app:
            await until(lambda: len(begun) == 10)
            await until(lambda: app.consumer._rebalancer.finished().get(A) == 10)
        health = app.health().handlers[handle.__qualname__]
        assert (health.finished, health.skipped) == ((0, 10) if fails else (10, 0))


class Panic(BaseException):
    """An exception like the panics of packages written in Rust."""


@pytest.mark.parametrize("on_error", ["skip", "stop"])
@simulated(seeds=range(2))
async def test_a_base_exception_is_a_handler_failure(on_error: Any) -> None:
    async with cluster_of() as cluster:
        cluster.append("t", 0, 3)
        app = make_app(cluster)

        @app.handler("t", ordering="partition", on_error=on_error, retry=Retry(5))
        async def handle(record: Record) -> None:
            if record.offset == 1:
                raise Panic("at the disco")

        began = asyncio.get_running_loop().time()
        with (
            pytest.raises(HandlerFailed, match=r"t\[0\]@1: Panic\.")
            if on_error == "stop"
            else nullcontext()
        ):
            async with app:
                await until(lambda: app.consumer._rebalancer.finished().get(A) == 3)
        assert asyncio.get_running_loop().time() - began < 5
        assert cluster.storage.offsets["g"][A]["offset"] == (1 if on_error == "stop" else 3)


@simulated(seeds=range(3))
async def test_records_before_a_corrupt_batch_are_processed() -> None:
    seen: list[int] = []
    async with cluster_of() as cluster:
        for _ in range(6):
            cluster.append("t", 0, 1)
        corrupt_batch(cluster, 3)
        app = make_app(cluster)

        @app.handler("t", ordering="partition")
        async def handle(record: Record) -> None:
            await asyncio.sleep(1)
            seen.append(record.offset)

        with pytest.raises(CorruptRecords):
            async with app:
                await app.failed()
        assert seen == [0, 1, 2]
        assert cluster.storage.offsets["g"][A]["offset"] == 3


@simulated(seeds=range(3))
async def test_corrupt_records_of_a_revoked_partition_are_not_reported() -> None:
    async with cluster_of() as cluster:
        for _ in range(6):
            cluster.append("t", 0, 1)
        corrupt_batch(cluster, 3)
        app, begun = make_app(cluster), asyncio.Event()

        @app.handler("t", ordering="partition")
        async def handle(record: Record) -> None:
            begun.set()
            await asyncio.sleep(1)

        async with app:
            await begun.wait()
            app.consumer.seek(A, 4)
            await until(lambda: app.consumer._rebalancer.finished().get(A) == 6)
            assert app.health()


@simulated(seeds=range(2))
async def test_a_function_with_two_handlers_is_counted_for_both() -> None:
    async with cluster_of() as cluster:
        cluster.add_topic("u", 1)
        cluster.append("t", 0, 3)
        cluster.append("u", 0, 4)
        app = make_app(cluster)

        @app.handler("t")
        @app.handler("u", ordering="none")
        async def handle(record: Record) -> None: ...

        async with app:
            await until(lambda: app.health().handlers[handle.__qualname__].finished == 7)


@simulated(seeds=range(5))
async def test_a_drain_reports_all_cancelled_calls() -> None:
    """Calls are cancelled at the second signal and at the end of the grace."""
    begun: set[int] = set()
    async with cluster_of() as cluster:
        cluster.append("t", 0, 3)
        app = make_app(cluster, shutdown_grace_ms=100)

        @app.handler("t", ordering="none", concurrency=2)
        async def handle(record: Record) -> None:
            begun.add(record.offset)
            await asyncio.Event().wait()

        async with app:
            await until(lambda: len(begun) == 2)
            app._draining.cut_short(app._queues)
            await until(lambda: len(begun) == 3)
            drained = await app.drain()
    assert {tp: sorted(offsets) for tp, offsets in drained.cut_short.items()} == {A: [0, 1, 2]}


@simulated(seeds=range(5))
async def test_an_app_with_stuck_handlers_is_not_ready() -> None:
    go = asyncio.Event()
    async with cluster_of() as cluster:
        cluster.append("t", 0, 50)
        app = make_app(cluster, stall_timeout_ms=5_000)

        @app.handler("t", concurrency=2)
        async def handle(record: Record) -> None:
            await go.wait()

        async with app:
            await until(lambda: app.health().handlers[handle.__qualname__].running == 2)
            assert app.status().ready
            await asyncio.sleep(60)
            stuck = app.status()
            assert (stuck.state, stuck.ready, stuck.live) == ("handler_bound", False, True)
            assert stuck.lag == {"t": {"0": 50}}
            go.set()
            await asyncio.sleep(60)
            well = app.status()
            assert (well.state, well.ready, well.lag) == ("idle", True, {"t": {"0": 0}})


@simulated(seeds=range(5))
async def test_no_call_starts_after_the_session_may_have_expired() -> None:
    """While brokers are silent, running calls continue and no other call starts."""
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1000)
        begun: list[float] = []
        app = make_app(cluster)
        now = asyncio.get_running_loop().time

        @app.handler("t", ordering="partition")
        async def handle(record: Record) -> None:
            begun.append(now())
            await asyncio.sleep(0.1)

        async with app:
            await until(lambda: len(begun) == 10)
            cluster.freeze(1)
            frozen = now()
            await asyncio.sleep(20)
            assert max(begun) - frozen < 6
            cluster.thaw(1)
            count = len(begun)
            await until(lambda: len(begun) > count)


# --- schedules -----------------------------------------------------------------------------------


def test_no_record_is_lost_or_committed_before_it_is_finished() -> None:
    for seed in range(6):
        play(run_schedule, seed)


def _commits_started_records(patch: pytest.MonkeyPatch) -> None:
    def committable(ledger: Ledger) -> Offset | None:
        return None if ledger.position is None else Offset(ledger.position)

    patch.setattr(Ledger, "committable", committable)


def _reports_too_many_finished_records(patch: pytest.MonkeyPatch) -> None:
    def encoded(base: int, ranges: Ranges, limit: int = 0) -> str:
        return encode(base, [(start, stop + 1) for start, stop in ranges])

    patch.setattr(ledger_module, "encode", encoded)


def _finishes_cancelled_records(patch: pytest.MonkeyPatch) -> None:
    async def failed(self: Workers, task: Any, work: PartitionWork, item: Item, error: Any) -> None:
        self._queue.finish(work, item)
        self._queue.stop_running(task, work)

    patch.setattr(Workers, "_failed", failed)


@pytest.mark.parametrize(
    "bug",
    [_commits_started_records, _reports_too_many_finished_records, _finishes_cancelled_records],
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)


@simulated(seeds=range(2))
async def test_an_app_can_be_reopened() -> None:
    """An app is declared in a module, and each test of a web app opens it."""
    seen: list[int] = []
    async with cluster_of() as cluster:
        app = make_app(cluster)

        @app.handler("t")
        async def handle(record: Record) -> None:
            if record.offset == 3:
                raise ValueError("no")
            seen.append(record.offset)

        for _ in range(2):
            cluster.append("t", 0, 1)
            async with app.lifespan():
                await until(lambda: len(seen) == cluster.view.partition(A).log.end)
                assert (app.status_by_worker()[""].live, app.health().state) == (True, "running")
            assert app.health().state == "closed"
        cluster.append("t", 0, 2)
        for _ in range(2):
            with pytest.raises(HandlerFailed):
                async with app:
                    await app.failed()
            assert "failed for t[0]@3" in (app.health().reason or "")
    assert seen == [0, 1, 2]


@simulated(seeds=range(3))
async def test_a_handler_that_does_not_end_blocks_only_its_own_process() -> None:
    """Another member gets the record after the grace."""
    async with cluster_of() as cluster:
        cluster.append("t", 0, 1)
        app, other = make_app(cluster, shutdown_grace_ms=100), make_app(cluster, seed=3)
        begun, enough, taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @app.handler("t")
        async def stubborn(record: Record) -> None:
            begun.set()
            while not enough.is_set():
                with suppress(asyncio.CancelledError):
                    await enough.wait()

        @other.handler("t")
        async def take(record: Record) -> None:
            taken.set()

        async def leave() -> None:
            async with app:
                await begun.wait()

        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(leave())
            await begun.wait()
            async with other:
                await taken.wait()
                assert not leaving.done()  # the block ends after its handler
                enough.set()
        assert cluster.storage.offsets["g"][A]["offset"] == 1


def test_a_handler_that_does_not_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        async with cluster_of() as cluster:
            cluster.append("t", 0, 1)
            app = make_app(cluster, shutdown_grace_ms=100)
            begun = asyncio.Event()

            @app.handler("t")
            async def stubborn(record: Record) -> None:
                begun.set()
                for _ in range(2):
                    with suppress(asyncio.CancelledError):
                        await asyncio.Event().wait()

            async with app:
                await begun.wait()

    run(leave, seed=1)
    assert "stubborn-" in caplog.text
    assert "must not suppress CancelledError" in caplog.text

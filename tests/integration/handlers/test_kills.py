"""Short runs of the programs in `tests/support/kills` that kill members."""

from pathlib import Path

import pytest

from asyncconsumer.testing.handles import KafkaHandle
from tests.support.kills import ordering as order
from tests.support.kills.handlers import kill_at_random
from tests.support.kills.ordering import Line, keep_order
from tests.support.kills.transactions import kill_members


async def test_a_killed_process_repeats_only_uncommitted_records(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    results = await kill_at_random(kafka, tmp_path, runs=3, records=600, seed=3)
    assert results.wrong == 0
    assert results.at_work


@pytest.mark.parametrize("store", ["sqlite", "handlers", "transaction"])
async def test_offsets_stored_with_results_give_exactly_once_results(
    kafka: KafkaHandle, tmp_path: Path, store: str
) -> None:
    results = await kill_at_random(kafka, tmp_path, runs=2, records=200, seed=4, store=store)
    assert (results.missing, results.repeated, results.wrong) == (0, 0, 0)
    assert results.at_work


async def test_keys_keep_their_order_though_members_are_killed(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    results = await keep_order(
        kafka, tmp_path, records=20_000, keys=2_000, rate=2_500, rounds=3, seed=5
    )
    assert results.wrong == 0
    assert results.handled >= 20_000
    assert (results.lives, results.killed) == (4, 2)
    assert results.cut_short >= results.killed


@pytest.mark.fast
def test_judge_counts_calls_that_are_out_of_order() -> None:
    fine = [Line("a", "k", 0, 1, 2), Line("a", "k", 1, 3, 4), Line("b", "k", 1, 5, 6)]
    assert order.judge(fine, 2) == (3, 0, 1, 0, 0, 2, 0, 0)
    assert order.judge(fine, 2).wrong == 0
    early = [Line("a", "k", 1, 1, 2), Line("a", "k", 0, 3, 4)]
    assert order.judge(early, 3) == (2, 1, 0, 1, 0, 1, 0, 0)
    assert order.judge(early, 3).wrong == 2
    both = [Line("a", "k", 0, 1, 4), Line("a", "k", 1, 2, 5)]
    assert order.judge(both, 2) == (2, 0, 0, 1, 1, 1, 0, 0)


async def test_killed_members_of_an_exactly_once_app_write_each_result_once(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    results = await kill_members(kafka, tmp_path, runs=3, records=200, seed=6)
    assert (results.missing, results.repeated, results.out_of_order) == (0, 0, 0)
    assert results.kills == 3

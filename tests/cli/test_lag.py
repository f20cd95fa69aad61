"""The choice of topics, and the warning about lags that are not known."""

import pytest

from asyncconsumer.admin.results import GroupLag, PartitionLag
from asyncconsumer.cli.lag import only_topics, unknown_lags
from asyncconsumer.errors import ConfigError

pytestmark = pytest.mark.fast


def lag(committed: int | None, end: int | None, age: float | None = None) -> list[GroupLag]:
    behind = None if committed is None or end is None else end - committed
    return [GroupLag("billing", (PartitionLag("orders", 0, committed, end, behind, age),))]


def test_a_partition_without_a_leader_is_reported() -> None:
    assert unknown_lags(lag(5, None), seconds=False).startswith("the lag of orders[0] is not known")
    assert unknown_lags(lag(5, 9), seconds=False) == ""
    assert unknown_lags(lag(None, 9), seconds=False) == ""  # the group has not committed yet


def test_a_record_of_unknown_age_is_reported() -> None:
    assert unknown_lags(lag(5, 9), seconds=True) == (
        "the age of the first unread record of orders[0] is not known"
    )
    assert unknown_lags(lag(5, 9, 30.0), seconds=True) == ""
    assert unknown_lags(lag(9, 9), seconds=True) == ""


def test_only_the_chosen_topics_count() -> None:
    orders, retries = (
        PartitionLag("orders", 0, 5, 7, 2, None),
        PartitionLag("retry", 0, 0, 9, 9, None),
    )
    results = [GroupLag("billing", (orders, retries)), GroupLag("other", (retries,))]
    assert only_topics(results, ["orders"]) == [GroupLag("billing", (orders,))]
    assert only_topics(results, ["orders", "retry"]) == results
    assert only_topics(results, None) == results


def test_a_topic_without_offsets_is_an_error_and_not_a_lag_of_zero() -> None:
    with pytest.raises(ConfigError, match="--topic order: billing has no offsets of this topic"):
        only_topics(lag(5, 9), ["order"])

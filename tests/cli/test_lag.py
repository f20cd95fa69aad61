"""The warning about lags that are not known."""

import pytest

from asyncconsumer.admin.results import GroupLag, PartitionLag
from asyncconsumer.cli.lag import unknown_lags

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

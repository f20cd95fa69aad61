"""The terminal view, driven by textual's pilot."""

from typing import Any

import pytest
from textual.widgets import DataTable, Static

from asyncconsumer import BrokerDescription, MemberDescription, PartitionLag
from asyncconsumer.cli.top_view import TopView, sparkline
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.model import (
    ClusterSnapshot,
    GroupOverview,
    HealthReason,
    LagPoint,
    RebalanceRecord,
)
from asyncconsumer.dashboard.snapshotter import Snapshotter
from asyncconsumer.errors import ConnectFailed
from tests.dashboard.test_site import FakeAdmin
from tests.support.helpers import until

pytestmark = pytest.mark.fast


def group(name: str, lag: int, seconds: float, *members: str) -> GroupOverview:
    return GroupOverview(
        name,
        "classic",
        "Stable" if members else "Empty",
        members=tuple(
            MemberDescription(f"{member}-id", member, "/10.0.0.1", assignment={"t": (number,)})
            for number, member in enumerate(members)
        ),
        partitions=tuple(
            PartitionLag("t", number, 0, lag, lag, seconds, f"{member}-id")
            for number, member in enumerate(members)
        ),
        point=LagPoint(1.0, lag, seconds, 2.5, None),
    )


class Scripted(ClusterCollector):
    """A collector with groups that a test sets."""

    def __init__(self) -> None:
        super().__init__(interval=0.01)
        self.error: Exception | None = None
        self.groups: tuple[GroupOverview, ...] = (
            group("billing", 5, 90.0, "b1", "b2"),
            group("search", 700, 1.5, "s1"),
        )

    async def poll(self, admin: Any) -> ClusterSnapshot:
        if self.error is not None:
            raise self.error
        return ClusterSnapshot(
            1_000.0,
            self.interval,
            brokers=(BrokerDescription(1, "k", 9092),),
            groups=self.groups,
            timeline=(RebalanceRecord(1_000.0, "billing", 2.25, ("b2",), (), 3, 2),),
            health=(HealthReason("error", "search", "Stalled \x1b[31m"),),
        )


def rows(view: TopView, name: str, column: int = 0) -> list[str]:
    table = view.query_one(f"#{name}", DataTable)
    return [str(table.get_row_at(number)[column]) for number in range(table.row_count)]


def text(view: TopView, name: str) -> str:
    return str(view.query_one(f"#{name}", Static).render())


async def test_groups_members_and_rebalances_are_shown() -> None:
    collector = Scripted()
    view = TopView(Snapshotter(collector, FakeAdmin))  # type: ignore[arg-type] # enough of one
    async with view.run_test(size=(140, 40)) as pilot:
        await until(lambda: rows(view, "groups") == ["search", "billing"])
        assert rows(view, "groups", 4) == ["700", "5"]
        assert "brokers: 1, groups: 2, lag: 705" in text(view, "status")
        assert "billing: 2.2 s, +1 -0 members, 3 partitions moved" in text(view, "rebalances")
        assert "Stalled \N{REPLACEMENT CHARACTER}[31m" in text(view, "health")
        await until(lambda: rows(view, "members") == ["s1"])
        assert view.query_one("#left").size.width > view.query_one("#right").size.width
        await pilot.press("down")
        await until(lambda: rows(view, "members") == ["b1", "b2"])
        await pilot.press("s")  # by age
        await until(lambda: rows(view, "groups") == ["billing", "search"])
        assert rows(view, "members") == ["b1", "b2"]
        collector.groups = (group("billing", 5, 90.0, "b2"),)
        await until(lambda: rows(view, "members") == ["b2"])
        collector.error = ConnectFailed("k:9092", "refused")
        await until(lambda: "Kafka is not reachable" in text(view, "status"))
        assert rows(view, "groups") == ["billing"]
        await pilot.press("q")
    assert FakeAdmin.open == 0


def test_a_trend_is_a_line_of_bars() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 4, 7]) == "▁▅█"
    assert len(sparkline(list(range(100)))) == 24

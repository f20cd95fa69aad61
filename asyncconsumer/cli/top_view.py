"""The terminal view of `asyncconsumer top`."""

from datetime import UTC, datetime
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Static

from asyncconsumer.cli.text import cell
from asyncconsumer.dashboard.model import ClusterSnapshot, GroupOverview, RebalanceRecord
from asyncconsumer.dashboard.snapshotter import Snapshotter

_GROUPS: Final = (
    "Group",
    "Kind",
    "State",
    "Members",
    "Lag",
    "Age",
    "Consumed/s",
    "Produced/s",
    "Trend",
)
_MEMBERS: Final = ("Member", "Host", "Partitions", "Lag", "Assignment")
_ORDERS: Final = ("lag", "age", "name")
_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 24  # of a sparkline
_REBALANCES: Final = 50


class TopView(App[None]):
    """A terminal view of all groups, the members of the selected group, and the rebalances."""

    TITLE = "asyncconsumer top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Order by lag, age or name"),
    ]
    CSS = """
    #status { height: auto; padding: 0 1; background: $panel; }
    #groups { height: 3fr; }
    #lower { height: 2fr; }
    #left { width: 3fr; }
    #right { width: 2fr; border-left: solid $panel; }
    .title { padding: 0 1; text-style: bold; color: $text-muted; }
    #rebalances, #health { padding: 0 1; }
    #rebalances { height: 1fr; }
    #health { height: auto; max-height: 50%; }
    """

    def __init__(self, snapshotter: Snapshotter) -> None:
        super().__init__()
        self._snapshotter = snapshotter
        self._snapshot: ClusterSnapshot | None = None
        self._order = _ORDERS[0]

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield Static("connecting", id="status", markup=False)
        yield DataTable(id="groups", cursor_type="row", zebra_stripes=True)
        with Horizontal(id="lower"):
            with Vertical(id="left"):
                yield Static("Members", id="members-title", classes="title", markup=False)
                yield DataTable(id="members", cursor_type="none")
            with Vertical(id="right"):
                yield Static("Health", classes="title")
                yield Static(id="health", markup=False)
                yield Static("Rebalances", classes="title")
                yield Static(id="rebalances", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start to poll the cluster."""
        self.query_one("#groups", DataTable).add_columns(*_GROUPS)
        self.query_one("#members", DataTable).add_columns(*_MEMBERS)
        self.run_worker(self._follow(), exclusive=True)

    def action_sort(self) -> None:
        """Change the order of the groups."""
        self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
        self._show()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the members of the selected group."""
        if event.data_table.id == "groups":
            self._show_members()

    async def _follow(self) -> None:
        async with self._snapshotter.connected() as updates:
            async for snapshot in updates:
                self._snapshot = snapshot
                self._show()

    def _show(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        self.query_one("#status", Static).update(_status_line(snapshot, self._order))
        self.query_one("#health", Static).update(_health(snapshot))
        self.query_one("#rebalances", Static).update(_rebalances(snapshot.timeline))
        self._show_groups(snapshot)
        self._show_members()

    def _show_groups(self, snapshot: ClusterSnapshot) -> None:
        table = self.query_one("#groups", DataTable)
        selected = self._selected_key()
        histories = self._snapshotter.history()
        groups = sorted(snapshot.groups, key=lambda group: _sort_key(group, self._order))
        table.clear()
        for group in groups:
            lags = [point.lag for point in histories.get(_key(group), [])]
            table.add_row(*_group_cells(group), sparkline(lags), key=_key(group))
        keys = [_key(group) for group in groups]
        if selected in keys:
            table.move_cursor(row=keys.index(selected))

    def _show_members(self) -> None:
        table = self.query_one("#members", DataTable)
        key = self._selected_key()
        groups = self._snapshot.groups if self._snapshot is not None else ()
        group = next((group for group in groups if _key(group) == key), None)
        name = "" if group is None else f" of {group.group}"
        self.query_one("#members-title", Static).update(Text(f"Members{name}"))
        table.clear()
        if group is not None:
            for row in _member_rows(group):
                table.add_row(*row)

    def _selected_key(self) -> str | None:
        table = self.query_one("#groups", DataTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value


def sparkline(values: list[int]) -> str:
    """Return the last values as a line of bars."""
    shown = values[-_WIDTH:]
    highest = max(shown, default=0)
    if not highest:
        return _BARS[0] * len(shown)
    return "".join(_BARS[value * (len(_BARS) - 1) // highest] for value in shown)


def _key(group: GroupOverview) -> str:
    return f"{'zookeeper' if group.kind == 'zookeeper' else 'kafka'}/{group.group}"


def _sort_key(group: GroupOverview, order: str) -> tuple[float, str]:
    point = group.point
    if point is None or order == "name":
        return (1.0 if order != "name" else 0.0), group.group
    value = point.lag if order == "lag" else point.lag_seconds or 0
    return -float(value), group.group


def _group_cells(group: GroupOverview) -> list[Text]:
    point = group.point
    state = "unreadable" if group.error else group.state or "unknown"
    style = "yellow" if group.is_rebalancing else "green" if state == "Stable" else "dim"
    texts = [cell(group.group, "bold"), cell(group.kind), cell(state, style)]
    numbers = [
        str(len(group.members)),
        *(
            ("-", "-", "-", "-")
            if point is None
            else (
                f"{point.lag:,}",
                _seconds(point.lag_seconds),
                _rate(point.consumed),
                _rate(point.produced),
            )
        ),
    ]
    return [*texts, *(Text(number, justify="right") for number in numbers)]


def _member_rows(group: GroupOverview) -> list[list[Text]]:
    lags: dict[str, int] = {}
    for partition in group.partitions:
        if partition.member_id is not None:
            lags[partition.member_id] = lags.get(partition.member_id, 0) + (partition.lag or 0)
    return [
        [
            cell(member.instance_id or member.client_id or member.member_id),
            cell((member.host or "-").removeprefix("/")),
            Text(str(len(member.partitions)), justify="right"),
            Text(f"{lags.get(member.member_id, 0):,}", justify="right"),
            cell(
                ", ".join(
                    f"{topic}[{','.join(map(str, numbers))}]"
                    for topic, numbers in sorted(member.assignment.items())
                )
            ),
        ]
        for member in sorted(group.members, key=lambda member: member.client_id or "")
    ]


def _status_line(snapshot: ClusterSnapshot, order: str) -> Text:
    lag = sum(group.point.lag for group in snapshot.groups if group.point is not None)
    line = Text(
        f"brokers: {len(snapshot.brokers)}, groups: {len(snapshot.groups)}, lag: {lag:,}, "
        f"ordered by {order}, {datetime.fromtimestamp(snapshot.time, UTC).astimezone():%H:%M:%S}"
    )
    if snapshot.error is not None:
        line = cell(
            f"Kafka is not reachable for {snapshot.age:.0f} s: {snapshot.error}", "bold red"
        )
    return line


def _health(snapshot: ClusterSnapshot) -> Text:
    styles = {"error": "red", "warning": "yellow", "ok": "green"}
    if not snapshot.health:
        return Text("All groups make progress", style="green")
    lines = (
        cell(f"{reason.subject}: {reason.text}", styles[reason.level]) for reason in snapshot.health
    )
    return Text("\n").join(lines)


def _rebalances(timeline: tuple[RebalanceRecord, ...]) -> Text:
    if not timeline:
        return Text("None yet", style="dim")
    return Text("\n").join(_rebalance(record) for record in timeline[:_REBALANCES])


def _rebalance(record: RebalanceRecord) -> Text:
    time = datetime.fromtimestamp(record.time, UTC).astimezone()
    duration = "running" if record.seconds is None else f"{record.seconds:.1f} s"
    return cell(
        f"{time:%H:%M:%S} {record.group}: {duration}, +{len(record.joined)} "
        f"-{len(record.departed)} members, {record.moved} partitions moved",
        "yellow" if record.seconds is None else "",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"

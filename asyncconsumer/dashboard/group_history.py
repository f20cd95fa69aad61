"""The recent past of one group: lag, rates and rebalances, within fixed limits."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from asyncconsumer.admin.results import ConsumerGroupDescription, PartitionLag
from asyncconsumer.dashboard.model import LagPoint, RebalanceRecord
from asyncconsumer.types import TopicPartition

MAX_POINTS: Final = 300
_RATE_SECONDS: Final = 10.0  # longer than the default interval of automatic commits
_REBALANCING: Final = frozenset(
    {"preparingrebalance", "completingrebalance", "assigning", "reconciling"}
)


class _GroupOffsets(NamedTuple):
    """The offsets of a group at one time of the monotonic clock."""

    time: float
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(slots=True)
class _RunningRebalance:
    """A rebalance that is running, with the members and owners before it."""

    since: float  # seconds since 1970
    began: float  # monotonic
    members: frozenset[str]
    owners: Mapping[TopicPartition, str]


class GroupHistory:
    """The lag, the rates and the rebalances of one group over the last polls.

    In all methods, `now` is monotonic time and `time` is seconds since 1970.
    """

    def __init__(self, group: str) -> None:
        self.group: Final = group
        self.points: deque[LagPoint] = deque(maxlen=MAX_POINTS)
        self.progress: float | None = None  # monotonic time of the last commit, or poll without lag
        self._offsets: deque[_GroupOffsets] = deque()
        self._members: frozenset[str] | None = None  # None before the first observation
        self._owners: Mapping[TopicPartition, str] = {}
        self._running: _RunningRebalance | None = None

    @property
    def rebalancing_since(self) -> float | None:
        """The monotonic time at which the running rebalance was noticed, or None without one."""
        return None if self._running is None else self._running.began

    def add_lag(self, rows: Iterable[PartitionLag], now: float, time: float) -> LagPoint:
        """Add the lag of all partitions, and return it with the current rates."""
        rows = tuple(rows)
        committed = {_tp(row): row.committed for row in rows if row.committed is not None}
        ends = {_tp(row): row.end for row in rows if row.end is not None}
        lag = sum(row.lag for row in rows if row.lag is not None)
        ages = [row.lag_seconds for row in rows if row.lag_seconds is not None]
        before = self._offsets[-1].committed if self._offsets else {}
        if not lag or any(offset > before.get(tp, -1) for tp, offset in committed.items()):
            self.progress = now
        self._offsets.append(_GroupOffsets(now, committed, ends))
        while len(self._offsets) > 2 and self._offsets[1].time <= now - _RATE_SECONDS:
            self._offsets.popleft()
        point = LagPoint(round(time, 3), lag, max(ages, default=None), *self._rates())
        self.points.append(point)
        return point

    def _rates(self) -> tuple[float | None, float | None]:
        """Return the committed and the produced records per second. An unknown rate is None."""
        first, last = self._offsets[0], self._offsets[-1]
        seconds = last.time - first.time
        if seconds <= 0:
            return None, None
        return (
            _growth(first.committed, last.committed, seconds),
            _growth(first.ends, last.ends, seconds),
        )

    def add_members(
        self, description: ConsumerGroupDescription, now: float, time: float
    ) -> RebalanceRecord | None:
        """Add the members and owners of one poll.

        Return the rebalance that is running or has just ended, or None if there is none.
        """
        members = frozenset(member.member_id for member in description.members)
        owners = {
            tp: member.member_id for member in description.members for tp in member.partitions
        }
        known, self._members = self._members, members
        before, self._owners = self._owners, owners
        if known is None:
            return None
        rebalancing = is_rebalancing(description.state)
        if self._running is None:
            if not rebalancing and known == members and before == owners:
                return None
            self._running = _RunningRebalance(time, now, known, before)
        running = self._running
        record = RebalanceRecord(
            round(running.since, 3),
            self.group,
            None,
            tuple(sorted(members - running.members)),
            tuple(sorted(running.members - members)),
            sum(running.owners.get(tp) != owner for tp, owner in owners.items()),
            len(members),
        )
        if rebalancing:
            return record
        self._running = None
        return replace(record, seconds=round(now - running.began, 3))


def is_rebalancing(state: str | None) -> bool:
    """Return whether a group in the state `state` waits for a new assignment."""
    return (state or "").lower() in _REBALANCING


def _growth(
    first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], seconds: float
) -> float:
    grown = sum(max(0, last[tp] - offset) for tp, offset in first.items() if tp in last)
    return round(grown / seconds, 2)


def _tp(row: PartitionLag) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)

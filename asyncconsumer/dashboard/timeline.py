"""The rebalances of all groups, newest first, within a fixed limit."""

from typing import Final

from asyncconsumer.dashboard.model import RebalanceRecord

MAX_RECORDS: Final = 60


class RebalanceTimeline:
    """A bounded list of rebalances. A running one is replaced by its later observations."""

    def __init__(self) -> None:
        self._records: list[RebalanceRecord] = []

    @property
    def records(self) -> tuple[RebalanceRecord, ...]:
        """The rebalances, newest first."""
        return tuple(self._records)

    def add(self, record: RebalanceRecord) -> None:
        """Add a rebalance, or the next observation of a running one."""
        same = (record.time, record.group)
        self._records = [known for known in self._records if (known.time, known.group) != same]
        self._records.insert(0, record)
        self._records.sort(key=lambda known: -known.time)
        del self._records[MAX_RECORDS:]

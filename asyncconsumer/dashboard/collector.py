"""One poll of a cluster: groups, members, lag, brokers and dead letters."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from asyncconsumer.admin.admin import Admin
from asyncconsumer.admin.results import GroupListing, PartitionLag
from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.dashboard.dead_letter_topics import read_dead_letters
from asyncconsumer.dashboard.group_history import GroupHistory, is_rebalancing
from asyncconsumer.dashboard.health_reasons import (
    dead_letter_reasons,
    group_reasons,
    worker_reasons,
    worst_first,
)
from asyncconsumer.dashboard.model import (
    ClusterSnapshot,
    DeadLetterTopic,
    GroupOverview,
    HealthReason,
    LagPoint,
)
from asyncconsumer.dashboard.timeline import RebalanceTimeline
from asyncconsumer.errors import ConsumerError, GroupIdNotFound, brief
from asyncconsumer.web.status import StatusSource

if TYPE_CHECKING:
    from asyncconsumer.admin.groups import GroupStore

MAX_GROUPS: Final = 100
MAX_PARTITIONS: Final = 500  # of one group in a snapshot
_CONCURRENT_GROUPS: Final = 4
_DEAD_LETTER_SECONDS: Final = 5.0  # between two reads of dead letter topics
_LISTED_ONLY: Final = ("share", "streams")


@dataclass(slots=True)
class _DeadLetters:
    """The dead letter topics, as of the monotonic time `polled`."""

    polled: float | None = None
    topics: list[DeadLetterTopic] = field(default_factory=list)


class ClusterCollector:
    """A collector that polls one cluster, and keeps the history of lag and rebalances."""

    def __init__(
        self,
        *,
        interval: float,
        status: StatusSource = dict,
        dead_letter_topics: Iterable[str] = (),
    ) -> None:
        self.interval: Final = interval
        self._status = status
        self._dead_letter_topics = tuple(dead_letter_topics)
        self._histories: dict[str, GroupHistory] = {}
        self._timeline = RebalanceTimeline()
        self._dead_letters = _DeadLetters()

    def history(self) -> dict[str, list[LagPoint]]:
        """Return the recent lag and rates of each group, the oldest first."""
        return {name: list(history.points) for name, history in self._histories.items()}

    def without_cluster(self) -> ClusterSnapshot:
        """Return a snapshot with the status of workers only."""
        time = _wall_clock()
        return self._with_workers(ClusterSnapshot(time, self.interval), ())

    def outdated(self, latest: ClusterSnapshot, error: str, age: float | None) -> ClusterSnapshot:
        """Return the snapshot `latest` with the error of a failed poll and the status of workers.

        `age` is the age in seconds of its data, or None if no poll has succeeded.
        """
        reason = HealthReason("error", "cluster", f"Not reachable: {error}")
        outdated = replace(latest, error=error, age=age or 0.0)
        return self._with_workers(outdated, [reason])

    async def poll(self, admin: Admin) -> ClusterSnapshot:
        """Request the state of the cluster once, and return it as a snapshot.

        Raise `ConsumerError` if the cluster does not answer.
        """
        brokers = await admin.brokers()
        listings = _selected(await admin.groups())
        overviews: dict[str, GroupOverview] = {}

        async def look(listing: GroupListing) -> None:
            overview = await self._overview(admin, listing)
            if overview is not None:
                overviews[_key(listing)] = overview

        await for_each(listings[:MAX_GROUPS], look, limit=_CONCURRENT_GROUPS)
        for key in self._histories.keys() - overviews.keys():
            del self._histories[key]
        await self._poll_dead_letters(admin)
        groups = tuple(overviews[key] for key in sorted(overviews))
        now, time = _monotonic(), _wall_clock()
        reasons = [
            reason
            for key in sorted(overviews)
            for reason in group_reasons(overviews[key], self._history(key), now)
        ]
        reasons += dead_letter_reasons(self._dead_letters.topics, time)
        snapshot = ClusterSnapshot(
            time,
            self.interval,
            brokers=tuple(brokers),
            groups=groups,
            hidden_groups=max(0, len(listings) - MAX_GROUPS),
            timeline=self._timeline.records,
            dead_letters=tuple(self._dead_letters.topics),
        )
        return self._with_workers(snapshot, reasons)

    def _with_workers(
        self, snapshot: ClusterSnapshot, reasons: Iterable[HealthReason]
    ) -> ClusterSnapshot:
        workers = self._status()
        health = worst_first([*reasons, *worker_reasons(workers)])
        as_dicts = {name: status.as_dict() for name, status in workers.items()}
        return replace(snapshot, workers=as_dicts, health=health)

    def _history(self, key: str) -> GroupHistory:
        return self._histories.setdefault(key, GroupHistory(key.partition("/")[2]))

    async def _overview(self, admin: Admin, listing: GroupListing) -> GroupOverview | None:
        """Return the state of a group, or None if it was deleted in the meantime."""
        overview = GroupOverview(listing.group, listing.kind, listing.state)
        if listing.kind in _LISTED_ONLY:
            return overview
        store: GroupStore = "zookeeper" if listing.kind == "zookeeper" else "kafka"
        try:
            described = await admin.describe_group(listing.group, store=store)
            lag = await admin.lag(listing.group, seconds=True, store=store, description=described)
        except GroupIdNotFound:
            return None
        except ConsumerError as error:
            if error.retriable:  # the cluster is not available, so the whole poll fails
                raise
            return replace(overview, error=brief(error))
        history, now, time = self._history(_key(listing)), _monotonic(), _wall_clock()
        record = history.add_members(described, now, time)
        if record is not None:
            self._timeline.add(record)
        rows = lag.partitions
        return replace(
            overview,
            state=described.state,
            assignor=described.assignor,
            is_rebalancing=is_rebalancing(described.state),
            members=described.members,
            partitions=_largest(rows),
            hidden_partitions=max(0, len(rows) - MAX_PARTITIONS),
            point=history.add_lag(rows, now, time),
        )

    async def _poll_dead_letters(self, admin: Admin) -> None:
        polled = self._dead_letters.polled
        if polled is None or _monotonic() - polled >= _DEAD_LETTER_SECONDS:
            topics = await read_dead_letters(admin, self._dead_letter_topics)
            self._dead_letters = _DeadLetters(_monotonic(), topics)


def _selected(listings: Iterable[GroupListing]) -> list[GroupListing]:
    """Return the groups sorted by name, with those that have members first."""
    return sorted(listings, key=lambda listing: (_is_empty(listing), listing.group, listing.kind))


def _is_empty(listing: GroupListing) -> bool:
    return (listing.state or "").lower() in ("empty", "dead")


def _largest(rows: tuple[PartitionLag, ...]) -> tuple[PartitionLag, ...]:
    """Return the partitions. If there are too many, return only those with the largest lag."""
    if len(rows) <= MAX_PARTITIONS:
        return rows
    largest = sorted(rows, key=lambda row: -(row.lag or 0))[:MAX_PARTITIONS]
    return tuple(sorted(largest, key=lambda row: (row.topic, row.partition)))


def _key(listing: GroupListing) -> str:
    """Return a key of a group, because ZooKeeper and Kafka may have groups of one name."""
    return f"{'zookeeper' if listing.kind == 'zookeeper' else 'kafka'}/{listing.group}"


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _wall_clock() -> float:
    return round(datetime.now(UTC).timestamp(), 3)

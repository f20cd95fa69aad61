"""Detection of partitions that should make progress and do not."""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncconsumer.events import Recovered, Stalled
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.fetch.fetcher import Fetcher

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition


class Observation(NamedTuple):
    """A cursor and its fetcher, if any, at the time of a check."""

    cursor: Cursor
    fetcher: Fetcher | None
    late: Sequence[Fetcher]  # fetchers whose broker is overdue


def suspects(
    cursors: Iterable[Cursor], late: Sequence[Fetcher], stalled: Container["TopicPartition"]
) -> Iterator[Observation]:
    """Yield the cursors that should make progress, or have stalled.

    Most of thousands of partitions are at the end of their log. The state of a channel is computed
    once for consecutive cursors that share it.
    """
    channel, calm = None, False
    for cursor in cursors:
        if cursor.channel is not channel:
            channel = cursor.channel
            calm = channel.has_room() and not channel.holds_anything
        fetcher = cursor.fetcher
        if (
            not calm
            or fetcher is None
            or not 0 <= cursor.ends[0] <= cursor.offset
            or cursor.partition in stalled
            or fetcher in late
        ):
            yield Observation(cursor, fetcher, late)


class _LastProgress(NamedTuple):
    """The values that change when a partition makes progress, and since when they are equal."""

    sign: tuple[int, int, tuple[int, ...]]
    since: float


class Stalls:
    """A periodic check of all partitions, which does not slow down reading and fetching.

    Only partitions that should make progress are remembered.
    """

    def __init__(self, allowed: float) -> None:
        self._allowed = allowed
        self._marks: dict[TopicPartition, _LastProgress] = {}
        self.now: dict[TopicPartition, Stalled] = {}

    def look(self, sights: Iterable[Observation], now: float) -> list[Stalled | Recovered]:
        """Return new events: partitions that have stalled, and partitions that have recovered."""
        before, self._marks = self._marks, {}
        stalled_before, self.now = self.now, {}
        news: list[Stalled | Recovered] = []
        for sight in sights:
            cursor = sight.cursor
            partition = cursor.partition
            if (reason := _reason(sight)) is not None:
                unread = _unread(cursor)
                motion = cursor.channel.motion if unread else ()
                sign = cursor.epoch, cursor.offset, motion
                mark = before.get(partition)
                if mark is None or mark.sign != sign:
                    mark = _LastProgress(sign, now)
                elif now - mark.since >= self._allowed:
                    self.now[partition] = Stalled(partition, now - mark.since, reason, unread)
                    if partition not in stalled_before:
                        news.append(self.now[partition])
                self._marks[partition] = mark
            if stalled_before and partition in stalled_before and partition not in self.now:
                news.append(Recovered(partition, now - before[partition].since))
        return news


def _reason(sight: Observation) -> str | None:
    """Return why a partition makes no progress, or None if it does not have to."""
    cursor, fetcher, late = sight
    if cursor.paused or cursor.finished:
        return None
    if _unread(cursor):
        return f"its stream is not read, {cursor.channel.fill} bytes wait"
    if fetcher is None:
        trouble = cursor.trouble or "nobody was found yet"
        return f"it has no broker to be read from: {trouble}"
    if fetcher in late:
        return f"the broker {fetcher.node_id} at {fetcher.address} does not answer"
    caught_up = 0 <= cursor.high_watermark <= cursor.offset  # by the last known high watermark
    # Without room nothing is fetched, so the high watermark may be old. A readable channel is
    # reported as unread for the partitions that it holds.
    if not cursor.channel.has_room() and not (caught_up and cursor.channel.readable):
        return f"no room: its stream holds {cursor.channel.fill} bytes, and others hold the rest"
    if caught_up:
        return None
    return fetcher.hindrance or "the reason is not known"


def _unread(cursor: Cursor) -> bool:
    return cursor.partition in cursor.channel

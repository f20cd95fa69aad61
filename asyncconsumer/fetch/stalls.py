"""The detection of partitions that should make progress and do not."""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncconsumer.events import Recovered, Stalled
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.fetch.fetcher import Fetcher

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition


class Observation(NamedTuple):
    """The state of a partition at the time of a check. Without a broker it has no fetcher."""

    cursor: Cursor
    fetcher: Fetcher | None
    late: Sequence[Fetcher]  # fetchers whose broker is overdue


def suspects(
    cursors: Iterable[Cursor], late: Sequence[Fetcher], stalled: Container["TopicPartition"]
) -> Iterator[Observation]:
    """Yield an observation of each cursor that should make progress or is in `stalled`.

    `late` are the fetchers whose broker is overdue. The state of a channel is read once for
    consecutive cursors that share it, because a check may cover thousands of partitions.
    """
    channel, is_calm = None, False
    for cursor in cursors:
        if cursor.target.channel is not channel:
            channel = cursor.target.channel
            is_calm = channel.has_room() and not channel.holds_anything
        fetcher = cursor.fetcher
        if (
            not is_calm
            or fetcher is None
            or not 0 <= cursor.log_end[0] <= cursor.offset
            or cursor.partition in stalled
            or fetcher in late
        ):
            yield Observation(cursor, fetcher, late)


class _LastProgress(NamedTuple):
    """The values that change when a partition makes progress, and the time of their last change."""

    marker: tuple[int, int, tuple[int, ...]]
    since: float


class Stalls:
    """A periodic check for partitions that make no progress for `allowed` seconds.

    It keeps state only for partitions that should make progress, so that it stays cheap.
    """

    def __init__(self, allowed: float) -> None:
        self._allowed = allowed
        self._last_progress: dict[TopicPartition, _LastProgress] = {}
        self.current: dict[TopicPartition, Stalled] = {}

    def check(self, observations: Iterable[Observation], now: float) -> list[Stalled | Recovered]:
        """Return events for partitions that have stalled and for partitions that have recovered."""
        before, self._last_progress = self._last_progress, {}
        stalled_before, self.current = self.current, {}
        events: list[Stalled | Recovered] = []
        for observation in observations:
            cursor = observation.cursor
            partition = cursor.partition
            if (reason := _reason(observation)) is not None:
                unread = _unread(cursor)
                marker = (
                    cursor.target.epoch,
                    cursor.offset,
                    cursor.target.channel.progress_marker if unread else (),
                )
                last = before.get(partition)
                if last is None or last.marker != marker:
                    last = _LastProgress(marker, now)
                elif now - last.since >= self._allowed:
                    self.current[partition] = Stalled(partition, now - last.since, reason, unread)
                    if partition not in stalled_before:
                        events.append(self.current[partition])
                self._last_progress[partition] = last
            if stalled_before and partition in stalled_before and partition not in self.current:
                events.append(Recovered(partition, now - before[partition].since))
        return events


def _reason(observation: Observation) -> str | None:
    """Return why a partition makes no progress, or None if it needs to make none.

    It needs to make none if it is paused, or if all of its records were read.
    """
    cursor, fetcher, late = observation
    if cursor.paused or cursor.finished:
        return None
    if _unread(cursor):
        return f"its stream is not read, {cursor.target.channel.buffered_bytes} bytes are buffered"
    if fetcher is None:
        return f"it has no broker to be read from: {cursor.errors.last or 'none was found yet'}"
    if fetcher in late:
        return f"the broker {fetcher.node_id} at {fetcher.address} does not answer"
    caught_up = 0 <= cursor.high_watermark <= cursor.offset  # by the last known high watermark
    # Without room nothing is fetched, so the high watermark may be old. A readable channel is
    # reported as unread for the partitions that it holds.
    channel = cursor.target.channel
    if not channel.has_room() and not (caught_up and channel.readable):
        return (
            f"the buffer has no room: its stream holds {channel.buffered_bytes} bytes, and other "
            "streams hold the rest. Read them, or raise `max_buffered_bytes`"
        )
    if caught_up:
        return None
    return fetcher.blocked_reason or "the reason is unknown"


def _unread(cursor: Cursor) -> bool:
    return cursor.partition in cursor.target.channel

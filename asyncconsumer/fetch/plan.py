"""The plan of a fetcher's next request: the partitions that it includes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.fetch.fetch_session import FetchSession

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition


class FetchPlan:
    """The cursors of one fetcher, and the choice of those that the next request includes.

    A request includes a partition if its channel (the buffer of its stream) has room. Because there
    may be thousands of partitions, only changed cursors are checked before a request. If a channel
    gains or loses room, all of its cursors are checked.
    """

    def __init__(self, budget: Budget) -> None:
        self.requested: dict[TopicPartition, Cursor] = {}  # the cursors in the last request
        self._versions: dict[TopicPartition, int] = {}  # cursor versions at the time of the request
        self.reader_is_active = False  # a channel without room was read since the last request
        self._budget = budget
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._by_channel: dict[Channel, dict[TopicPartition, Cursor]] = {}
        self._with_room: set[Channel] = set()  # channels whose partitions were included
        self._changed: dict[TopicPartition, None] = {}
        # channels without room, and their `pop_count` at that time
        self._held_back: dict[Channel, int] = {}

    def __bool__(self) -> bool:
        return bool(self._cursors)

    @property
    def cursors(self) -> list[Cursor]:
        """The cursors of the fetcher."""
        return list(self._cursors.values())

    def add(self, cursor: Cursor) -> None:
        """Add a cursor, so that the next request includes its partition."""
        self._cursors[cursor.partition] = cursor
        self._by_channel.setdefault(cursor.target.channel, {})[cursor.partition] = cursor
        self.mark_changed(cursor)

    def remove(self, cursor: Cursor) -> None:
        """Remove a cursor, so that the next request excludes its partition."""
        del self._cursors[cursor.partition]
        siblings = self._by_channel[cursor.target.channel]
        del siblings[cursor.partition]
        if not siblings:
            del self._by_channel[cursor.target.channel]
            self._with_room.discard(cursor.target.channel)
        self.mark_changed(cursor)

    def requested_cursor(self, partition: "TopicPartition") -> Cursor | None:
        """Return the cursor of a partition in the last request, or None if it was removed since."""
        cursor = self.requested.get(partition)
        if cursor is None or cursor.version != self._versions[partition]:
            return None
        return cursor

    def mark_changed(self, cursor: Cursor) -> None:
        """Note that a cursor was added, removed, paused, resumed or moved to another offset.

        The next `apply_to` decides whether the request includes the cursor.
        """
        self._changed[cursor.partition] = None

    def apply_to(self, session: FetchSession, min_free: int, size: int) -> bool:
        """Add the cursors whose channels have room to the session, and remove the others.

        Return False if no cursor is included, so that no request is needed. While the budget has
        fewer than `min_free` free bytes, only channels without data have room. `size` is the limit
        of bytes per partition.
        """
        has_room = self._has_room(min_free)
        with_room = {channel for channel, room in has_room.items() if room}
        if not with_room:
            return False  # the session keeps its partitions until there is room
        for channel, partitions in self._by_channel.items():
            if (channel in with_room) != (channel in self._with_room):
                self._changed.update(dict.fromkeys(partitions))
        self._with_room = with_room
        for partition in self._changed:
            cursor = self._cursors.get(partition)
            if cursor is None or cursor.paused or cursor.target.channel not in with_room:
                session.remove(partition)
                self.requested.pop(partition, None)
                self._versions.pop(partition, None)
            else:
                session.add(partition, cursor.to_fetch(size))
                self.requested[partition] = cursor
                self._versions[partition] = cursor.version
        self._changed.clear()
        return bool(self.requested)

    def _has_room(self, min_free: int) -> Mapping[Channel, bool]:
        """Return whether each channel has room.

        Also store the channels without room, and whether one of them was read since the last call.
        """
        enough = self._budget.free >= min_free
        has_room = {
            channel: channel.has_room() if enough else channel.has_share()
            for channel in self._by_channel
        }
        held_back = {channel: channel.pop_count for channel, room in has_room.items() if not room}
        # An active reader frees room soon, so the request must not wait for a full poll.
        self.reader_is_active = any(
            self._held_back.get(channel) != count for channel, count in held_back.items()
        )
        self._held_back = held_back
        return has_room

    @property
    def held_back(self) -> bool:
        """Whether a channel had no room at the last call of `apply_to`."""
        return bool(self._held_back)

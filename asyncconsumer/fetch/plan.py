"""Which partitions to ask a broker for: kept as things change, so that asking costs no more."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.fetch.fetch_session import FetchSession

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition


class FetchPlan:
    """The cursors of one fetcher, and which of them the next request is for.

    With thousands of partitions a request is about the few that something came for, so nothing
    here looks at all of them, unless the channel of many has got room, or has none any more.
    """

    def __init__(self, budget: Budget) -> None:
        self.asked: dict[TopicPartition, Cursor] = {}  # in the last request
        self._versions: dict[TopicPartition, int] = {}  # of those cursors, when they were asked for
        self.somebody_reads = False  # from one of the channels that had no room, at the moment
        self._budget = budget
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._by_channel: dict[Channel, dict[TopicPartition, Cursor]] = {}
        self._roomy: set[Channel] = set()  # those whose partitions were asked for
        self._changed: dict[TopicPartition, None] = {}
        self._held_back: dict[Channel, int] = {}  # no room in the last request; pops until then

    def __bool__(self) -> bool:
        return bool(self._cursors)

    @property
    def cursors(self) -> list[Cursor]:
        """All that there are."""
        return list(self._cursors.values())

    def add(self, cursor: Cursor) -> None:
        """Ask for it from now on."""
        self._cursors[cursor.partition] = cursor
        self._by_channel.setdefault(cursor.channel, {})[cursor.partition] = cursor
        self.changed(cursor)

    def remove(self, cursor: Cursor) -> None:
        """Ask no more for it."""
        del self._cursors[cursor.partition]
        siblings = self._by_channel[cursor.channel]
        del siblings[cursor.partition]
        if not siblings:
            del self._by_channel[cursor.channel]
            self._roomy.discard(cursor.channel)
        self.changed(cursor)

    def asks_for(self, partition: "TopicPartition") -> Cursor | None:
        """The cursor that the last request asks for, unless it was taken away since."""
        cursor = self.asked.get(partition)
        if cursor is None or cursor.version != self._versions[partition]:
            return None
        return cursor

    def changed(self, cursor: Cursor) -> None:
        """What is to be asked for it, or whether, is another thing than it was."""
        self._changed[cursor.partition] = None

    def tell(self, session: FetchSession, unit: int, size: int) -> bool:
        """Have the session want what there is room for; False if that is nothing.

        There is no room for anybody with less than a unit in the budget.
        """
        rooms = self._rooms(unit)
        roomy = {channel for channel, has_room in rooms.items() if has_room}
        if not roomy:
            return False  # and what the session wants may stay, for when there is room
        for channel, partitions in self._by_channel.items():
            if (channel in roomy) != (channel in self._roomy):
                self._changed.update(dict.fromkeys(partitions))
        self._roomy = roomy
        for partition in self._changed:
            cursor = self._cursors.get(partition)
            if cursor is None or cursor.paused or cursor.channel not in roomy:
                session.drop(partition)
                self.asked.pop(partition, None)
                self._versions.pop(partition, None)
            else:
                session.want(partition, cursor.ask(size))
                self.asked[partition] = cursor
                self._versions[partition] = cursor.version
        self._changed.clear()
        return bool(self.asked)

    def _rooms(self, unit: int) -> Mapping[Channel, bool]:
        """Which channels have room; the others are kept in mind."""
        enough = self._budget.free >= unit
        rooms = {channel: enough and channel.has_room() for channel in self._by_channel}
        held_back = {channel: channel.pops for channel, has_room in rooms.items() if not has_room}
        # whose reader is at work will have room soon, and must not wait for the whole of a poll
        self.somebody_reads = any(
            self._held_back.get(channel) != pops for channel, pops in held_back.items()
        )
        self._held_back = held_back
        return rooms

    @property
    def held_back(self) -> bool:
        """Whether somebody had no room in the last request."""
        return bool(self._held_back)

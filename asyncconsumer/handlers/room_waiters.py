"""The partitions that wait until a work queue has room for more of their records."""

import asyncio
from collections.abc import Callable

from asyncconsumer.handlers.partition_work import PartitionWork


class RoomWaiters(set[PartitionWork]):
    """The partitions that wait for room. They are notified at most once per loop iteration."""

    def __init__(self, has_room: Callable[[PartitionWork], bool]) -> None:
        super().__init__()
        self._has_room = has_room
        self._scheduled = False

    def notify_soon(self) -> None:
        """Notify the partitions that have room, in the next iteration of the event loop."""
        if self and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._scheduled = False
        for work in list(self):
            if self._has_room(work):
                work.wakeup.set()

"""An adapter through which a `Consumer` calls a rebalance listener of aiokafka."""

import inspect
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener, TopicPartition

from asyncconsumer import types
from asyncconsumer.compat.aiokafka_offset_errors import OffsetErrors

_log: Final = logging.getLogger(__name__)


class ListenerAdapter:
    """An adapter that calls the aiokafka listener of the current subscription, if there is one.

    aiokafka's listeners have no method for lost partitions, so these are reported as revoked.
    Revoked partitions are reported before each assignment, also if there are none.
    """

    def __init__(self, offset_errors: OffsetErrors) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self._offset_errors = offset_errors
        self._reported = False  # the revoked partitions, since the last assignment

    async def on_partitions_assigned(self, partitions: Collection[types.TopicPartition]) -> None:
        """Call the listener for newly assigned partitions."""
        if self.listener is None:
            return
        if not self._reported:
            await _call(self.listener.on_partitions_revoked, ())
        self._reported = False
        await _call(self.listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: Collection[types.TopicPartition]) -> None:
        """Call the listener for revoked partitions."""
        self._offset_errors.resolve(partitions)  # they may be assigned again, with another offset
        if self.listener is not None:
            self._reported = True
            await _call(self.listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: Collection[types.TopicPartition]) -> None:
        """Call the listener for lost partitions as if they were revoked."""
        await self.on_partitions_revoked(partitions)


async def _call(
    callback: Callable[[set[TopicPartition]], Any], partitions: Collection[types.TopicPartition]
) -> None:
    """Call a function or coroutine function with partitions. Log its error, as aiokafka does."""
    try:
        result = callback({TopicPartition(*tp) for tp in partitions})
        if inspect.isawaitable(result):
            await result
    except Exception:  # noqa: BLE001 - must not stop the consumer
        _log.exception("the rebalance listener failed")

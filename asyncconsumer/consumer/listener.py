"""Who is told of what a consumer is given, and of what is taken from it."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from asyncconsumer.errors import ConfigError, ConsumerError, ListenerFailed
from asyncconsumer.group.membership import Assignment
from asyncconsumer.rebalance import Listeners
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class ConsumerRebalanceListener:
    """Told of every change, in the order in which it happens. Override what you need.

    Methods may be coroutines or plain functions. The group waits for them, `listener_timeout_ms` at
    the most. What they raise ends the consumer, and is raised where it is read.
    """

    def on_partitions_assigned(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are ours in addition, and are read when this is over: `seek` them here."""
        return None

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are no longer read, and are ours until this is over: they may be committed."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are somebody else's by now: nothing may be committed for them."""
        return None


class ListenerList(list[object]):
    """The listeners of a consumer, in the order in which they are told."""

    def __init__(self, main: object = None) -> None:
        super().__init__(() if main is None else (main,))
        self._main = main  # what the constructor or `subscribe` was given

    def replace(self, listener: object) -> None:
        """Have this one in place of the one that was given before, if that is still there."""
        at = self.index(self._main) if self._main in self else len(self)
        self[at : at + 1] = [listener]
        self._main = listener


def checked(listener: object) -> object:
    """It, if it can be told of anything: one that cannot would never be missed."""
    if not any(callable(getattr(listener, name, None)) for name in _METHODS):
        raise ConfigError(f"{listener!r} is no listener: it has none of {', '.join(_METHODS)}")
    return listener


def listeners(told: Sequence[object], timeout_ms: int) -> Listeners:
    """For the rebalancer. A listener that lacks one of the methods is not told of that.

    There may be more of them later: who is told is looked up at each change.
    """

    def of(name: str) -> Callable[[Collection[TopicPartition]], Awaitable[None]]:
        async def tell(partitions: Collection[TopicPartition]) -> None:
            for listener in list(told):
                await _tell(listener, name, partitions, timeout_ms / 1000)

        return tell

    async def starting(assignment: Assignment, new: Collection[TopicPartition]) -> None:
        await of("on_partitions_assigned")(new)

    return Listeners(
        before_releasing=of("on_partitions_revoked"),
        before_starting=starting,
        lost=of("on_partitions_lost"),
    )


async def _tell(
    listener: object, name: str, partitions: Collection[TopicPartition], seconds: float
) -> None:
    method: Callable[[set[TopicPartition]], Any] | None = getattr(listener, name, None)
    if method is None:
        return
    callback = f"{type(listener).__name__}.{name}"
    try:
        async with asyncio.timeout(seconds) as timeout:
            told = method(set(partitions))
            if inspect.isawaitable(told):
                await told
    except ConsumerError:
        raise
    except Exception as error:
        if not (isinstance(error, TimeoutError) and timeout.expired()):
            raise ListenerFailed(callback, repr(error)) from error
        _log.error("%s took more than %g s and was cancelled; the group goes on", callback, seconds)

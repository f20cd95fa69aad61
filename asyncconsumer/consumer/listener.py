"""Rebalance listeners, which are called when partitions are assigned, revoked or lost."""

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
    """A listener that is called at each change of the assignment. Override the methods you need.

    Methods may be coroutines or plain functions. The group waits for them, for at most
    `listener_timeout_ms`. An exception ends the consumer, and is raised where the consumer is read.
    """

    def on_partitions_assigned(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before newly assigned partitions are fetched. `seek` may be called here."""
        return None

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before partitions are released.

        Their records are not delivered any more. Their offsets may be committed here.
        """
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called for partitions that other members may own already.

        The offsets of these partitions cannot be committed any more.
        """
        return None


class ListenerList(list[object]):
    """The rebalance listeners of a consumer, in the order of their calls."""

    def __init__(self, main: object = None) -> None:
        super().__init__(() if main is None else (main,))
        self._main = main  # the argument of the constructor or of `subscribe`

    def replace(self, listener: object) -> None:
        """Replace the listener that the constructor or an earlier call of `replace` has set.

        If there is none, `listener` is appended.
        """
        index = self.index(self._main) if self._main in self else len(self)
        self[index : index + 1] = [listener]
        self._main = listener


def checked(listener: object) -> object:
    """Return the listener. Raise ConfigError if it has none of the listener methods.

    This finds a misspelled method name.
    """
    if not any(callable(getattr(listener, name, None)) for name in _METHODS):
        raise ConfigError(
            f"{listener!r} is not a rebalance listener. It needs one of {', '.join(_METHODS)}"
        )
    return listener


def listeners(listening: Sequence[object], timeout_ms: int) -> Listeners:
    """Return callbacks that call these rebalance listeners, each for at most `timeout_ms`.

    Methods that a listener does not have are not called. `listening` is read at each rebalance,
    because listeners may be added later.
    """

    def of(name: str) -> Callable[[Collection[TopicPartition]], Awaitable[None]]:
        async def call(partitions: Collection[TopicPartition]) -> None:
            for listener in list(listening):
                await _call(listener, name, partitions, timeout_ms / 1000)

        return call

    async def starting(assignment: Assignment, new: Collection[TopicPartition]) -> None:
        await of("on_partitions_assigned")(new)

    return Listeners(
        before_releasing=of("on_partitions_revoked"),
        before_starting=starting,
        lost=of("on_partitions_lost"),
    )


async def _call(
    listener: object, name: str, partitions: Collection[TopicPartition], seconds: float
) -> None:
    method: Callable[[set[TopicPartition]], Any] | None = getattr(listener, name, None)
    if method is None:
        return
    callback = f"{type(listener).__name__}.{name}"
    try:
        async with asyncio.timeout(seconds) as timeout:
            result = method(set(partitions))
            if inspect.isawaitable(result):
                await result
    except ConsumerError:
        raise
    except Exception as error:
        if not (isinstance(error, TimeoutError) and timeout.expired()):
            raise ListenerFailed(callback, repr(error)) from error
        _log.error("the listener call %s took more than %g s and was cancelled", callback, seconds)

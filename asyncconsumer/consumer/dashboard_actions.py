"""Pause and resume of the partitions of a consumer, from the dashboard."""

from collections.abc import Callable
from typing import Final, Protocol

from asyncconsumer.errors import ClosedError, ConfigError
from asyncconsumer.types import TopicPartition


class Pausable(Protocol):
    """The interface of a consumer whose partitions the dashboard pauses and resumes."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these partitions."""

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these partitions again."""


class ConsumerActions:
    """The actions of the dashboard on a consumer of this process.

    The function `consumer` returns the consumer, or raises ClosedError while it is not open.
    """

    available: tuple[str, ...] = ("pause", "resume")

    def __init__(self, consumer: Callable[[], Pausable]) -> None:
        self._consumer: Final = consumer

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics with a paused partition. Empty while the consumer is not open."""
        try:
            return tuple(sorted({tp.topic for tp in self._consumer().paused}))
        except ClosedError:
            return ()

    async def perform(self, name: str, topic: str) -> str:
        """Pause or resume the assigned partitions of a topic. Return a text about what was done.

        `name` is "pause" or "resume". Raise ConfigError if no partition of the topic is assigned.
        """
        consumer = self._consumer()
        partitions = sorted(tp for tp in consumer.assignment if tp.topic == topic)
        if not partitions:
            raise ConfigError(f"This process reads no partition of {topic!r}.")
        if name == "pause":
            consumer.pause(*partitions)
            return f"Paused {len(partitions)} partitions of {topic} in this process."
        consumer.resume(*partitions)
        return f"Resumed {len(partitions)} partitions of {topic} in this process."

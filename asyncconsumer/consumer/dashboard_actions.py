"""Pause and resume of the partitions of a consumer, from the dashboard."""

from collections.abc import Callable
from typing import Final, Protocol

from asyncconsumer.errors import ClosedError, ConfigError
from asyncconsumer.types import TopicPartition


class Pausable(Protocol):
    """A consumer, as far as it is paused and resumed."""

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
    """The actions on a consumer of this process, which `consumer` returns while it is open."""

    available: tuple[str, ...] = ("pause", "resume")

    def __init__(self, consumer: Callable[[], Pausable]) -> None:
        self._consumer: Final = consumer

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics with a paused partition."""
        try:
            return tuple(sorted({tp.topic for tp in self._consumer().paused}))
        except ClosedError:
            return ()

    async def perform(self, name: str, topic: str) -> str:
        """Pause or resume the partitions of a topic that this process reads."""
        consumer = self._consumer()
        partitions = sorted(tp for tp in consumer.assignment if tp.topic == topic)
        if not partitions:
            raise ConfigError(f"This process reads no partition of {topic!r}.")
        if name == "pause":
            consumer.pause(*partitions)
            return f"Paused {len(partitions)} partitions of {topic} in this process."
        consumer.resume(*partitions)
        return f"Resumed {len(partitions)} partitions of {topic} in this process."

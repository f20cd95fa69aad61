"""The options for delivery of records, its end, and commits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asyncconsumer.config.validation import one_of, whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition

COMMIT_POLICIES: Final = ("auto", "manual", "at_most_once")
POISON_POLICIES: Final = ("raise", "skip", "dead_letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    """The options for commits, unreadable records and the end of a loop.

    ``commit_policy`` "auto" acknowledges a record when the next one is asked for. "manual" commits
    only what `commit` is called for. "at_most_once" commits records before they are delivered, so
    that none is redelivered. A crash may then lose records that were fetched together.

    ``on_poison`` is for a record that cannot be deserialized and for a corrupt batch. The choices
    are "raise", "skip", and "dead_letter", which writes it to the ``dead_letter_topic``.

    The loop ends after ``max_records``, after ``idle_timeout_ms`` without a record, or at
    ``stop_at``. That is an offset for each partition, or "end" for the end offsets at the start.
    ``progress`` shows a progress bar on the terminal.
    """

    commit_policy: str = "auto"
    on_poison: str = "raise"
    dead_letter_topic: str | None = None
    max_records: int | None = None
    idle_timeout_ms: int | None = None
    stop_at: str | Mapping[TopicPartition, int] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        one_of("commit_policy", self.commit_policy, COMMIT_POLICIES)
        one_of("on_poison", self.on_poison, POISON_POLICIES)
        for name in ("max_records", "idle_timeout_ms"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        if not isinstance(self.progress, bool):
            raise ConfigError(f"progress must be True or False, got {self.progress!r}")
        if (self.on_poison == "dead_letter") != (self.dead_letter_topic is not None):
            raise ConfigError("on_poison='dead_letter' and dead_letter_topic need each other")
        self._check_stop()

    def refuse(self, way: str, *options: str) -> None:
        """Raise if one of `options` is set, because they end one reader and `way` has several."""
        for name in options:
            if getattr(self, name) is not None:
                raise ConfigError(f"{name} is for one reader, and {way} makes several")

    def _check_stop(self) -> None:
        stop: Any = self.stop_at
        if stop is None or stop == "end":
            return
        if not isinstance(stop, Mapping):
            raise ConfigError(f"stop_at must be 'end' or an offset of each partition, got {stop!r}")
        for partition, offset in stop.items():
            if not isinstance(partition, TopicPartition):
                raise ConfigError(f"stop_at has {partition!r}: its keys must be TopicPartitions")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ConfigError(f"stop_at of {partition} must be an offset, got {offset!r}")

"""The options for commits, unreadable records, and the end of reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from asyncconsumer.config.choices import (
    COMMIT_POLICIES,
    POISON_ACTIONS,
    CommitPolicy,
    PoisonAction,
)
from asyncconsumer.config.validation import one_of, whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    """The options for commits, unreadable records and the end of reading.

    `DeliveryOptions` describes each option.
    """

    commit_policy: CommitPolicy = "auto"
    on_poison: PoisonAction = "raise"
    dead_letter_topic: str | None = None
    max_records: int | None = None
    idle_timeout_ms: int | None = None
    stop_at: Literal["end"] | Mapping[TopicPartition, int] | None = None
    progress: bool = False
    tracing: bool = False

    def __post_init__(self) -> None:
        one_of("commit_policy", self.commit_policy, COMMIT_POLICIES)
        one_of("on_poison", self.on_poison, POISON_ACTIONS)
        for name in ("max_records", "idle_timeout_ms"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        for name in ("progress", "tracing"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"`{name}` must be True or False, got {value!r}")
        if (self.on_poison == "dead_letter") != (self.dead_letter_topic is not None):
            raise ConfigError(
                "`on_poison='dead_letter'` and `dead_letter_topic` need each other. Set both or "
                "none"
            )
        self._check_stop()

    def refuse(self, method: str, *options: str) -> None:
        """Raise ConfigError if one of `options` is set.

        Each of these options ends the loop of a single reader. `method` is the name of a method,
        such as `streams`, whose result has several readers.
        """
        for name in options:
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"`{name}` ends a single reader, but {method} has several. Remove `{name}`"
                )

    def _check_stop(self) -> None:
        stop: Any = self.stop_at
        if stop is None or stop == "end":
            return
        if not isinstance(stop, Mapping):
            raise ConfigError(
                f"`stop_at` must be 'end' or an offset for each partition, got {stop!r}"
            )
        for partition, offset in stop.items():
            if not isinstance(partition, TopicPartition):
                raise ConfigError(f"`stop_at` has {partition!r}: its keys must be TopicPartitions")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ConfigError(f"`stop_at` of {partition} must be an offset, got {offset!r}")

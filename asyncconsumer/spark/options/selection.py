"""The topics of a query, and the limits where it starts and ends, from Spark's options."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.spark.options.java_pattern import translate
from asyncconsumer.types import TopicPartition

_SYMBOLIC: Final = {"earliest": EARLIEST, "latest": LATEST}
_MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SubscribedTopicNames:
    """All partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of the topics in whose name a regular expression finds a match.

    Spark's own source searches in the same way. Java's consumer matches the whole name instead. The
    expression is in Python's syntax, see `java_pattern.translate`.
    """

    pattern: str

    def filter(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that match the expression, without Kafka's internal topics."""
        # imported here, because executors need no groups
        from asyncconsumer.group.subscription import INTERNAL_TOPICS

        return tuple(
            name for name in names if name not in INTERNAL_TOPICS and re.search(self.pattern, name)
        )


@dataclass(frozen=True, slots=True)
class Assigned:
    """The partitions that the option `assign` names."""

    partitions: frozenset[TopicPartition]


TopicSelection: TypeAlias = SubscribedTopicNames | Matching | Assigned


@dataclass(frozen=True, slots=True)
class StartBound:
    """A start or an end of a query at EARLIEST or LATEST, in all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """A start or an end of a query at a given offset in each partition.

    An offset may also be EARLIEST or LATEST.
    """

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A start or an end of a query at the first offset at or after a timestamp.

    `times` is one timestamp for all partitions, or a mapping with one for each.

    If a partition has no record at or after the timestamp, the end of the partition is used. With
    `or_latest=False` the lookup fails instead.
    """

    times: Mapping[TopicPartition, int] | int
    option: str
    or_latest: bool = True


Limit: TypeAlias = StartBound | OffsetBound | TimeBound


_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
SELECTIONS: Final = frozenset(name.lower() for name in _SELECTIONS)
"""The options that select topics, in lower case."""


def includes_latest(limit: Limit) -> bool:
    """Return whether `limit` can mean the end of the log, which changes with each lookup."""
    match limit:
        case StartBound(offset):
            return offset == LATEST
        case OffsetBound(offsets):
            return LATEST in offsets.values()
        case TimeBound(or_latest=or_latest):
            return or_latest


def restrict(limit: Limit, partitions: Collection[TopicPartition]) -> Limit:
    """Return `limit` with the offsets or timestamps of `partitions` only."""
    match limit:
        case OffsetBound(offsets):
            return replace(limit, offsets=_of(offsets, partitions))
        case TimeBound(times) if not isinstance(times, int):
            return replace(limit, times=_of(times, partitions))
    return limit


def _of(
    values: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {tp: value for tp, value in values.items() if tp in partitions}


def selection(options: Mapping[str, str]) -> TopicSelection:
    """Return the selected topics or partitions, from `subscribe`, `subscribePattern` or `assign`.

    Raise ConfigError unless exactly one of these options is set.
    """
    chosen = [name for name in _SELECTIONS if name.lower() in options]
    if len(chosen) != 1:
        names = " and ".join(chosen) or "none of them"
        raise ConfigError(
            f"Set exactly one of `{'`, `'.join(_SELECTIONS)}` to select topics, got {names}."
        )
    (name,) = chosen
    text = options[name.lower()].strip()
    if name == "subscribe":
        topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise ConfigError("`subscribe` is empty. Set it to 'topic,topic,...'.")
        return SubscribedTopicNames(topics)
    if name == "assign":
        return Assigned(frozenset(_partitions(text)))
    if not text:
        raise ConfigError("`subscribePattern` is empty. Set it to a regular expression.")
    pattern = translate(text)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"`subscribePattern` {text!r} has no counterpart in Python's regular expressions: "
            f"{error}"
        ) from None
    return Matching(pattern)


def limit(options: Mapping[str, str], end: str, default: int) -> Limit:
    """Return the start or end of a query.

    `end` is "starting" or "ending", the prefix of the options. The first of these options that is
    set applies: `startingTimestamp`, `startingOffsetsByTimestamp`, `startingOffsets`. Without them,
    return `default`, which is EARLIEST or LATEST.
    """
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"`startingOffsetsByTimestampStrategy` must be error or latest, got {strategy!r}."
        )
    or_latest = end == "ending" or strategy == "latest"
    if (text := options.get(f"{end}timestamp")) is not None:
        name = f"{end}Timestamp"
        return TimeBound(_milliseconds(name, text.strip()), name, or_latest)
    if (text := options.get(f"{end}offsetsbytimestamp")) is not None:
        name = f"{end}OffsetsByTimestamp"
        return TimeBound(_by_partition(name, text, least=0), name, or_latest)
    name, text = f"{end}Offsets", options.get(f"{end}offsets", "").strip()
    if not text:
        return StartBound(default)
    if (offset := _SYMBOLIC.get(text.lower())) is not None:
        return StartBound(offset)
    return OffsetBound(_by_partition(name, text, least=EARLIEST), name)


def _partitions(text: str) -> Iterable[TopicPartition]:
    topics = _object("assign", text, '{"topic": [0, 1]}')
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_integer(n, 0) for n in numbers):
            raise ConfigError(
                f"`assign` must list partitions such as [0, 1] for {topic!r}, got {numbers!r}."
            )
        for number in numbers:
            yield TopicPartition(topic, number)


def _by_partition(option: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    by_partition: dict[TopicPartition, int] = {}
    example = '{"topic": {"0": 23}}'
    for topic, values in _object(option, text, example).items():
        if not isinstance(values, dict):
            raise ConfigError(
                f"`{option}` must have the form {example}, got {values!r} for {topic!r}."
            )
        for number, value in values.items():
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # 1.0 is an offset for Spark's own source
            if not number.isdecimal() or not _is_integer(value, least):
                raise ConfigError(
                    f"`{option}` must have the form {example}, got {number!r}: {value!r} for "
                    f"{topic!r}."
                )
            by_partition[TopicPartition(topic, int(number))] = value
    return by_partition


def _object(option: str, text: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"`{option}` must be JSON of the form {example}, and is not JSON: {error}"
        ) from None
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"`{option}` must have the form {example}, got {text!r}.")
    return value


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MAX_OFFSET


def _milliseconds(option: str, text: str) -> int:
    if not text.isdecimal() or not _is_integer(int(text), 0):
        raise ConfigError(f"`{option}` must be milliseconds since 1970, got {text!r}.")
    return int(text)

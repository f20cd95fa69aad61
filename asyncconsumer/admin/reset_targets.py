"""The target of an offset reset: which partitions, and which new offset for each."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from asyncconsumer.errors import ConfigError, UnknownTopicOrPartition
from asyncconsumer.offsets.store import is_offset
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper import paths

_MAX_OFFSET: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RELATIVE: Final = re.compile(r"([+-])([0-9]{1,19})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_DURATION: Final = re.compile(
    r"P?(?:(?P<days>[0-9]{1,6})d)?T?(?:(?P<hours>[0-9]{1,6})h)?(?:(?P<minutes>[0-9]{1,8})m)?"
    r"(?:(?P<seconds>[0-9]{1,9})s)?",
    re.IGNORECASE,
)
_PARTITION: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The new offset for all partitions: an offset, a shift or a timestamp.

    Exactly one field is set.
    """

    offset: int | None = None
    shift: int | None = None  # relative to the committed offset
    timestamp: int | None = None  # milliseconds since 1970, EARLIEST or LATEST


def parse_target(text: str) -> ResetTarget:
    """Parse the value of the option `--to`. Raise ConfigError if it is invalid."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return ResetTarget(timestamp=EARLIEST if text == "earliest" else LATEST)
    if match := _RELATIVE.fullmatch(text):
        distance = _check_offset(text, int(match[2]))
        return ResetTarget(shift=-distance if match[1] == "-" else distance)
    if _NUMBER.fullmatch(text):
        return ResetTarget(offset=_check_offset(text, int(text)))
    if (duration := parse_duration(text)) is not None:
        return ResetTarget(timestamp=_milliseconds(datetime.now(UTC) - duration))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--to {text!r} must be earliest, latest, an offset, +N or -N from the committed "
            "offset, a time such as 2024-05-31T12:00:00Z, or a duration before now such as 1h30m."
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"--to {text} needs a time zone, such as {text}Z or {text}+02:00.")
    return ResetTarget(timestamp=_milliseconds(moment))


def make_target(to: str | int | datetime | timedelta) -> ResetTarget:
    """Return the target that a Python value or a text describes."""
    if isinstance(to, str):
        return parse_target(to)
    if isinstance(to, timedelta):
        return ResetTarget(timestamp=_milliseconds(datetime.now(UTC) - to))
    if isinstance(to, datetime):
        return parse_target(to.isoformat())
    if not is_offset(to):
        raise ConfigError(
            f"the target {to!r} is not valid. Pass an offset from 0, a datetime, a timedelta "
            'before now, "earliest", "latest", "+N", "-N", or offsets by partition'
        )
    return ResetTarget(offset=to)


def parse_duration(text: str) -> timedelta | None:
    """Return a duration such as 90s, 1h30m or PT1H, or None for any other text."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    return timedelta(**{unit: int(number) for unit, number in match.groupdict("0").items()})


def parse_offsets(text: str, label: str) -> dict[TopicPartition, int]:
    """Return the offsets in lines of `topic,partition,offset`, as Kafka's own tools write them.

    `label` begins error messages.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = [field.strip().strip('"') for field in line.split(",")]
        if len(fields) != 3 or not (
            _PARTITION.fullmatch(fields[1]) and _NUMBER.fullmatch(fields[2])
        ):
            raise ConfigError(f"{label}, line {number}: write topic,partition,offset")
        offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    if not offsets:
        raise ConfigError(f"{label} has no offsets. Write lines of topic,partition,offset")
    return offsets


def _milliseconds(moment: datetime) -> int:
    # integer division, because a float would lose milliseconds
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """Parse a value of the option `--topic`.

    Return the topic, and its partitions or None for all.
    """
    topic, colon, numbers = text.partition(":")
    paths.topic(topic)  # raises for an illegal topic name
    if not colon:
        return topic, None
    parts = [part.strip() for part in numbers.split(",")]
    if not all(_PARTITION.fullmatch(part) and int(part) < 2**31 for part in parts):
        raise ConfigError(f"--topic {text!r} must list partitions by number, such as {topic}:0,3.")
    return topic, sorted({int(part) for part in parts})


def select_partitions(
    values: Iterable[str], existing: Mapping[str, tuple[int, ...]]
) -> list[TopicPartition]:
    """Return the partitions that values of the option `--topic` name.

    `existing` maps each topic to its partition numbers. Raise an error for any other partition.
    """
    selected: set[TopicPartition] = set()
    for topic, numbers in map(parse_topic, values):
        known = existing.get(topic)
        if known is None:
            raise UnknownTopicOrPartition(f"topic {topic!r}")
        for number in known if numbers is None else numbers:
            if number not in known:
                raise UnknownTopicOrPartition(str(TopicPartition(topic, number)))
            selected.add(TopicPartition(topic, number))
    return sorted(selected)


def _check_offset(text: str, number: int) -> int:
    if number > _MAX_OFFSET:
        raise ConfigError(f"--to {text} must be at most {_MAX_OFFSET}.")
    return number

"""`--topic T[:p,...]` and `--to`: which partitions, and where to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from asyncconsumer.errors import ConfigError, UnknownTopicOrPartition
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper import paths

_MOST: Final = 2**63
_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RELATIVE: Final = re.compile(r"([+-])([0-9]{1,19})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_PARTITION: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to go, of each partition: one of these is set."""

    offset: int | None = None
    by: int | None = None
    moment: int | None = None
    """In milliseconds since 1970, or EARLIEST, or LATEST."""


def parse_target(text: str) -> ResetTarget:
    """What `--to` means, or ConfigError."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return ResetTarget(moment=EARLIEST if text == "earliest" else LATEST)
    if match := _RELATIVE.fullmatch(text):
        distance = _in_range(text, int(match[2]))
        return ResetTarget(by=-distance if match[1] == "-" else distance)
    if _NUMBER.fullmatch(text):
        return ResetTarget(offset=_in_range(text, int(text)))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--to {text!r}: give earliest, latest, an offset, +N or -N from the committed one, or "
            "a time like 2024-05-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"--to {text}: a time needs its zone, e.g. {text}Z or {text}+02:00")
    return ResetTarget(
        moment=max(0, (moment - _1970) // timedelta(milliseconds=1))
    )  # exact, no float


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """A topic, and which of its partitions: None for all."""
    topic, colon, listed = text.partition(":")
    paths.topic(topic)  # raises for what is no name
    if not colon:
        return topic, None
    numbers = [part.strip() for part in listed.split(",")]
    if not all(_PARTITION.fullmatch(part) and int(part) < 2**31 for part in numbers):
        raise ConfigError(f"--topic {text!r}: name partitions by number, e.g. {topic}:0,3")
    return topic, sorted({int(part) for part in numbers})


def chosen(given: Iterable[str], existing: Mapping[str, tuple[int, ...]]) -> list[TopicPartition]:
    """The partitions that several `--topic` name, each of which must be there."""
    found: set[TopicPartition] = set()
    for topic, numbers in map(parse_topic, given):
        there = existing.get(topic)
        if there is None:
            raise UnknownTopicOrPartition(f"topic {topic!r}")
        for number in there if numbers is None else numbers:
            if number not in there:
                raise UnknownTopicOrPartition(str(TopicPartition(topic, number)))
            found.add(TopicPartition(topic, number))
    return sorted(found)


def _in_range(text: str, number: int) -> int:
    if number >= _MOST:
        raise ConfigError(f"--to {text}: no offset is as large as that")
    return number

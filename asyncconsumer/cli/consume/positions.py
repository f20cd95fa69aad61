"""The positions at which `consume` starts and stops (`--from`, `--until`)."""

import re
from typing import Final

from asyncconsumer.admin.reset_targets import ResetTarget, parse_target
from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition

_TIMESTAMP: Final = re.compile(r"[se]@([0-9]{1,15})")  # kcat's form, in milliseconds
_ALIASES: Final = {
    "beginning": "earliest",
    "smallest": "earliest",
    "end": "latest",
    "largest": "latest",
}


def parse_position(option: str, text: str) -> ResetTarget:
    """Parse the value of a position option. `-N` counts from the end of each partition."""
    text = _ALIASES.get(text, text)
    if match := _TIMESTAMP.fullmatch(text):
        return ResetTarget(timestamp=int(match[1]))
    if text.startswith("+"):
        raise ConfigError(f"{option} {text}: a position cannot be +N. Use an offset, or -N.")
    try:
        return parse_target(text)
    except ConfigError:
        raise ConfigError(
            f"{option} {text!r} must be earliest, latest, an offset, -N before the end, a time "
            "such as 2024-05-31T12:00:00Z, or a duration before now such as 1h."
        ) from None


async def resolve(simple: SimpleConsumer, tp: TopicPartition, position: ResetTarget) -> int:
    """Return the offset of a position, such as "earliest" or a time, in a partition."""
    earliest = await simple.offsets_before(*tp, EARLIEST)
    latest = await simple.offsets_before(*tp, LATEST)
    if position.offset is not None:
        return position.offset
    if position.shift is not None:
        return max(earliest, latest + position.shift)
    assert position.timestamp is not None
    if position.timestamp in (EARLIEST, LATEST):
        return earliest if position.timestamp == EARLIEST else latest
    offset = await simple.offsets_before(*tp, position.timestamp)
    return offset if offset >= 0 else latest

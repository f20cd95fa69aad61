"""Positions in a topic as text, such as ``0:41,1:7``: a partition and its next offset."""

import re
from collections.abc import Mapping
from typing import Final

from asyncconsumer.errors import ConfigError

_MAX_LENGTH: Final = 100_000
_POSITION: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


def format_positions(positions: Mapping[int, int]) -> str:
    """Return positions, which map partitions to next offsets, as text such as ``0:41,1:7``.

    The text is the id of an event that is sent to a browser.
    """
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    """Return positions from the text of `format_positions`. Raise `ConfigError` for other text."""
    positions = {}
    for part in text.split(",") if text and len(text) <= _MAX_LENGTH else [text]:
        match = _POSITION.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"The position {text[:80]!r} must be PARTITION:OFFSET,... such as '0:41,1:7'."
            )
        positions[int(match[1])] = int(match[2])
    return positions

"""The format of dead letters as lines of JSON, for export and for an editor."""

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.dead_letter_queue import DeadLetter, edited

_PLACE: Final = "dead_letter"


def as_fields(dead_letter: DeadLetter) -> dict[str, Any]:
    """Return the fields of a dead letter as values for JSON.

    Bytes become text. If they are not UTF-8, they become an object with their base64 text.
    """
    record = dead_letter.record
    return {
        _PLACE: dead_letter.place,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "written": dead_letter.written.isoformat(),
        "error_type": dead_letter.error_type,
        "error_message": dead_letter.error_message,
        "attempts": dead_letter.attempts,
        "group": dead_letter.group,
        "handler": dead_letter.handler,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def to_lines(dead_letters: Iterable[DeadLetter]) -> str:
    """Return one line of JSON for each dead letter."""
    return "".join(
        json.dumps(as_fields(dead_letter), ensure_ascii=False) + "\n"
        for dead_letter in dead_letters
    )


def from_lines(text: str, dead_letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Apply the edited lines in `text` to `dead_letters`, and return the result.

    Key, value and headers may be edited. A dead letter whose line was removed is left out.
    """
    by_place = {dead_letter.place: dead_letter for dead_letter in dead_letters}
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            dead_letter = by_place.pop(fields[_PLACE])
            headers = tuple((str(name), _bytes(value)) for name, value in fields["headers"])
            result.append(
                edited(dead_letter, _bytes(fields["key"]), _bytes(fields["value"]), headers)
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                f"Line {number} of the edited text is not valid. Keep one JSON object on each "
                f"line, with {_PLACE}, key, value and headers. Nothing was sent."
            ) from None
    return result


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()

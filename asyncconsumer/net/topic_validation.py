"""The validation of topic names in responses. Names become part of paths, patterns and logs."""

import itertools
import logging
from typing import Final

from asyncconsumer.types import is_legal_topic

_log: Final = logging.getLogger(__name__)
_ignored: Final = itertools.count(1)


def is_usable(name: str | None, error_code: int = 0) -> bool:
    """Return whether to use the topic `name` in a response.

    Kafka does not allow some names. A broker answers with an error code when such a name was
    requested, and the topic is then used. Otherwise return False and log a warning.
    """
    if not name:
        return False
    if error_code or is_legal_topic(name):
        return True
    _warn(name)
    return False


def _warn(name: str) -> None:
    """Log a warning about an ignored topic name. As more names are ignored, fewer are logged.

    A broker may send thousands of names with each response.
    """
    count = next(_ignored)
    if count & (count - 1) == 0:
        _log.warning(
            "ignored the topic name %.300r of a broker, which Kafka does not allow (%d so far); "
            "check that the addresses of the brokers are correct",
            name,
            count,
        )

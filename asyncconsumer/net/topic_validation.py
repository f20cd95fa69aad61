"""Validation of topic names in responses, which become part of paths, patterns and logs."""

import itertools
import logging
from typing import Final

from asyncconsumer.types import is_legal_topic

_log: Final = logging.getLogger(__name__)
_dropped: Final = itertools.count(1)


def accepts(name: str | None, error_code: int = 0) -> bool:
    """Return whether to use a topic that a broker named.

    A name that Kafka does not allow is accepted only with an error, as the answer to a request for
    this name. Otherwise it is ignored with a warning.
    """
    if not name:
        return False
    if error_code or is_legal_topic(name):
        return True
    _warn(name)
    return False


def _warn(name: str) -> None:
    """Log a warning at counts that are powers of two.

    A broker may send thousands of names with each response.
    """
    count = next(_dropped)
    if count & (count - 1) == 0:
        _log.warning(
            "a broker named the topic %.300r, which Kafka does not allow; it is ignored, the %d. "
            "such answer. Check what answers at the brokers' addresses",
            name,
            count,
        )

"""The validation of topic names in responses. Names become part of paths, patterns and logs."""

import itertools
import logging
from typing import Final

from asyncconsumer.types import is_legal_topic

_log: Final = logging.getLogger(__name__)
_ignored: Final = itertools.count(1)


def is_usable(name: str | None, error_code: int = 0) -> bool:
    """Return whether to use the topic `name` in a response.

    Return False and log a warning if Kafka does not allow the name. With an error code, return True
    for such a name, because the caller has requested it and needs the error.
    """
    if not name:
        return False
    if error_code or is_legal_topic(name):
        return True
    _warn(name)
    return False


def _warn(name: str) -> None:
    """Log a warning about an ignored topic name, but not for each name.

    A broker may send thousands of such names with each response. A warning is logged when their
    number is a power of two.
    """
    count = next(_ignored)
    if count & (count - 1) == 0:
        _log.warning(
            "ignored the topic name %.300r of a broker, which Kafka does not allow (%d so far); "
            "check that the addresses of the brokers are correct",
            name,
            count,
        )

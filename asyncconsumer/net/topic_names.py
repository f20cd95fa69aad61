"""Names of topics as brokers tell them: a name becomes part of paths, patterns and logs."""

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from asyncconsumer.model import is_legal_topic

_log: Final = logging.getLogger(__name__)
_dropped: Final = itertools.count(1)


def legal_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Yield the rows of a Metadata answer whose topics Kafka allows.

    Of an illegal name only an error is kept: that is the answer to whoever asked for the name.
    """
    for row in rows:
        if (name := row["name"]) and (row["error_code"] or is_legal_topic(name)):
            yield row
        elif name:
            _warn(name)


def _warn(name: str) -> None:
    """Log the first one, and then ever fewer: a broker may send thousands each time it is asked."""
    count = next(_dropped)
    if count & (count - 1) == 0:
        _log.warning(
            "a broker named the topic %.300r, which Kafka does not allow; it is ignored, the %d. "
            "such answer. Check what answers at the brokers' addresses",
            name,
            count,
        )

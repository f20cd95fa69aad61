"""The dead letter topics of a cluster: their sizes, and the last failure of each."""

import re
from collections.abc import Iterable
from typing import Final

from asyncconsumer.admin.admin import Admin
from asyncconsumer.admin.results import LogRange
from asyncconsumer.dashboard.model import DeadLetterTopic
from asyncconsumer.errors import ConsumerError
from asyncconsumer.records.decoding import Record

MAX_TOPICS: Final = 50
_NAME: Final = re.compile(
    r"(?:^|[._-])(?:dlq|dlt|dead|dead[._-]?letters?)(?:$|[._-])", re.IGNORECASE
)
_GROUP_SUFFIX: Final = ".dlq"  # of the group whose commits mark dead letters as done
_ERROR, _TOPIC, _PARTITION, _OFFSET = "dlt.error.type", "dlt.topic", "dlt.partition", "dlt.offset"


def is_dead_letter_topic(name: str) -> bool:
    """Return whether a topic is for dead letters, by a part of its name such as ``dlq``."""
    return not name.startswith("__") and _NAME.search(name) is not None


async def read_dead_letters(admin: Admin, also: Iterable[str] = ()) -> list[DeadLetterTopic]:
    """Return the dead letter topics of a cluster, each with its most recent failure.

    They are the topics with a name such as ``orders.dlq``, and those in `also`.
    """
    configured = set(also)
    names = [
        name for name in await admin.topics() if name in configured or is_dead_letter_topic(name)
    ]
    names = names[:MAX_TOPICS]
    if not names:
        return []
    ranges = await admin.log_ranges(names)
    last = {
        record.topic: record
        for record in sorted(await admin.last_records(names), key=lambda record: record.timestamp)
    }
    return [await _topic(admin, name, ranges, last.get(name)) for name in names]


async def _topic(
    admin: Admin, name: str, ranges: list[LogRange], record: Record | None
) -> DeadLetterTopic:
    topic_rows = [row for row in ranges if row.topic == name]
    total = sum(row.end - row.start for row in topic_rows)
    try:
        done = await admin.committed(f"{name}{_GROUP_SUFFIX}", store="kafka") if total else {}
    except ConsumerError:  # a part of the page is better than none
        done = {}
    unfinished = sum(
        max(0, row.end - max(row.start, done.get(row.tp, row.start))) for row in topic_rows
    )
    if record is None:
        return DeadLetterTopic(name, total, unfinished)
    headers = {
        key: (value or b"").decode(errors="backslashreplace") for key, value in record.headers
    }
    source = None
    if _TOPIC in headers:
        source = f"{headers[_TOPIC]}[{headers.get(_PARTITION, '?')}]@{headers.get(_OFFSET, '?')}"
    return DeadLetterTopic(
        name, total, unfinished, record.timestamp / 1000, headers.get(_ERROR), source
    )

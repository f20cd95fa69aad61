"""The JSON text of offsets in checkpoints and in the progress of queries.

Programs that read offsets expect only topics as entries. So the topic ids, and the start of a
query's first micro-batch, are encoded as spaces and tabs in the JSON text. Spark stores the text as
it is. Spark's own source and JSON parsers skip the spaces and tabs.

Spark's Python process for streaming queries passes parsed JSON to a source. `install` replaces its
`json` module by one that returns the hidden data as entries of the offsets, see `offsets`.
"""

import json
import re
import sys
import zlib
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from asyncconsumer.spark.source.offsets import (
    ids_in,
    start_in,
    to_json,
    with_ids,
    with_start,
    without_entries,
)
from asyncconsumer.spark.source.worker_process import STREAM_RUNNER

_HIDDEN: Final = re.compile(r"\{([ \t]+)")
_BLANKS: Final = str.maketrans("01", " \t")
_BITS: Final = str.maketrans(" \t", "01")
_ID_BYTES: Final = 16
_UNKNOWN: Final = UUID(int=0)  # not the id of any topic
_CHECK_BYTES: Final = 4


def install() -> None:
    """Let Spark's process for streaming queries use `dumps` and `loads` of this module.

    Do nothing in other processes. Without the replacement, offsets have visible entries.
    """
    runner = sys.modules["__main__"]
    spec = getattr(runner, "__spec__", None)
    if spec is not None and spec.name == STREAM_RUNNER and hasattr(runner, "json"):
        functions = {**vars(json), "dumps": dumps, "loads": loads}
        runner.json = SimpleNamespace(**functions)  # type: ignore[attr-defined]


def dumps(value: Any) -> str:  # noqa: ANN401 - what json.dumps takes
    """Return the JSON text of offsets, in which entries that are not topics are hidden.

    Return the JSON of any other value without a change.
    """
    if not isinstance(value, dict):
        return json.dumps(value)
    ids, start = ids_in(value), start_in(value)
    if not ids and start is None:
        return json.dumps(value)
    topics = without_entries(value)
    data = b"".join(ids.get(topic, _UNKNOWN).bytes for topic in topics)
    if start is not None:
        data += json.dumps(to_json(start), separators=(",", ":")).encode()
    data = _checksum(data, topics) + data
    bits = f"{int.from_bytes(data):0{8 * len(data)}b}"
    return "{" + bits.translate(_BLANKS) + json.dumps(topics).removeprefix("{")


def loads(text: str) -> Any:  # noqa: ANN401 - what json.loads returns
    """Return the parsed JSON. Add the entries that `dumps` has hidden in the text of offsets."""
    value = json.loads(text)
    blanks = _HIDDEN.match(text)
    if blanks is None or len(blanks[1]) % 8:
        return value
    hidden = int(blanks[1].translate(_BITS), 2).to_bytes(len(blanks[1]) // 8)
    check, data = hidden[:_CHECK_BYTES], hidden[_CHECK_BYTES:]
    if check != _checksum(data, value):  # for example of a checkpoint that a user has edited
        return value
    ids = {}
    for number, topic in enumerate(value):
        topic_id = UUID(bytes=data[_ID_BYTES * number :][:_ID_BYTES])
        if topic_id != _UNKNOWN:
            ids[topic] = topic_id
    if start := data[_ID_BYTES * len(value) :]:
        value = with_start(value, json.loads(start))
    return with_ids(value, ids)


def _checksum(data: bytes, topics: dict[str, Any]) -> bytes:
    """Return a checksum of hidden data and the names and order of the topics that it is about."""
    return zlib.crc32(data + json.dumps(list(topics)).encode()).to_bytes(_CHECK_BYTES)

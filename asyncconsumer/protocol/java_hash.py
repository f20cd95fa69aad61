"""Java's string hashes and orders, which assignors need to compute the same results as Java."""

import functools
import struct
from collections.abc import Iterable
from typing import Final

from asyncconsumer.types import TopicPartition

_BUCKETS: Final = 16  # buckets of a HashMap that has not grown


@functools.lru_cache(maxsize=1024)  # topic names are few, and partitions are many
def utf16(text: str) -> bytes:
    """Return the UTF-16 code units of a Java string, high byte first.

    As a sort key they give Java's order of strings, in which a character beyond U+FFFF comes before
    one from U+E000 to U+FFFF.
    """
    # By default Python does not encode unpaired surrogates. JSON can contain them; Java keeps them.
    return text.encode("utf-16-be", "surrogatepass")


@functools.lru_cache(maxsize=1024)
def string_hash(text: str) -> int:
    """Return Java's `String.hashCode`, a signed number of 32 bits."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", utf16(text)):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _signed(value)


def fetcher_id(topic: str, partition: int, fetchers: int) -> int:
    """Return the fetcher id of a partition, as Kafka's old Scala consumer computes it."""
    value = _signed(31 * string_hash(topic) + partition)
    return (0 if value == -(2**31) else abs(value)) % fetchers  # Java's `abs` would overflow


def partition_hash(partition: TopicPartition) -> int:
    """Return Java's `TopicPartition.hashCode`."""
    return _signed(31 * (31 + partition.partition) + string_hash(partition.topic))


def buckets(entries: int) -> int:
    """Return the number of buckets of a Java HashMap after it has grown to `entries` entries."""
    count = _BUCKETS
    while entries > count * 3 // 4:
        count *= 2
    return count


def bucket(hash_code: int, count: int) -> int:
    """Return the index of the bucket for an entry with this hash code, out of `count` buckets.

    Java iterates over HashMaps and HashSets bucket by bucket, and in each bucket in insertion
    order. Java orders buckets of nine and more entries differently, but these are not to be
    expected in practice.
    """
    return ((hash_code & 0xFFFFFFFF) >> 16 ^ hash_code) & count - 1


def hash_order(texts: Iterable[str]) -> list[str]:
    """Return `texts` in the iteration order of a Java HashMap or HashSet that contains them."""
    unique = dict.fromkeys(texts)
    count = buckets(len(unique))
    return sorted(unique, key=lambda text: bucket(string_hash(text), count))


def computed_order(texts: Iterable[str]) -> list[str]:
    """Return `texts` in the iteration order of a Java HashMap filled by `computeIfAbsent`.

    That method inserts a new entry at the front of its bucket, and resizes one call later than
    `put`.
    """
    count, unique = _BUCKETS, dict[str, None]()
    for text in texts:
        if len(unique) > count * 3 // 4:
            count *= 2
        unique[text] = None
    newest_first = list(unique)[::-1]
    return sorted(newest_first, key=lambda text: bucket(string_hash(text), count))


def _signed(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31

"""What Java computes of a text, where members of a group must all come to the same result."""

import functools
import struct
from collections.abc import Iterable
from typing import Final

from asyncconsumer.types import TopicPartition

_BUCKETS: Final = 16  # of a HashMap that is as good as empty


@functools.lru_cache(maxsize=1024)  # topics have few names, and thousands of partitions
def utf16(text: str) -> bytes:
    """The text as a Java string has it, high byte first.

    So this is also the key that sorts texts as Java does: a character beyond U+FFFF comes before
    one from U+E000 to U+FFFF.
    """
    # half of a pair is no text that Python would encode, but JSON can spell it and Java keeps it
    return text.encode("utf-16-be", "surrogatepass")


@functools.lru_cache(maxsize=1024)
def string_hash(text: str) -> int:
    """`String.hashCode`, a signed number of 32 bits."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", utf16(text)):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _signed(value)


def fetcher_id(topic: str, partition: int, fetchers: int) -> int:
    """Which of a broker's fetchers reads the partition, as the classic consumer spreads them."""
    value = _signed(31 * string_hash(topic) + partition)
    return (0 if value == -(2**31) else abs(value)) % fetchers  # Java has no positive twin of it


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return _signed(31 * (31 + partition.partition) + string_hash(partition.topic))


def buckets(entries: int) -> int:
    """How many buckets a HashMap has that grew to so many entries."""
    count = _BUCKETS
    while entries > count * 3 // 4:
        count *= 2
    return count


def bucket(hash_code: int, count: int) -> int:
    """In which of so many buckets an entry with this hash is.

    HashMaps and HashSets are gone through bucket by bucket, and in each as the entries came.
    Buckets of nine and more, which Java treats differently, are not met by chance.
    """
    return ((hash_code & 0xFFFFFFFF) >> 16 ^ hash_code) & count - 1


def hash_order(texts: Iterable[str]) -> list[str]:
    """Texts in the order in which a HashMap or HashSet is gone through that they were put into."""
    unique = dict.fromkeys(texts)
    count = buckets(len(unique))
    return sorted(unique, key=lambda text: bucket(string_hash(text), count))


def computed_order(texts: Iterable[str]) -> list[str]:
    """The same for a HashMap that was filled by `computeIfAbsent`.

    That has the last that came first in its bucket, and makes room one call later than `put`.
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

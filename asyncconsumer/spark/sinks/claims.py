"""The last claimed offset range of each partition, as a file name that is replaced atomically.

A folder per partition holds exactly one entry, the head. Its name is the last claim: the range, the
file that holds the records, and the id of the topic. A new claim renames the head. The old name is
unique and never used again. Of several writers that know the same head, exactly one succeeds. A
writer that knows an older head always fails, even if it was suspended for long. No clock is used.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.sinks.claim_links import last_link
from asyncconsumer.spark.sinks.files import Files
from asyncconsumer.types import TopicPartition, is_legal_topic

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{32})(?:-([0-9a-f]{32}))?")
_NOTHING: Final = "nothing"  # the name of the entry before the first claim
_MAX_FILE_NAME: Final = 255  # bytes; a topic name may have 249
_MAX_LISTINGS: Final = 100  # of a folder whose entry is renamed meanwhile


class Claim(NamedTuple):
    """An offset range that a writer has claimed, the token of its file, and the topic's id.

    The token is a random part of the file's name, which makes each claim unique.
    """

    start: int
    end: int
    token: str
    topic_id: UUID | None = None  # brokers before Kafka 2.8 have none

    @property
    def name(self) -> str:
        """The file name that represents the claim."""
        topic_id = "" if self.topic_id is None else f"-{self.topic_id.hex}"
        return f"{self.start:020d}-{self.end:020d}-{self.token}{topic_id}"

    @classmethod
    def parse(cls, name: str) -> "Claim | None":
        """Return the claim that a file name represents, or None if the name represents no claim."""
        if (match := _NAME.fullmatch(name)) is None:
            return None
        topic_id = None if match[4] is None else UUID(match[4])
        return cls(int(match[1]), int(match[2]), match[3], topic_id)


class RangeClaims:
    """The last claim of each partition, stored in a folder that all writers share."""

    def __init__(self, files: Files, folder: PurePath, links: Path | None) -> None:
        self.folder: Final = folder
        self._files = files
        self._links = links  # folder with claims of earlier versions, which had only local ones

    def heads(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim | None]:
        """Return the last claim of each partition, or None if the partition has no claim yet."""
        folders = {tp: self._folder_of(tp) for tp in partitions}
        if new := [tp for tp, folder in folders.items() if not self._files.is_folder(folder)]:
            for tp in new:
                self._create(tp)
            self._files.sync(self.folder)
        return {tp: self._head(tp) for tp in folders}

    def take(self, partition: TopicPartition, head: Claim | None, claim: Claim) -> bool:
        """Replace the last claim by `claim`, if the last claim is still `head`.

        Return False if another writer has replaced `head` before.
        """
        folder = self._folder_of(partition)
        try:
            self._files.rename(folder / _entry(head), folder / claim.name)
        except FileNotFoundError:
            return self.is_head(partition, claim)  # an earlier attempt may have renamed it
        return True

    def is_head(self, partition: TopicPartition, claim: Claim) -> bool:
        """Return whether `claim` is the last claim of the partition."""
        return self._files.exists(self._folder_of(partition) / claim.name)

    def sync(self, partition: TopicPartition) -> None:
        """Make the last claim of the partition durable on disk."""
        self._files.sync(self._folder_of(partition))

    def _folder_of(self, partition: TopicPartition) -> PurePath:
        return self.folder / folder_name(partition)

    def _create(self, partition: TopicPartition) -> None:
        """Create the folder of a partition, with its only entry, in one atomic step.

        The name of the entry is the last claim. Do nothing if the folder exists and has an entry.
        """
        folder = self._folder_of(partition)
        link = None if self._links is None else last_link(self._links / folder.name)
        head = None if link is None else Claim(*link)
        making = self.folder / f".creating-{uuid4().hex}"
        self._files.make_folder(making)
        try:
            self._files.touch(making / _entry(head))
            self._files.rename(making, folder)
        except OSError:
            self._files.delete_folder(making)
            if not self._files.is_folder(folder):  # so no other writer has created the folder
                raise

    def _head(self, partition: TopicPartition) -> Claim | None:
        folder = self._folder_of(partition)
        for _ in range(_MAX_LISTINGS):
            names = [name for name in self._files.names(folder) if not name.startswith(".")]
            if claims := [_claim(folder / name) for name in names if name != _NOTHING]:
                return max(claims)  # a listing during a rename may have both names
            if _NOTHING in names:
                return None
            self._create(partition)  # a power failure can leave an empty folder
        raise ConfigError(
            f"{folder} has no claim. Restore the folder, or remove it to start without claims."
        )


def _entry(claim: Claim | None) -> str:
    return _NOTHING if claim is None else claim.name


def _claim(path: PurePath) -> Claim:
    if (claim := Claim.parse(path.name)) is None:
        raise ConfigError(f"{path} is not a claim of a landing folder. Remove this file.")
    return claim


def folder_name(partition: TopicPartition) -> str:
    """Return the name of the folder that holds a partition's claim."""
    return file_name("", partition.topic, f"-{partition.partition}")


def file_name(before: str, topic: str, after: str) -> str:
    """Return a file name that consists of `before`, the topic and `after`.

    If the name would be too long for a file system, the topic is cut, and a digest of it is added.
    """
    if not is_legal_topic(topic):
        raise ConfigError(f"{topic!r} is not a legal topic name, so it has no file name.")
    name = before + topic + after
    if len(name) <= _MAX_FILE_NAME:
        return name
    digest = f"~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"  # no topic name has a ~
    return before + topic[: _MAX_FILE_NAME - len(before + digest + after)] + digest + after

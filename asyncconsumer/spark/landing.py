"""A folder of Parquet files that a Spark file stream picks up, each record in one of them.

    spark.readStream.schema(...).parquet("landing")

Beside the files there are two folders that Spark does not look into. A file is written into
``_pending``. What makes it count is its claim in ``_offsets``: a symbolic link named for the offset
at which the file begins, which says where it ends, what it is called and, by its id, of which topic
it is: there may have been another of that name. To make a link is atomic, and fails when there is
one already. So of two writers one wins, whatever the other believes to own, and the ranges of a
partition follow each other. Then the file is moved to where Spark sees it; if its writer dies
before that, whoever comes next does it.
"""

import contextlib
import hashlib
import os
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow.parquet as pq

from asyncconsumer.errors import ConfigError
from asyncconsumer.model import TopicPartition
from asyncconsumer.spark.batches import Batch, Part, range_name
from asyncconsumer.spark.sinks import check_topic

_CLAIM: Final = re.compile(r"(\d{20})\.([0-9a-f]{32})(?:\.([0-9a-f]{32}))?")
_FIRST: Final = "first"  # the claim of where everything begins
_SECONDS_KEPT: Final = 24 * 3600.0  # claims, and what was never published: no writer sleeps longer
_CLAIMS_BETWEEN_LOOKS: Final = 1000
_LONGEST_NAME: Final = 255  # of a file; a topic's may be 249
_SLOW: Final = ("offset", "timestamp", "key", "value")  # to look for repeats in


class Claim(NamedTuple):
    """A range that is taken, and by which file."""

    start: int
    end: int
    token: str  # of the file, so that a writer knows its own
    topic_id: UUID | None = None  # not from brokers before Kafka 2.8

    @property
    def target(self) -> str:
        """What its link says."""
        of_which = "" if self.topic_id is None else f".{self.topic_id.hex}"
        return f"{self.end:020d}.{self.token}{of_which}"


class LandingFolder:
    """A sink of Parquet files in a local or network folder that has symbolic links.

    Files are named for topic, partition and offsets. They may be moved away or deleted once they
    were read (Spark's ``cleanSource``): what the folder has had is in ``_offsets``. `parquet` are
    options of `pyarrow.parquet.write_table`.
    """

    remembers: Final = True
    apart: Final = False

    def __init__(self, folder: str | os.PathLike[str], **parquet: Any) -> None:  # noqa: ANN401
        self.folder: Final = Path(folder)
        self._parquet = {"compression": "zstd", **parquet}
        self._claims = Counter[TopicPartition]()  # made by us
        self._ends: dict[TopicPartition, int | None] = {}  # as we saw them last
        self._topics: dict[TopicPartition, UUID | None] = {}  # of which those are

    def __str__(self) -> str:
        return f"the landing folder {self.folder}"

    @property
    def _pending(self) -> Path:
        return self.folder / "_pending"

    def _offsets(self, partition: TopicPartition) -> Path:
        return self.folder / "_offsets" / _name("", partition.topic, f"-{partition.partition}")

    def open(self) -> None:
        """Make the folders, and sweep out what died before it was published."""
        for folder in (self.folder, self._pending, self.folder / "_offsets"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise ConfigError(f"{folder} is a file: name a folder for the sink") from None
        _sync(self.folder)
        if not (old := [path for path in self._pending.iterdir() if _is_old(path)]):
            return
        claimed = self._claimed()  # those are somebody's records, however long ago he died
        for path in old:
            if path.name not in claimed:
                _remove_if_old(path)

    def _claimed(self) -> set[str]:
        """The files of all last claims: one before the last is seen already."""
        folders = [path for path in (self.folder / "_offsets").iterdir() if path.is_dir()]
        return {claim.token for claim in map(_last_claim, folders) if claim is not None}

    # --- offsets ---------------------------------------------------------------------------------

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """What the claims say; a file that was claimed and not moved yet is moved now."""
        folders = {one: self._offsets(one) for one in partitions}
        if new := [claims for claims in folders.values() if not claims.is_dir()]:
            for claims in new:
                claims.mkdir(exist_ok=True)
            _sync(self.folder / "_offsets")
        found = {one: _last_claim(claims) for one, claims in folders.items()}
        for one, claim in found.items():
            if claim is not None and (self._pending / claim.token).exists():
                _sync(folders[one])  # who made it may have died before it was durable
        self._show({one: claim for one, claim in found.items() if claim is not None})
        ends = {
            one: _first(folders[one]) if claim is None else claim.end
            for one, claim in found.items()
        }
        for claims in folders.values():  # who runs only now and then gets to no other time for it
            _forget_old(claims)
        self._ends |= ends
        self._topics |= {one: claim and claim.topic_id for one, claim in found.items()}
        return ends

    def _show(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Move claimed files to where they are seen. Harmless when somebody did."""
        moved = 0
        for one, claim in claims.items():
            rest = f"{range_name(one, claim.start, claim.end)}.parquet"
            seen = self.folder / _name(
                "kafka-", one.topic, rest
            )  # Spark overlooks a leading _ or .
            with contextlib.suppress(FileNotFoundError):
                (self._pending / claim.token).rename(seen)
                moved += 1
        if moved:
            _sync(self.folder)

    # --- batches ---------------------------------------------------------------------------------

    def prepare(self, batch: Batch) -> dict[TopicPartition, str]:
        """Write the files; they are durable, and nobody sees them."""
        tokens = {one: uuid.uuid4().hex for one in batch.parts}
        try:
            for one, part in batch.parts.items():
                self._write(self._pending / tokens[one], part)
            for token in tokens.values():  # after all are written: what one sync does serves many
                _sync(self._pending / token)
        except BaseException:
            self.discard(tokens)
            raise
        _sync(self._pending)
        return tokens

    def _write(self, path: Path, part: Part) -> None:
        table = part.table
        options = {
            "use_dictionary": [name for name in table.column_names if name not in _SLOW],
            "write_statistics": [name for name in table.column_names if name not in _SLOW[2:]],
            **self._parquet,
        }
        pq.write_table(table, str(path), **options)

    def publish(
        self, batch: Batch, prepared: Mapping[TopicPartition, str]
    ) -> Collection[TopicPartition]:
        """Claim the ranges, in the order of the parts, and show the files."""
        self.discard({one: token for one, token in prepared.items() if one not in batch.parts})
        for one, part in batch.parts.items():
            check_topic(self, part, self._ends.get(one), self._topics.get(one), part.topic_id)
        claims = {
            one: Claim(part.start, part.end, prepared[one], part.topic_id)
            for one, part in batch.parts.items()
        }
        ours = {one: claim for one, claim in claims.items() if self._take(one, claim)}
        for one in ours:  # after all are made, as above, and before anybody sees a file
            _sync(self._offsets(one))
        self._note(ours)
        self._show(ours)
        refused = claims.keys() - ours.keys()
        self.discard({one: prepared[one] for one in refused})
        return refused

    def _take(self, partition: TopicPartition, claim: Claim) -> bool:
        """Whether the range is ours."""
        claims, behind = self._offsets(partition), self._ends.get(partition)
        path = claims / f"{claim.start:020d}"
        if not self._is_there(claim):  # moved in a try before, or swept out while we slept
            return path.is_symlink() and _target(path) == claim.target
        if behind is None:  # nobody had anything: all must agree on where it begins
            behind = _agreed(claims / _FIRST, f"{claim.start:020d}")
        # what was an end once stays one, so a claim that begins there can only be made once
        if behind == claim.start and _linked(path, claim.target):
            return True
        return path.is_symlink() and _target(path) == claim.target  # ours, from a try before

    def _note(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """These are made; now and then those that are old can go."""
        for one, claim in claims.items():
            self._ends[one], self._topics[one] = claim.end, claim.topic_id
            self._claims[one] += 1
            if self._claims[one] % _CLAIMS_BETWEEN_LOOKS == 0:
                _forget_old(self._offsets(one))

    def _is_there(self, claim: Claim) -> bool:
        """Whether there is a file to claim for; it is young from now on, so that nobody sweeps."""
        try:
            os.utime(self._pending / claim.token)
        except FileNotFoundError:
            return False
        return True

    def discard(self, prepared: Mapping[TopicPartition, str]) -> None:
        """Delete the files."""
        for token in prepared.values():
            (self._pending / token).unlink(missing_ok=True)


def _claim(path: Path) -> Claim:
    """As its link says."""
    found = _CLAIM.fullmatch(target := _target(path))
    if found is None or not path.name.isdecimal():
        raise ConfigError(
            f"{path} -> {target} is not a claim of a landing folder: remove what is not ours"
        )
    topic_id = None if found[3] is None else UUID(found[3])
    return Claim(int(path.name), int(found[1]), found[2], topic_id)


def _last_claim(claims: Path) -> Claim | None:
    last = max((name for name in _names(claims) if name != _FIRST), default=None)
    return None if last is None else _claim(claims / last)


def _forget_old(claims: Path) -> None:
    """All but the last, which says where to go on, and not too many: a whole group may wait.

    There go twice as many as come between two looks, so that fewer and fewer are left over.
    """
    before = sorted(name for name in _names(claims) if name.isdecimal())[:-1]
    for name in before[: 2 * _CLAIMS_BETWEEN_LOOKS]:
        if not _remove_if_old(claims / name):  # or somebody else is at it, and goes on
            break  # what begins further on was claimed later: a day has very many of them


def _names(folder: Path) -> list[str]:
    """A path for each would cost more than all else here."""
    return os.listdir(folder)  # noqa: PTH208


def _first(claims: Path) -> int | None:
    """Where a partition begins of which nothing is there yet, if that was agreed on."""
    try:
        return int(_target(claims / _FIRST))
    except FileNotFoundError:
        return None


def _name(before: str, topic: str, after: str) -> str:
    """One that a file may have: of a very long topic there is only the beginning, and a digest."""
    whole = before + topic + after
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = f"~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"  # no topic has a ~
    return before + topic[: _LONGEST_NAME - len(before + digest + after)] + digest + after


def _agreed(path: Path, start: str) -> int:
    """Where a partition begins: what the first one says who asks."""
    _linked(path, start)
    return int(_target(path))


def _linked(path: Path, target: str) -> bool:
    """Whether there is a new link now; False if there was one."""
    try:
        path.symlink_to(target)
    except FileExistsError:
        return False
    return True


def _target(path: Path) -> str:
    return str(path.readlink())


def _sync(path: Path) -> None:
    """Make a file's contents durable, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _is_old(path: Path) -> bool:
    try:
        age = datetime.now(UTC).timestamp() - path.lstat().st_mtime
    except FileNotFoundError:  # somebody else was quicker
        return False
    return age > _SECONDS_KEPT


def _remove_if_old(path: Path) -> bool:
    if old := _is_old(path):
        path.unlink(missing_ok=True)
    return old

"""The offsets of a group in ZooKeeper, stored as decimal text as by Kafka's classic consumer."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.errors import (
    BadZnode,
    ConsumerError,
    NodeExists,
    NoNode,
    NothingClaimed,
    SessionExpired,
    ZooKeeperError,
)
from asyncconsumer.offsets.store import check_offsets, commit_error
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.requests import Create, SetData
from asyncconsumer.zookeeper.session import ZooKeeperSession

_NUMBER: Final = re.compile(rb"[0-9]{1,19}")  # a non-negative Java Long
_Kind: TypeAlias = type[SetData] | type[Create]


class ZooKeeperOffsets:
    """The offsets of one group at ``/consumers/GROUP/offsets/TOPIC/PARTITION``.

    `epoch` returns the session in which the partitions are claimed, or None if none is claimed. A
    commit is valid in that session only. In a later session another member may own the partitions,
    and an old commit must not overwrite its offsets. Such a commit raises `SessionExpired`.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        group_id: str,
        *,
        epoch: Callable[[], int | None],
        patience_ms: int = 30_000,
        randomness: Random | None = None,
    ) -> None:
        self._session = session
        self._paths = GroupPaths(group_id)
        self._epoch = epoch
        self._patience_ms = patience_ms
        self._randomness = randomness or Random()  # noqa: S311 - for jitter
        self._there: dict[TopicPartition, int] = {}  # offsets last written or loaded
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition; None where it is missing or invalid.

        After a partition was claimed, its offset is up to date. A server that knows the claim also
        has all earlier writes of the last owner.
        """
        wanted = list(dict.fromkeys(partitions))
        where = [self._paths.offset(partition) for partition in wanted]
        found: dict[TopicPartition, int | None] = {}
        for partition, path, node in zip(
            wanted, where, await self._session.get_many(where), strict=True
        ):
            offset = None if node is None else self._parsed(path, node.data)
            found[partition] = offset
            if offset is None:
                self._there.pop(partition, None)
            else:
                self._there[partition] = offset
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets that differ from those last written or loaded.

        After a connection loss, the offsets are read to find those that were not written. These are
        written again, in the same session. After `SessionExpired` some may have been written.
        """
        check_offsets(offsets)
        epoch = self._claimed_in()
        left = {one: offset for one, offset in offsets.items() if self._there.get(one) != offset}
        failed: dict[TopicPartition, ConsumerError] = {}
        patience = RetryDeadline(self._patience_ms, self._randomness)
        while left:
            errors = await self._write(left, epoch)
            failed |= {one: error for one, error in errors.items() if not error.retriable}
            left = {one: left[one] for one in errors if one not in failed}
            if left:
                try:
                    left = await self._not_written(left, errors[next(iter(left))], patience)
                except ZooKeeperError as error:
                    failed |= dict.fromkeys(left, error)
                    break
        if failed:
            raise commit_error(offsets, failed)

    def _parsed(self, path: str, data: bytes | None) -> int | None:
        """Return the offset in a znode, or None with a warning if it is invalid.

        Any program may have written to the znode. The next commit overwrites it.
        """
        if data is not None and _NUMBER.fullmatch(data) and int(data) < 2**63:
            return int(data)
        self._log.warning("%s", BadZnode(path, f"{_short(data)} is no offset"))
        return None

    # --- writing ---------------------------------------------------------------------------------

    def _claimed_in(self) -> int:
        epoch = self._epoch()
        if epoch is None:
            raise NothingClaimed(self._paths.group)
        if self._session.is_over(epoch):
            raise SessionExpired(self._paths.offsets, f"the session of epoch {epoch} is over")
        return epoch

    async def _write(
        self, offsets: Mapping[TopicPartition, int], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError]:
        """Write offsets as the classic consumer does. Return the errors.

        Most znodes exist. A missing one is created, with its parents if needed. If another client
        creates it meanwhile, its data is set.
        """
        errors: dict[TopicPartition, ZooKeeperError | None] = dict.fromkeys(offsets)

        async def attempt(kind: _Kind, partitions: Iterable[TopicPartition]) -> None:
            chosen = {one: offsets[one] for one in partitions}
            errors.update(await self._attempt(kind, chosen, epoch))

        await attempt(SetData, offsets)
        if missing := _those_with(NoNode, errors):
            await attempt(Create, missing)
        if orphans := _those_with(NoNode, errors):
            errors.update(await self._make_parents(orphans, epoch))
            await attempt(Create, _those_with(NoNode, errors))
        await attempt(SetData, _those_with(NodeExists, errors))
        return {one: error for one, error in errors.items() if error is not None}

    async def _attempt(
        self, kind: _Kind, offsets: Mapping[TopicPartition, int], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError | None]:
        """Send one operation per partition. Return for each its error, or None."""
        operations = []
        for partition, offset in offsets.items():
            operations.append(kind(self._paths.offset(partition), str(offset).encode()))
            self._there.pop(partition, None)  # unknown until there is a response
        errors = _errors(await self._session.write_many(operations, epoch=epoch))
        for (partition, offset), error in zip(offsets.items(), errors, strict=True):
            if error is None:
                self._there[partition] = offset
        return dict(zip(offsets, errors, strict=True))

    async def _make_parents(
        self, partitions: Iterable[TopicPartition], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError]:
        """Create the znodes of topics, without data. Return errors by partition.

        Final errors of single topics are ignored, because the znode may exist even if this client
        may not create it. The write of the partition then shows the error.
        """
        try:
            await ensure_path(self._session, self._paths.offsets)
        except SessionExpired:
            raise
        except ZooKeeperError as refusal:
            return dict.fromkeys(partitions, refusal)
        topics = dict.fromkeys(one.topic for one in partitions)
        parents = [Create(self._paths.topic_offsets(topic)) for topic in topics]
        errors = _errors(await self._session.write_many(parents, epoch=epoch))
        of_topic = dict(zip(topics, errors, strict=True))
        return {
            one: error
            for one in partitions
            if (error := of_topic[one.topic]) is not None and error.retriable
        }

    async def _not_written(
        self,
        offsets: Mapping[TopicPartition, int],
        error: ZooKeeperError,
        patience: RetryDeadline,
    ) -> dict[TopicPartition, int]:
        """Read the offsets again, and return those that were not written.

        The current server may lag behind the one that accepted the write, so `sync` comes first.
        """
        while True:
            await patience.bear(error)
            try:
                await self._session.sync(self._paths.offsets)
                found = await self.load(offsets)
            except ZooKeeperError as trouble:
                error = trouble
                continue
            return {one: offset for one, offset in offsets.items() if found[one] != offset}


def _errors(results: Iterable[object]) -> list[ZooKeeperError | None]:
    """Return the error of each result, or None. Raise `SessionExpired`, which concerns all."""
    errors = [result if isinstance(result, ZooKeeperError) else None for result in results]
    for error in errors:
        if isinstance(error, SessionExpired):
            raise error
    return errors


def _those_with(
    kind: type[ZooKeeperError], errors: Mapping[TopicPartition, ZooKeeperError | None]
) -> list[TopicPartition]:
    return [one for one, error in errors.items() if isinstance(error, kind)]


def _short(data: bytes | None) -> str:
    if not data:
        return "nothing"
    return repr(data) if len(data) <= 40 else f"{data[:40]!r}... ({len(data)} bytes)"

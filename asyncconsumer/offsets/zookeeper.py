"""A group's offsets in ZooKeeper, where Kafka's classic consumer keeps them: decimal texts."""

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

_NUMBER: Final = re.compile(rb"[0-9]{1,19}")  # what Java's Long takes and can be an offset
_Kind: TypeAlias = type[SetData] | type[Create]


class ZooKeeperOffsets:
    """Reads and writes the offsets of one group, at ``/consumers/GROUP/offsets/TOPIC/PARTITION``.

    `epoch` says in which session the partitions are claimed that are committed; None if none is.
    A commit is valid in that session only. In a later one the partitions may be somebody else's,
    whose offsets an old commit must not overwrite: it is SessionExpired there.
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
        self._there: dict[TopicPartition, int] = {}  # as last written or loaded
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset of each partition; None where there is none, or none that makes sense.

        Loaded after its partition was claimed it is not out of date: our server has heard of the
        claim, and so of all that the last owner wrote before.
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
        """Write those that differ from what was last written or loaded, all at once.

        When the connection breaks it is found out by reading which were written, and the others
        are written again, in the same session. After SessionExpired some may have been written.
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
        """Anybody may have written there. What is no offset is reported, and written over."""
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
        """Write them as the classic consumer does; the errors of those that were not written.

        Most nodes are there. Where one is missing it is created, with its parents if need be;
        where another has created it meanwhile, it is set after all.
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
        """Send them; for each its error, or None."""
        operations = []
        for partition, offset in offsets.items():
            operations.append(kind(self._paths.offset(partition), str(offset).encode()))
            self._there.pop(partition, None)  # until there is an answer, nobody knows
        errors = _errors(await self._session.write_many(operations, epoch=epoch))
        for (partition, offset), error in zip(offsets.items(), errors, strict=True):
            if error is None:
                self._there[partition] = offset
        return dict(zip(offsets, errors, strict=True))

    async def _make_parents(
        self, partitions: Iterable[TopicPartition], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError]:
        """Make the nodes of their topics, without data; the errors that have to be sat out.

        Of the others the partition's own write will tell: a topic's node that we may not create
        may be there.
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
        """Those of them that are not there, as reading tells once it is possible again.

        The server that we are with now may lag behind the one that took the write: hence the sync.
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
    """The errors among results; SessionExpired is raised, for it is about all that is to come."""
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

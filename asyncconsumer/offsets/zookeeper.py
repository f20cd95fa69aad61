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
_WriteRequest: TypeAlias = type[SetData] | type[Create]


class ZooKeeperOffsets:
    """The offsets of one group at ``/consumers/GROUP/offsets/TOPIC/PARTITION``.

    `epoch` returns the epoch of the session in which partitions are claimed, or None if none is
    claimed. A commit is valid in that session only: in a later session another member may own the
    partitions, and a late commit must not overwrite its offsets. A late commit raises
    `SessionExpired`.
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
        self._known: dict[TopicPartition, int] = {}  # offsets last written or loaded
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition, or None if it is missing or invalid.

        The offset is up to date if the partition is claimed: a server that knows the claim also has
        all earlier writes of the last owner.
        """
        tps = list(dict.fromkeys(partitions))
        paths = [self._paths.offset(tp) for tp in tps]
        result: dict[TopicPartition, int | None] = {}
        for partition, path, node in zip(
            tps, paths, await self._session.get_many(paths), strict=True
        ):
            offset = None if node is None else self._parse(path, node.data)
            result[partition] = offset
            if offset is None:
                self._known.pop(partition, None)
            else:
                self._known[partition] = offset
        return result

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets that differ from those that were last written or loaded.

        After a connection loss, the znodes are read to find the offsets that were not written.
        These are written again, in the same session. If the session expires, some offsets may have
        been written.
        """
        check_offsets(offsets)
        epoch = self._claim_epoch()
        remaining = {tp: offset for tp, offset in offsets.items() if self._known.get(tp) != offset}
        failed: dict[TopicPartition, ConsumerError] = {}
        patience = RetryDeadline(self._patience_ms, self._randomness)
        while remaining:
            errors = await self._write(remaining, epoch)
            failed |= {tp: error for tp, error in errors.items() if not error.retriable}
            remaining = {tp: remaining[tp] for tp in errors if tp not in failed}
            if remaining:
                try:
                    error = errors[next(iter(remaining))]
                    remaining = await self._not_written(remaining, error, patience)
                except ZooKeeperError as final:
                    failed |= dict.fromkeys(remaining, final)
                    break
        if failed:
            raise commit_error(offsets, failed)

    def _parse(self, path: str, data: bytes | None) -> int | None:
        """Return the offset in a znode. If it is invalid, log a warning and return None.

        Any program may have written to the znode. The next commit overwrites it.
        """
        if data is not None and _NUMBER.fullmatch(data) and int(data) < 2**63:
            return int(data)
        self._log.warning("%s", BadZnode(path, f"{_quote(data)} is not an offset"))
        return None

    # --- writing ---------------------------------------------------------------------------------

    def _claim_epoch(self) -> int:
        epoch = self._epoch()
        if epoch is None:
            raise NothingClaimed(self._paths.group)
        self._session.check_epoch(epoch, self._paths.offsets)
        return epoch

    async def _write(
        self, offsets: Mapping[TopicPartition, int], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError]:
        """Write offsets as the classic consumer does. Return the errors by partition.

        Most znodes exist. A missing znode is created, with its parents if needed. If another client
        creates it meanwhile, its data is set.
        """
        errors: dict[TopicPartition, ZooKeeperError | None] = dict.fromkeys(offsets)

        async def attempt(kind: _WriteRequest, partitions: Iterable[TopicPartition]) -> None:
            chosen = {tp: offsets[tp] for tp in partitions}
            errors.update(await self._attempt(kind, chosen, epoch))

        await attempt(SetData, offsets)
        if missing := _with_error(NoNode, errors):
            await attempt(Create, missing)
        if orphans := _with_error(NoNode, errors):
            errors.update(await self._make_parents(orphans, epoch))
            await attempt(Create, _with_error(NoNode, errors))
        await attempt(SetData, _with_error(NodeExists, errors))
        return {tp: error for tp, error in errors.items() if error is not None}

    async def _attempt(
        self, kind: _WriteRequest, offsets: Mapping[TopicPartition, int], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError | None]:
        """Send one operation of the given kind for each partition.

        Return the error of each partition. It is None if the operation succeeded.
        """
        operations = []
        for partition, offset in offsets.items():
            operations.append(kind(self._paths.offset(partition), str(offset).encode()))
            # the znode's offset is unknown until there is a response
            self._known.pop(partition, None)
        errors = _errors(await self._session.write_many(operations, epoch=epoch))
        for (partition, offset), error in zip(offsets.items(), errors, strict=True):
            if error is None:
                self._known[partition] = offset
        return dict(zip(offsets, errors, strict=True))

    async def _make_parents(
        self, partitions: Iterable[TopicPartition], epoch: int
    ) -> dict[TopicPartition, ZooKeeperError]:
        """Create the parent znodes of the partitions' offsets, without data.

        Return the retriable errors by partition. A permanent error of a topic's znode is ignored,
        because the znode may exist even if this client may not create it. If it does not exist, the
        write of the offset fails. If the parent znode of all topics fails, return its error for all
        partitions.
        """
        try:
            await ensure_path(self._session, self._paths.offsets)
        except SessionExpired:
            raise
        except ZooKeeperError as refusal:
            return dict.fromkeys(partitions, refusal)
        topics = dict.fromkeys(tp.topic for tp in partitions)
        parents = [Create(self._paths.topic_offsets(topic)) for topic in topics]
        errors = _errors(await self._session.write_many(parents, epoch=epoch))
        of_topic = dict(zip(topics, errors, strict=True))
        return {
            tp: error
            for tp in partitions
            if (error := of_topic[tp.topic]) is not None and error.retriable
        }

    async def _not_written(
        self,
        offsets: Mapping[TopicPartition, int],
        error: ZooKeeperError,
        patience: RetryDeadline,
    ) -> dict[TopicPartition, int]:
        """Return the `offsets` that were not written when a commit failed with `error`.

        The znodes are read after a `sync`, because the current server may lag behind the one that
        accepted the write. `patience` limits the time for retries.
        """
        while True:
            await patience.wait_or_raise(error)
            try:
                await self._session.sync(self._paths.offsets)
                result = await self.load(offsets)
            except ZooKeeperError as failure:
                error = failure
                continue
            return {tp: offset for tp, offset in offsets.items() if result[tp] != offset}


def _errors(results: Iterable[object]) -> list[ZooKeeperError | None]:
    """Return the error of each result, or None for a result that is no error.

    Raise a `SessionExpired` that is among the results.
    """
    errors = [result if isinstance(result, ZooKeeperError) else None for result in results]
    for error in errors:
        if isinstance(error, SessionExpired):
            raise error
    return errors


def _with_error(
    kind: type[ZooKeeperError], errors: Mapping[TopicPartition, ZooKeeperError | None]
) -> list[TopicPartition]:
    return [tp for tp, error in errors.items() if isinstance(error, kind)]


def _quote(data: bytes | None) -> str:
    if not data:
        return "nothing"
    return repr(data) if len(data) <= 40 else f"{data[:40]!r}... ({len(data)} bytes)"

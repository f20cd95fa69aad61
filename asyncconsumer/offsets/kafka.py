"""The offsets of a group in Kafka, read with OffsetFetch and committed with OffsetCommit.

This module never joins the group.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final, TypeVar

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.aiokafka_parts import Request, Response
from asyncconsumer.errors import (
    BrokerError,
    ConsumerError,
    FencedMemberEpoch,
    IllegalGeneration,
    NothingClaimed,
    OffsetMetadataTooLarge,
    PartlyCommitted,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.offsets.store import commit_error, failed_partitions
from asyncconsumer.protocol.offset_commit import (
    Commit,
    OffsetCommitRequest,
    OffsetFetchRequest,
    committed_rows,
    fetched_rows,
)
from asyncconsumer.types import NO_MEMBER, MemberIdentity, Offset, TopicPartition

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_NONE: Final = -1
_MAX_CHARACTERS: Final = 2**15 - 1  # limit of the protocol
_MAX_PARTIAL_RETRY_MS: Final = 2_000  # retry limit for errors of some partitions only
_FENCED_ERRORS: Final = IllegalGeneration, UnknownMemberId, FencedMemberEpoch


class KafkaOffsets:
    """The offsets of one group, read from and committed to its current coordinator.

    `identity` is called before each attempt to commit. It returns the identity of the member that
    commits, or None if no partition is assigned. By default it returns `NO_MEMBER`. Kafka accepts
    commits that name no member if the group has no members.

    `patience_ms` limits the time for retries. With `stable_only`, `load` waits for the end of
    transactions that commit offsets.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        patience_ms: int,
        randomness: Random,
        identity: Callable[[], MemberIdentity | None] = lambda: NO_MEMBER,
        stable_only: bool = False,
    ) -> None:
        self.group = coordinator.group_id
        self._coordinator = coordinator
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._identity = identity
        self._stable_only = stable_only
        self._longest_text = _MAX_CHARACTERS

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None where none is committed."""
        tps = list(partitions)
        if not tps:
            return {}
        message = OffsetFetchRequest(self.group, _by_topic(tps), require_stable=self._stable_only)
        return await self._send(lambda: message, lambda response: self._loaded(response, tps))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the given offset of each partition, which is that of the next record to read.

        An offset may have a metadata text, whose length brokers limit. If the broker refuses a text
        that may be cut, it is shortened and the commit is repeated.
        """
        while offsets:
            limit = self._longest_text
            shortened = {tp: Offset.of(offset).within(limit) for tp, offset in offsets.items()}
            try:
                await self._commit(shortened)
            except ConsumerError as error:
                if not self._shorten_texts(shortened, failed_partitions(shortened, error)):
                    raise
            else:
                return

    def _shorten_texts(
        self,
        offsets: Mapping[TopicPartition, Offset],
        failed: Mapping[TopicPartition, ConsumerError],
    ) -> bool:
        """Lower the limit of metadata texts if the broker refused a text that may be cut.

        Return whether the limit was lowered. The caller then repeats the commit.
        """
        too_long = [
            len(offsets[tp].metadata)
            for tp, error in failed.items()
            if isinstance(error, OffsetMetadataTooLarge)
            and offsets[tp].within(0) is not offsets[tp]
        ]
        if not too_long:
            return False
        self._longest_text = min(too_long) // 2
        _log.warning(
            "group %s: the broker refused offset metadata of %d characters; the limit is now %d, "
            "so more records may be redelivered after a restart (see offset.metadata.max.bytes)",
            self.group,
            min(too_long),
            self._longest_text,
        )
        return True

    async def _commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        rows: dict[str, list[Commit]] = {}
        for (topic, partition), offset in offsets.items():
            row = Commit(partition, int(offset), offset.leader_epoch, offset.metadata)
            rows.setdefault(topic, []).append(row)

        def message() -> Request:
            member = self._identity()
            if member is None:
                raise NothingClaimed(self.group)
            return OffsetCommitRequest(
                self.group,
                rows,
                generation=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
            )

        await self._send(message, functools.partial(self._committed, offsets=offsets))

    async def _send(self, message: Callable[[], Request], read: Callable[[Response], T]) -> T:
        deadline = RetryDeadline(self._patience_ms, self._randomness)
        # a deleted topic stays unknown, so this wait is short
        partial_deadline = RetryDeadline(
            min(self._patience_ms, _MAX_PARTIAL_RETRY_MS), self._randomness
        )
        while True:
            try:
                async with self._coordinator.reached(Traffic.GROUP) as connection:
                    return read(await connection.request(message()))
            except ConsumerError as error:
                # A fenced member is informed later which partitions it lost, and then withdraws
                # their commits. The others are committed with its new identity.
                fenced = isinstance(error, _FENCED_ERRORS) and self._identity() != NO_MEMBER
                partial = isinstance(error, PartlyCommitted | UnknownTopicOrPartition)
                await (partial_deadline if partial else deadline).wait_or_raise(
                    error, treat_as_retriable=fenced
                )

    def _loaded(
        self, response: Response, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        offsets: dict[TopicPartition, int | None] = dict.fromkeys(tps)
        self._check(getattr(response, "error_code", 0), f"group {self.group!r}")
        for topic, number, offset, epoch, metadata, code in fetched_rows(response):
            if code:
                about = f"{TopicPartition(topic, number)} in group {self.group!r}"
                raise BrokerError.from_code(code, about)
            if offset != _NONE and (partition := TopicPartition(topic, number)) in offsets:
                offsets[partition] = Offset(offset, leader_epoch=epoch, metadata=metadata)
        return offsets

    def _committed(self, response: Response, offsets: Mapping[TopicPartition, int]) -> None:
        failed: dict[TopicPartition, ConsumerError] = {}
        for topic, number, code in committed_rows(response):
            if code:
                partition = TopicPartition(topic, number)
                about = f"{partition} in group {self.group!r}"
                failed[partition] = BrokerError.from_code(code, about)
        if failed:
            raise commit_error(offsets, failed)

    @staticmethod
    def _check(code: int, about: str) -> None:
        if code:
            raise BrokerError.from_code(code, about)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped

"""A group's offsets in Kafka, kept by its coordinator. Nothing here joins the group."""

import functools
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar

from aiokafka.protocol.api import Request, Response

from asyncconsumer.errors import (
    BrokerError,
    ConsumerError,
    FencedMemberEpoch,
    IllegalGeneration,
    NothingClaimed,
    PartlyCommitted,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from asyncconsumer.model import OUTSIDER, Identity, Offset, TopicPartition
from asyncconsumer.net.brokers import Traffic
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.store import commit_error
from asyncconsumer.tasks.patience import Patience
from asyncconsumer.wire.offset_messages import Commit, OffsetCommitRequest, OffsetFetchRequest

T = TypeVar("T")

_NONE: Final = -1
_MOST_MS_FOR_SOME: Final = 2_000  # that all wait for what only some partitions fail with
_GONE_ON: Final = IllegalGeneration, UnknownMemberId, FencedMemberEpoch


class KafkaOffsets:
    """Reads and commits the offsets of one group, wherever its coordinator is now.

    `identity` says as whom to commit, and is asked before each try: None when nothing is ours.
    Where the group is coordinated elsewhere, Kafka takes a commit from anybody who is not a member.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        patience_ms: int,
        randomness: Random,
        identity: Callable[[], Identity | None] = lambda: OUTSIDER,
        stable_only: bool = False,
    ) -> None:
        self.group = coordinator.group_id
        self._coordinator = coordinator
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._identity = identity
        self._stable_only = stable_only

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        wanted = list(partitions)
        if not wanted:
            return {}
        message = OffsetFetchRequest(
            self.group, _by_topic(wanted), require_stable=self._stable_only
        )
        return await self._ask(lambda: message, lambda response: self._loaded(response, wanted))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, for each partition, the offset of the next record to read."""
        if not offsets:
            return
        rows: dict[str, list[Commit]] = {}
        for (topic, partition), offset in offsets.items():
            kept = Offset.of(offset)
            row = Commit(partition, int(kept), kept.leader_epoch, kept.metadata)
            rows.setdefault(topic, []).append(row)

        def message() -> Request:
            who = self._identity()
            if who is None:
                raise NothingClaimed(self.group)
            return OffsetCommitRequest(
                self.group,
                rows,
                generation=who.generation,
                member_id=who.member_id,
                group_instance_id=who.instance_id,
            )

        await self._ask(message, functools.partial(self._committed, offsets=offsets))

    async def _ask(self, message: Callable[[], Request], read: Callable[[Response], T]) -> T:
        patience = Patience(self._patience_ms, self._randomness)
        # a topic that was deleted is not known any more, and may never be again
        for_some = Patience(min(self._patience_ms, _MOST_MS_FOR_SOME), self._randomness)
        while True:
            try:
                async with self._coordinator.reached(Traffic.GROUP) as connection:
                    return read(await connection.request(message()))
            except ConsumerError as error:
                # a member that the group went on without will be told which partitions it lost, and
                # withdraw the commit of those; the others are committed as who it is by then
                fenced = isinstance(error, _GONE_ON) and self._identity() != OUTSIDER
                some = isinstance(error, PartlyCommitted | UnknownTopicOrPartition)
                await (for_some if some else patience).bear(error, hopeful=fenced)

    def _loaded(
        self, response: Response, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
        answer = response.to_object()
        self._check(answer.get("error_code", 0), f"group {self.group!r}")
        for partition, row in _rows(answer):
            self._check(row["error_code"], f"{partition} in group {self.group!r}")
            if partition in found and row["offset"] != _NONE:
                epoch, metadata = row.get("leader_epoch", -1), row["metadata"] or ""
                found[partition] = Offset(row["offset"], leader_epoch=epoch, metadata=metadata)
        return found

    def _committed(self, response: Response, offsets: Mapping[TopicPartition, int]) -> None:
        failed: dict[TopicPartition, ConsumerError] = {
            partition: BrokerError.of(row["error_code"], f"{partition} in group {self.group!r}")
            for partition, row in _rows(response.to_object())
            if row["error_code"]
        }
        if failed:
            raise commit_error(offsets, failed)

    @staticmethod
    def _check(code: int, about: str) -> None:
        if code:
            raise BrokerError.of(code, about)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _rows(answer: Mapping[str, Any]) -> Iterable[tuple[TopicPartition, Mapping[str, Any]]]:
    for topic in answer["topics"] or ():
        for row in topic["partitions"]:
            yield TopicPartition(topic["name"], row["partition"]), row

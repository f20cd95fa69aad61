"""A group's offsets in Kafka, kept by its coordinator. Nothing here joins the group."""

import functools
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar

from aiokafka.protocol.api import Request, Response
from aiokafka.protocol.coordination import FindCoordinatorRequest

from asyncconsumer.errors import BrokerError, ConsumerError, NothingClaimed
from asyncconsumer.model import Address, TopicPartition
from asyncconsumer.net.brokers import Brokers, Traffic
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.offsets.store import commit_error
from asyncconsumer.tasks.patience import Patience
from asyncconsumer.wire.offset_messages import Commit, OffsetCommitRequest, OffsetFetchRequest

T = TypeVar("T")

_NONE: Final = -1
_GROUP: Final = 0  # a kind of coordinator; the other is for transactions


class KafkaOffsets:
    """Reads and commits the offsets of one group, wherever its coordinator is now.

    Where the group is coordinated elsewhere, Kafka takes a commit from anybody: `claimed` then says
    whether partitions are still ours, and is asked before each try.
    """

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        cluster: Cluster,
        *,
        patience_ms: int,
        randomness: Random,
        claimed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._claimed = claimed
        self.group = group
        self._brokers = brokers
        self._cluster = cluster
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._coordinator: Address | None = None

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        wanted = list(partitions)
        if not wanted:
            return {}
        message = OffsetFetchRequest(self.group, _by_topic(wanted))
        return await self._ask(message, lambda response: self._loaded(response, wanted))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, for each partition, the offset of the next record to read."""
        if not offsets:
            return
        rows: dict[str, list[Commit]] = {}
        for (topic, partition), offset in offsets.items():
            rows.setdefault(topic, []).append(Commit(partition, offset))
        message = OffsetCommitRequest(self.group, rows)
        read = functools.partial(self._committed, offsets=offsets)
        await self._ask(message, read, claimed=self._claimed)

    async def _ask(
        self,
        message: Request,
        read: Callable[[Response], T],
        claimed: Callable[[], bool] = lambda: True,
    ) -> T:
        patience = Patience(self._patience_ms, self._randomness)
        while True:
            try:
                address = self._coordinator or await self._find_coordinator()
                connection = await self._brokers.connection(address, Traffic.GROUP)
                if not claimed():
                    raise NothingClaimed(self.group)
                return read(await connection.request(message))
            except ConsumerError as error:
                self._coordinator = None
                await patience.bear(error)

    async def _find_coordinator(self) -> Address:
        answer = await self._cluster.ask_any(FindCoordinatorRequest(self.group, _GROUP))
        row = answer.to_object()
        if row["error_code"]:
            raise BrokerError.of(row["error_code"], f"the coordinator of group {self.group!r}")
        self._coordinator = Address(row["host"], row["port"])
        return self._coordinator

    def _loaded(
        self, response: Response, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
        answer = response.to_object()
        self._check(answer.get("error_code", 0), f"group {self.group!r}")
        for partition, row in _rows(answer):
            self._check(row["error_code"], f"{partition} in group {self.group!r}")
            if partition in found and row["offset"] != _NONE:
                found[partition] = row["offset"]
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

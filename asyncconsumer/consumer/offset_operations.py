"""The methods of a `Consumer` for commits, positions, seeks, pauses and offset queries."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.config.consumer import ConsumerConfig
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.subscription import Collaborators
from asyncconsumer.consumer.subscription_spec import (
    offsets_by_partition,
    partition_of,
    partitions_of,
)
from asyncconsumer.consumer.unsubscribed_offsets import UnsubscribedOffsets
from asyncconsumer.errors import ConfigError
from asyncconsumer.offsets.store import is_offset
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.messages import Message
from asyncconsumer.types import OffsetAndTimestamp, TopicPartition

_POLL_SECONDS: Final = 0.01


class OffsetOperations(ABC):
    """A base class of `Consumer` with methods for commits, positions, seeks and offset queries."""

    def __init__(self, config: ConsumerConfig, collaborators: Collaborators) -> None:
        self.config: Final = config
        self._collaborators = collaborators

    @property
    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""

    @property
    @abstractmethod
    def _runner(self) -> MembershipRunner: ...

    @property
    @abstractmethod
    def _lookups(self) -> OffsetQueries: ...

    @property
    @abstractmethod
    def _direct_offsets(self) -> UnsubscribedOffsets | None:
        """The offsets of the group while nothing is subscribed, otherwise None."""

    @abstractmethod
    def _user_seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Seek to the offset of each partition at the request of the user.

        Subclasses extend this to drop state that a seek makes invalid.
        """

    @property
    def _rebalancer(self) -> Rebalancer:
        return self._runner.rebalancer

    @property
    def connection(self) -> ConnectionConfig:
        """The connection options.

        For a ZooKeeper group, `bootstrap_servers` may have the broker addresses from ZooKeeper.
        """
        return self._lookups.connection

    @property
    def member_id(self) -> str | None:
        """The member id from the coordinator, or None if it is unknown or the member is static."""
        identity = self._runner.identity
        if identity is None or identity.instance_id is not None:
            return None
        return identity.member_id or None

    @property
    def commits(self) -> bool:
        """Whether this consumer can commit offsets, to a group or to a custom store."""
        return self._collaborators.commits(self.config)

    @property
    def keeps_metadata(self) -> bool:
        """Whether the offset store keeps the metadata of a committed `Offset`."""
        return self._collaborators.keeps_metadata(self.config)

    def _check_commits(self) -> None:
        if not self.commits:
            raise ConfigError(
                "this consumer cannot commit offsets without a `group_id`. Set `group_id`"
            )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Record | Message[Any, Any] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit the acknowledged records, or a record and all before it, or the given offsets.

        Without offsets, a call by the task that reads acknowledges the records that this task has
        in flight. A call by another task commits only the records that are acknowledged already.

        Return the committed offsets. Partitions that are not assigned any more are left out, and
        their new owners continue from the last commit. An offset may be an `asyncconsumer.Offset`
        with metadata.
        """
        self._check_commits()
        if (direct := self._direct_offsets) is not None:
            return await direct.commit(offsets)
        if isinstance(offsets, Record | Message):
            tp = TopicPartition(offsets.topic, offsets.partition)
            return await self._runner.commit({tp: offsets.offset + 1}, rewind=False)
        if offsets is None:
            return await self._runner.commit()
        return await self._runner.commit(offsets_by_partition(offsets))

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        Without `partitions`, return the offsets of all assigned partitions.
        """
        self._check_commits()
        requested = self.assignment if partitions is None else partitions_of(partitions)
        if (direct := self._direct_offsets) is not None:
            return await direct.load(requested)
        return await self._runner.committer.load(requested)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the partition's next record to deliver.

        If it is not known yet, wait until the committed offset or the start of reading is looked
        up.
        """
        while (position := self.position_now(partition)) is None:
            self._runner.check()
            if (start := self._rebalancer.start_to_look_up(partition)) is None:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            # A listener may wait for the position, and fetching waits for the listener. Fetching
            # cannot look up the position then, so look it up here.
            offset = (await self._lookups.ends([partition], start))[partition]
            if self._rebalancer.start_to_look_up(partition) == start:
                self._user_seek({partition: offset})
        return position

    def position_now(self, partition: TopicPartition) -> int | None:
        """Return the offset of the partition's next record to deliver.

        Return None while it is not known.
        """
        return self._rebalancer.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the partition's next record. Drop its records that are buffered."""
        if not is_offset(offset):
            raise ConfigError(
                f"cannot seek to {offset!r} of {partition}: an offset is a whole number from 0 on. "
                "For the ends of the log, call seek_to_beginning() or seek_to_end()"
            )
        self._user_seek({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or the whole assignment, from the first record of the log."""
        self._user_seek(dict.fromkeys(partitions or self.assignment, EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or the whole assignment, from the end of the log."""
        self._user_seek(dict.fromkeys(partitions or self.assignment, LATEST))

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until `resume`, even after a rebalance.

        Without arguments this does nothing, as in Java.
        """
        self._rebalancer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these paused partitions again."""
        self._rebalancer.resume(partitions)

    async def partitions_for(self, topic: str) -> frozenset[TopicPartition]:
        """Return all partitions of a topic. If the topic does not exist, return an empty set."""
        return await self._lookups.partitions(topic)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Each leader gets one request.

        Raise UnknownTopicOrPartition at once for a partition that its topic does not have.
        """
        return await self._lookups.ends(partitions_of(partitions), EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will have.

        Each leader gets one request. The errors are those of `beginning_offsets`.
        """
        return await self._lookups.ends(partitions_of(partitions), LATEST)

    async def offsets_for_times(
        self, moments: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first record at or after a time, as offset and timestamp.

        The result is None for a partition without such a record. A time is a datetime with a time
        zone, or milliseconds since 1970.
        """
        return await self._lookups.for_times(
            {partition_of(tp): moment for tp, moment in moments.items()}
        )

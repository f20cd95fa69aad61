"""Where a consumer reads, and what its group knows of it: what does not depend on what it reads."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.config.consumer import ConsumerConfig
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.subscription import Collaborators
from asyncconsumer.consumer.subscription_spec import partition_of, partitions_of
from asyncconsumer.consumer.unsubscribed_offsets import UnsubscribedOffsets
from asyncconsumer.errors import ConfigError
from asyncconsumer.offsets.store import is_offset
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.messages import Message
from asyncconsumer.types import OffsetAndTimestamp, TopicPartition

_SECONDS_BETWEEN_LOOKS: Final = 0.01


class OffsetOperations(ABC):
    """The part of a `Consumer` that speaks of offsets."""

    def __init__(self, config: ConsumerConfig, given: Collaborators) -> None:
        self.config: Final = config
        self._given = given

    @property
    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""

    @property
    @abstractmethod
    def _following(self) -> MembershipRunner: ...

    @property
    @abstractmethod
    def _lookups(self) -> OffsetQueries: ...

    @property
    @abstractmethod
    def _direct_offsets(self) -> UnsubscribedOffsets | None:
        """The offsets of the group, if nothing is subscribed."""

    @abstractmethod
    def _go_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read on from there, because the user wants to."""

    @property
    def _rebalancer(self) -> Rebalancer:
        return self._following.rebalancer

    @property
    def connection(self) -> ConnectionConfig:
        """How brokers are reached: as it was told, or as ZooKeeper told when it was opened."""
        return self._lookups.connection

    @property
    def member_id(self) -> str | None:
        """How the coordinator knows us; None while it does not, and for static members."""
        who = self._following.identity
        return None if who is None or who.instance_id is not None else who.member_id or None

    @property
    def commits(self) -> bool:
        """Whether there is a place to keep offsets: a group's, or a store of your own."""
        return self._given.commits(self.config)

    @property
    def keeps_metadata(self) -> bool:
        """Whether the metadata of an `Offset` that is committed surely comes back with it."""
        return self._given.keeps_metadata(self.config)

    def _check_commits(self) -> None:
        if not self.commits:
            raise ConfigError("without a group_id there is no place to keep offsets: name one")

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Record | Message[Any, Any] | None = None,
    ) -> dict[TopicPartition, int]:
        """Commit what is acknowledged, or a record and all before it, or these offsets.

        Without offsets, a call by the task that reads acknowledges what that task has in hand. A
        call by another task commits what is acknowledged already.

        Returns what was committed. A partition that a rebalance took is left out: whoever has it
        now reads on from the last commit. An `asyncconsumer.Offset` may carry a text to be kept
        beside it.
        """
        self._check_commits()
        if (direct := self._direct_offsets) is not None:
            return await direct.commit(offsets)
        if isinstance(offsets, Record | Message):
            place = TopicPartition(offsets.topic, offsets.partition)
            return await self._following.commit({place: offsets.offset + 1}, rewind=False)
        if offsets is None:
            return await self._following.commit()
        if not isinstance(offsets, Mapping):
            raise ConfigError(f"commit({offsets!r}): give a record, or offsets by partition")
        return await self._following.commit({partition_of(one): at for one, at in offsets.items()})

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed, of these partitions or of all that are ours."""
        self._check_commits()
        wanted = self.assignment if partitions is None else partitions_of(partitions)
        if (direct := self._direct_offsets) is not None:
            return await direct.load(wanted)
        return await self._following.committer.load(wanted)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out."""
        while (found := self.position_now(partition)) is None:
            self._following.check()
            if (start := self._rebalancer.start_to_look_up(partition)) is None:
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
                continue
            # a listener waits for this, and reading for the listener: so it begins where we say
            at = (await self._lookups.ends([partition], start))[partition]
            if self._rebalancer.start_to_look_up(partition) == start:
                self._go_to({partition: at})
        return found

    def position_now(self, partition: TopicPartition) -> int | None:
        """The same, or None while it is being looked up."""
        return self._rebalancer.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there; nothing that was fetched before is handed out any more."""
        if not is_offset(offset):
            raise ConfigError(
                f"seek to {offset!r} of {partition}: give a whole number from 0 on; for the ends "
                "there are seek_to_beginning and seek_to_end"
            )
        self._go_to({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these, or all that are ours, from the first record there is."""
        self._go_to(dict.fromkeys(partitions or self.assignment, EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read of these, or of all that are ours, only what is written from now on."""
        self._go_to(dict.fromkeys(partitions or self.assignment, LATEST))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; rebalances do not change that.

        As Java's: without any it does nothing, so a list that is empty pauses nothing.
        """
        self._rebalancer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        self._rebalancer.resume(partitions)

    async def partitions_for(self, topic: str) -> frozenset[TopicPartition]:
        """All partitions of a topic, whoever reads them; none if there is no such topic."""
        return await self._lookups.partitions(topic)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition has. Sends one request to each leader.

        Raises UnknownTopicOrPartition at once for a partition that its topic does not have.
        """
        return await self._lookups.ends(partitions_of(partitions), EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have.

        Sends one request to each leader, and raises what `beginning_offsets` raises.
        """
        return await self._lookups.ends(partitions_of(partitions), LATEST)

    async def offsets_for_times(
        self, moments: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offset and timestamp of the first record at or after a moment; None if none is as new.

        A moment is a datetime with a time zone, or milliseconds since 1970.
        """
        return await self._lookups.for_times({partition_of(one): at for one, at in moments.items()})

"""What a feeder says to its group: how far it is, and which batch it is about to write.

A sink that keeps no offsets may hold a batch of which the group does not know yet, when the process
dies in between. So the end of a batch is committed before it is written, as a text beside the
offset at which it begins. Whoever goes on there makes the same batch again, under the same id, and
the sink can tell that it has it: Delta by ``txnVersion``, others by a key.
"""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import (
    ConsumerError,
    FencedMemberEpoch,
    IllegalGeneration,
    NothingClaimed,
    UnknownMemberId,
)
from asyncconsumer.spark.feeder.batches import BatchPart, FeedBatch, WriteIntent
from asyncconsumer.types import Offset, TopicPartition

_log: Final = logging.getLogger(__name__)
_UNTIL: Final = re.compile(r"asyncconsumer batch until (\d{1,19})(?: of ([0-9a-f]{32}))?")
_NOT_OURS: Final = NothingClaimed, IllegalGeneration, UnknownMemberId, FencedMemberEpoch


class WriteIntents:
    """Commits for a feeder. Only where they are `needed` are batches promised."""

    def __init__(self, consumer: Consumer[Any, Any], *, needed: bool) -> None:
        self.failed = 0  # commits; the sink has what they would have told
        self._consumer = consumer
        self._needed = needed

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, WriteIntent]]:
        """Where to go on, and what was promised of the first batch."""
        kept = await self._consumer.committed(partitions)
        promised: dict[TopicPartition, WriteIntent] = {}
        for one, offset in kept.items():
            if offset is not None and (found := _UNTIL.fullmatch(Offset.of(offset).metadata)):
                topic_id = None if found[2] is None else UUID(found[2])
                promised[one] = WriteIntent(int(found[1]), topic_id)
        return kept, promised

    async def make(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Promise a batch; returns the partitions that are not ours to promise for."""
        if not self._needed:
            return ()
        offsets = {
            one: Offset(part.start, metadata=_text_of(part)) for one, part in batch.parts.items()
        }
        try:
            promised = await self._consumer.commit(offsets)
        except _NOT_OURS as error:
            _log.warning("%s is not written, for the group went on without us: %s", batch.id, error)
            return batch.parts.keys()
        return batch.parts.keys() - promised.keys()

    async def tell(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these is written, or nothing was yet, and this is where it will begin."""
        if not self._consumer.commits:
            return
        try:
            await self._consumer.commit(offsets)
        except ConsumerError as error:
            self.failed += 1
            told = ", ".join(f"{one} {int(at)}" for one, at in offsets.items())
            _log.warning("the group was not told how far we are (%s): %s", told, error)


def _text_of(part: BatchPart) -> str:
    of_which = "" if part.topic_id is None else f" of {part.topic_id.hex}"
    return f"asyncconsumer batch until {part.end}{of_which}"

"""The commits of a feeder: the written offsets, and the batch that it is about to write.

A process may die after it wrote a batch and before it committed the batch's end. A sink that keeps
no offsets cannot tell the next owner. So the end of each batch is committed before it is written,
as metadata of the offset at which the batch begins. The next owner of the partition writes the same
batch again, under the same id. The sink can recognise it: Delta by ``txnVersion``, others by a key.
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
    """The commits of a feeder. Intents are declared only if they are `needed`."""

    def __init__(self, consumer: Consumer[Any, Any], *, needed: bool) -> None:
        self.failed = 0  # commits; the data is in the sink nevertheless
        self._consumer = consumer
        self._needed = needed

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, WriteIntent]]:
        """Return the committed offsets, and the intents declared with them."""
        kept = await self._consumer.committed(partitions)
        promised: dict[TopicPartition, WriteIntent] = {}
        for one, offset in kept.items():
            if offset is not None and (found := _UNTIL.fullmatch(Offset.of(offset).metadata)):
                topic_id = None if found[2] is None else UUID(found[2])
                promised[one] = WriteIntent(int(found[1]), topic_id)
        return kept, promised

    async def make(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Declare the intent to write a batch. Return the partitions that were not committed."""
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
        """Commit offsets before which everything is written. A failure is logged and counted."""
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

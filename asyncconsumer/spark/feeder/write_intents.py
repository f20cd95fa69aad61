"""The commits of a feeder: the offsets that are written, and the batch that it is about to write.

A process may die after it wrote a batch and before it committed the batch's end. A sink that stores
no offsets cannot show that the batch was written. So the end of each batch is committed before it
is written, as metadata of the offset at which the batch begins. The next owner of the partition
writes the same batch again, under the same id. The sink can recognise a repeated batch: Delta by
``txnVersion``, other sinks by a key.
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
_METADATA: Final = re.compile(r"asyncconsumer batch until (\d{1,19})(?: of ([0-9a-f]{32}))?")
_NOT_OWNED: Final = NothingClaimed, IllegalGeneration, UnknownMemberId, FencedMemberEpoch


class WriteIntents:
    """The commits of a feeder to its group.

    Write intents are declared only if `needed` is set, for sinks that store no offsets.
    """

    def __init__(self, consumer: Consumer[Any, Any], *, needed: bool) -> None:
        self.failed = 0  # number of failed commits; the data is in the sink nevertheless
        self._consumer = consumer
        self._needed = needed

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, WriteIntent]]:
        """Return the committed offset of each partition, or None, and the write intents.

        The second mapping has only the partitions whose last commit declared an intent.
        """
        committed = await self._consumer.committed(partitions)
        intents: dict[TopicPartition, WriteIntent] = {}
        for tp, offset in committed.items():
            if offset is not None and (match := _METADATA.fullmatch(Offset.of(offset).metadata)):
                topic_id = None if match[2] is None else UUID(match[2])
                intents[tp] = WriteIntent(int(match[1]), topic_id)
        return committed, intents

    async def declare(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Commit the intent to write a batch, before the batch is written.

        Return the partitions for which the commit failed. They must not be written, because another
        member may own them.
        """
        if not self._needed:
            return ()
        offsets = {
            tp: Offset(part.start, metadata=_metadata(part)) for tp, part in batch.parts.items()
        }
        try:
            declared = await self._consumer.commit(offsets)
        except _NOT_OWNED as error:
            _log.warning(
                "batch %s is not written, because this member is fenced: %s", batch.id, error
            )
            return batch.parts.keys()
        return batch.parts.keys() - declared.keys()

    async def record(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets`, because the sink has every record before them.

        A failed commit is logged and counted.
        """
        if not self._consumer.commits:
            return
        try:
            await self._consumer.commit(offsets)
        except ConsumerError as error:
            self.failed += 1
            text = ", ".join(f"{tp} {offset}" for tp, offset in offsets.items())
            _log.warning("failed to commit written offsets to the group (%s): %s", text, error)


def _metadata(part: BatchPart) -> str:
    topic_id = "" if part.topic_id is None else f" of {part.topic_id.hex}"
    return f"asyncconsumer batch until {part.end}{topic_id}"

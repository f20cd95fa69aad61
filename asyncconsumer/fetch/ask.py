"""One fetch: what to ask one broker of several partitions, and what its answer says of each."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import BrokerError, MalformedResponse
from asyncconsumer.model import TopicPartition
from asyncconsumer.net.connection import RawAnswer
from asyncconsumer.wire import accel
from asyncconsumer.wire.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)

_NO_END: Final = 2**63 - 1


class Ask(NamedTuple):
    """Where to read a partition, and how much of it at the most."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1  # what we believe it to be; -1 when we do not know
    topic_id: UUID | None = None


class Fetched(NamedTuple):
    """What one fetch brought of one partition. The records are still in the answer's buffer."""

    partition: TopicPartition
    offset: int  # that was asked for
    error: BrokerError | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    preferred_replica: int  # the node to read from instead, or -1
    data: memoryview

    @property
    def end_offset(self) -> int:
        """Where to read on; the offset that was asked for when no whole batch came."""
        return accel.end_offset(self.data, self.offset)

    def records(self, config: FetchConfig, end: int | None = None) -> accel.Records:
        """The records, up to an end if there is one, decoded as they are iterated over."""
        return accel.Records(
            self.data,
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.offset,
            end=_NO_END if end is None else end,
            aborted=(self.aborted or ()) if config.committed_only else None,
            check_crc=config.check_crcs,
            max_inflated=config.max_inflated_bytes,
        )


def request(
    wanted: Mapping[TopicPartition, Ask],
    config: FetchConfig,
    *,
    max_wait_ms: int | None = None,
    rack: str = "",
) -> FetchRequest:
    """The request for these partitions, all led by one broker.

    Who tells a `rack` must be ready to be sent to a replica there, with no records.
    """
    topics: dict[FetchTopic, list[FetchPartition]] = {}
    for (topic, partition), ask in wanted.items():
        rows = topics.setdefault(FetchTopic(topic, ask.topic_id), [])
        rows.append(FetchPartition(partition, ask.offset, ask.max_bytes, ask.leader_epoch))
    return FetchRequest(
        topics,
        max_wait_ms=config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=READ_COMMITTED if config.committed_only else READ_UNCOMMITTED,
        rack=rack,
    )


def understand(raw: RawAnswer, wanted: Mapping[TopicPartition, Ask]) -> list[Fetched]:
    """What the answer says of each partition asked for; raises if the broker refused it all."""
    answer = accel.fetch_answer(raw.body, raw.version)
    if answer.error_code:
        raise BrokerError.of(answer.error_code, "a fetch")
    names = {ask.topic_id.bytes: tp.topic for tp, ask in wanted.items() if ask.topic_id}
    found = []
    for part in answer.partitions:
        topic = names.get(part.topic) if isinstance(part.topic, bytes) else part.topic
        partition = TopicPartition(topic or "", part.partition)
        if partition not in wanted:
            reason = f"partition {part.partition} of topic {part.topic!r} was not asked for"
            raise MalformedResponse("Fetch", raw.version, part.start, reason)
        error = BrokerError.of(part.error_code, str(partition)) if part.error_code else None
        found.append(
            Fetched(
                partition,
                wanted[partition].offset,
                error,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                part.aborted,
                part.preferred_read_replica,
                raw.body[part.start : part.end],
            )
        )
    return found

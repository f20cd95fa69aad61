"""Fetch requests to one broker for several partitions, and the parsing of their responses."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import BrokerError, ConsumerError, CorruptRecords, MalformedResponse
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.protocol.messages import (
    NO_SESSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from asyncconsumer.records import decoding
from asyncconsumer.types import TopicPartition

_NO_END: Final = 2**63 - 1
_LARGE_BATCH: Final = 128 * 2**20  # bytes; an incomplete batch that claims more is corrupt
_ORDINARY_BATCH: Final = 2**20  # bytes; Kafka's default `message.max.bytes`
_ENTRY_HEAD: Final = Struct(">qi")  # offset and length, in every message format
MOST_THROTTLE: Final = 30.0  # seconds; longer throttle times are cut to this


class PartitionFetch(NamedTuple):
    """The entry of one partition in a fetch request."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1  # the known leader epoch, or -1
    topic_id: UUID | None = None
    read_epoch: int = -1  # of the last record read; lets the broker detect divergence


class PartitionResponse(NamedTuple):
    """The response for one partition. Its records are still in the response buffer."""

    partition: TopicPartition
    offset: int  # the requested offset
    error: BrokerError | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    preferred_replica: int  # preferred read replica (KIP-392), or -1
    data: memoryview
    current_leader: tuple[int, int] | None = None  # node id and epoch, if the broker sends them
    diverging: tuple[int, int] | None = None  # epoch and offset where the logs diverge
    throttle: float = 0.0  # seconds for which the broker throttles this client

    @property
    def end_offset(self) -> int:
        """Return the next offset to fetch.

        Without a complete batch this is the requested offset.
        """
        return self.end[0]

    @property
    def end(self) -> tuple[int, int]:
        """Return the next offset to fetch, and the leader epoch of the last batch or -1."""
        return decoding.record_set_end(self.data, self.offset)

    def records(
        self, config: FetchConfig, end: int | None = None, bodies: BodyCache | None = None
    ) -> decoding.Records:
        """Return the records up to `end`, decoded during iteration.

        Decompressed bodies are charged to `bodies`.
        """
        return decoding.Records(
            self.data,
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.offset,
            end=_NO_END if end is None else end,
            aborted=(self.aborted or ()) if config.committed_only else None,
            check_crc=config.check_crcs,
            max_inflated=config.max_decompressed_bytes,
            # a complete batch was already accepted by `max_frame_bytes`
            max_batch=max(len(self.data), _LARGE_BATCH),
            bodies=bodies,
        )

    def fault(self, config: FetchConfig) -> ConsumerError:
        """Return the error for data without a complete batch at the requested offset."""
        records = self.records(config)
        try:
            for _ in records:
                pass
        except CorruptRecords as damage:
            return damage
        if records.incomplete:
            reason = f"a batch of {records.incomplete} bytes, of which {records.size} ever come"
            return CorruptRecords(*self.partition, self.offset, reason)
        reason = f"records that end at {self.end_offset}, before what was asked for"
        return MalformedResponse("Fetch", -1, 0, reason)


def request(
    wanted: Mapping[TopicPartition, PartitionFetch],
    config: FetchConfig,
    *,
    max_wait_ms: int | None = None,
    max_bytes: int | None = None,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Mapping[FetchTopic, Sequence[int]] | None = None,
    rack: str = "",
) -> FetchRequest:
    """Return the fetch request for partitions that one broker serves.

    If `rack` is set, the leader may answer with a preferred replica and no records.
    """
    topics: dict[FetchTopic, list[FetchPartition]] = {}
    last, rows = FetchTopic(""), list[FetchPartition]()
    for (topic, partition), (offset, size, epoch, topic_id, read_epoch) in wanted.items():
        # Neighbours mostly belong to one topic, and hashing a UUID is slow.
        if topic != last.name or topic_id is not last.topic_id:
            last = FetchTopic(topic, topic_id)
            rows = topics.setdefault(last, [])
        rows.append(FetchPartition(partition, offset, size, epoch, read_epoch))
    return FetchRequest(
        topics,
        max_wait_ms=config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes if max_bytes is None else max_bytes,
        session=session,
        forgotten=forgotten,
        isolation_level=READ_COMMITTED if config.committed_only else READ_UNCOMMITTED,
        rack=rack,
    )


def check_size(raw: RawResponse, answer: decoding.FetchAnswer, asked: int) -> None:
    """Raise `MalformedResponse` for far more than the `asked` bytes of records.

    A broker may exceed them by one batch, which it always sends completely. A larger response would
    use memory that is not reserved. Some brokers stop only after the limit is exceeded. They are
    allowed twice the limit, or the limit plus an ordinary batch.
    """
    sizes = [part.end - part.start for part in answer.partitions]
    if sum(sizes) <= asked:
        return
    allowed = asked + max(asked, _ORDINARY_BATCH)
    for part in answer.partitions:
        allowed += min(part.end - part.start, _first_batch(raw.body[part.start : part.end]))
    if sum(sizes) > allowed:
        reason = f"{sum(sizes)} bytes of records, where {asked} and a batch were asked for"
        raise MalformedResponse("Fetch", raw.version, 0, reason)


def _first_batch(data: memoryview) -> int:
    """Return the size that the first batch claims, in bytes."""
    if len(data) < _ENTRY_HEAD.size:
        return len(data)
    return _ENTRY_HEAD.size + max(0, int(_ENTRY_HEAD.unpack_from(data)[1]))


def understand(
    raw: RawResponse, wanted: Mapping[TopicPartition, PartitionFetch], max_bytes: int = 2**31 - 1
) -> list[PartitionResponse]:
    """Return the response for each requested partition.

    Raise an error if the broker refused the whole request. A partition that the response does not
    name has no records. A broker that throttles the client names none at all. `max_bytes` is the
    requested limit for all partitions together.
    """
    answer = decoding.fetch_answer(raw.body, raw.version)
    if answer.error_code:
        raise BrokerError.of(answer.error_code, "a fetch")
    check_size(raw, answer, min(max_bytes, sum(ask.max_bytes for ask in wanted.values())))
    names = {ask.topic_id.bytes: tp.topic for tp, ask in wanted.items() if ask.topic_id}
    found: dict[TopicPartition, PartitionResponse] = {}
    for part in answer.partitions:
        one = understand_part(raw, part, wanted, names)
        if found.setdefault(one.partition, one) is not one:
            reason = f"{one.partition} is in it twice"
            raise MalformedResponse("Fetch", raw.version, part.start, reason)
    throttle = min(max(0.0, answer.throttle_ms / 1000), MOST_THROTTLE)
    return [
        (found.get(at) or _nothing(at, ask))._replace(throttle=throttle)
        for at, ask in wanted.items()
    ]


def _nothing(partition: TopicPartition, ask: PartitionFetch) -> PartitionResponse:
    return PartitionResponse(partition, ask.offset, None, -1, -1, -1, None, -1, memoryview(b""))


def understand_part(
    raw: RawResponse,
    part: decoding.PartitionAnswer,
    wanted: Mapping[TopicPartition, PartitionFetch],
    names: Mapping[bytes, str],
) -> PartitionResponse:
    """Return the response for one partition. `names` has the topics by the bytes of their ids."""
    topic = names.get(part.topic) if isinstance(part.topic, bytes) else part.topic
    partition = TopicPartition(topic or "", part.partition)
    ask = wanted.get(partition)
    if ask is None:
        reason = f"partition {part.partition} of topic {part.topic!r} was not asked for"
        raise MalformedResponse("Fetch", raw.version, part.start, reason)
    return PartitionResponse(
        partition,
        ask.offset,
        BrokerError.of(part.error_code, str(partition)) if part.error_code else None,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.aborted,
        part.preferred_read_replica,
        raw.body[part.start : part.end],
        part.current_leader,
        part.diverging_epoch,
    )

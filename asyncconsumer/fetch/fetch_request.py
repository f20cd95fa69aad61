"""Fetch requests for several partitions of one broker, and the parser of their responses."""

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
_LARGE_BATCH: Final = 128 * 2**20  # bytes; an incomplete larger batch is corrupt
_ORDINARY_BATCH: Final = 2**20  # bytes; Kafka's default `message.max.bytes`
_ENTRY_HEAD: Final = Struct(">qi")  # offset and length, in every message format
_MAX_THROTTLE: Final = 30.0  # seconds; longer throttle times are cut to this


class PartitionFetch(NamedTuple):
    """The entry for one partition in a Fetch request."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1  # the known leader epoch, or -1
    topic_id: UUID | None = None
    # leader epoch of the last record read, by which the broker detects divergence
    read_epoch: int = -1


class PartitionResponse(NamedTuple):
    """The part of a Fetch response for one partition. Its records are not decoded yet."""

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
        """The offset after the last complete record batch, at which the next fetch starts.

        If the response has no complete record batch, this is the requested offset.
        """
        return self.end[0]

    @property
    def end(self) -> tuple[int, int]:
        """The next offset to fetch, and the leader epoch of the last complete record batch.

        Without a complete record batch, these are the requested offset and -1.
        """
        return decoding.record_set_end(self.data, self.offset)

    def records(
        self, config: FetchConfig, end: int | None = None, bodies: BodyCache | None = None
    ) -> decoding.Records:
        """Return the records before offset `end`. They are decoded during iteration.

        `bodies` limits the memory of decompressed record batches. None means no limit.
        """
        return decoding.Records(
            self.data,
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.offset,
            end=_NO_END if end is None else end,
            aborted=(self.aborted or ()) if config.committed_only else None,
            check_crc=config.check_crcs,
            max_decompressed_bytes=config.max_decompressed_bytes,
            # a complete batch was already accepted by `max_frame_bytes`
            max_batch=max(len(self.data), _LARGE_BATCH),
            bodies=bodies,
        )

    def decode_error(self, config: FetchConfig) -> ConsumerError:
        """Return the error for data without a complete record batch at the requested offset."""
        records = self.records(config)
        try:
            for _ in records:
                pass
        except CorruptRecords as error:
            return error
        if records.incomplete:
            reason = f"the broker sends {records.size} bytes of a batch of {records.incomplete}"
            return CorruptRecords(*self.partition, self.offset, reason)
        reason = f"the records end at {self.end_offset}, before the requested {self.offset}"
        return MalformedResponse("Fetch", -1, 0, reason)


def build_request(
    fetches: Mapping[TopicPartition, PartitionFetch],
    config: FetchConfig,
    *,
    max_wait_ms: int | None = None,
    max_bytes: int | None = None,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Mapping[FetchTopic, Sequence[int]] | None = None,
    rack: str = "",
) -> FetchRequest:
    """Return the Fetch request for partitions that one broker serves.

    `session` has the id and epoch of the fetch session, and `forgotten` the partitions to remove
    from it. If `rack` is set, the leader may return no records, but the preferred replica to fetch
    from.
    """
    topics: dict[FetchTopic, list[FetchPartition]] = {}
    last, rows = FetchTopic(""), list[FetchPartition]()
    for (topic, partition), (offset, size, epoch, topic_id, read_epoch) in fetches.items():
        # Consecutive partitions mostly belong to one topic, and hashing a UUID is slow.
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


def check_size(raw: RawResponse, response: decoding.FetchAnswer, limit: int) -> None:
    """Raise `MalformedResponse` if a response has far more than `limit` bytes of records.

    A broker may exceed the limit by one record batch, which it always sends completely. Some
    brokers stop only after the limit is exceeded. They may send twice the limit, or 1 MiB more than
    the limit if that is larger. A larger response would use memory that is not reserved.
    """
    sizes = [part.end - part.start for part in response.partitions]
    if sum(sizes) <= limit:
        return
    allowed = limit + max(limit, _ORDINARY_BATCH)
    for part in response.partitions:
        allowed += min(part.end - part.start, _first_batch(raw.body[part.start : part.end]))
    if sum(sizes) > allowed:
        reason = f"{sum(sizes)} bytes of records, but {limit} and one batch were requested"
        raise MalformedResponse("Fetch", raw.version, 0, reason)


def _first_batch(data: memoryview) -> int:
    """Return the size of the first record batch in bytes, as its header gives it."""
    if len(data) < _ENTRY_HEAD.size:
        return len(data)
    return _ENTRY_HEAD.size + max(0, int(_ENTRY_HEAD.unpack_from(data)[1]))


def parse_response(
    raw: RawResponse, fetches: Mapping[TopicPartition, PartitionFetch], max_bytes: int = 2**31 - 1
) -> list[PartitionResponse]:
    """Return the part of the response for each requested partition.

    Raise an error if the broker refused the whole request. The part of a partition that is not in
    the response has no records. If the broker throttles the client, no partition is in the
    response. `max_bytes` is the requested limit for all partitions together.
    """
    response = decoding.fetch_answer(raw.body, raw.version)
    if response.error_code:
        raise BrokerError.from_code(response.error_code, "a fetch")
    check_size(raw, response, min(max_bytes, sum(fetch.max_bytes for fetch in fetches.values())))
    names = {fetch.topic_id.bytes: tp.topic for tp, fetch in fetches.items() if fetch.topic_id}
    parsed: dict[TopicPartition, PartitionResponse] = {}
    for row in response.partitions:
        part = parse_partition(raw, row, fetches, names)
        if parsed.setdefault(part.partition, part) is not part:
            reason = f"{part.partition} is in the response twice"
            raise MalformedResponse("Fetch", raw.version, row.start, reason)
    throttle = throttle_seconds(response)
    return [
        (parsed.get(tp) or empty_response(tp, fetch.offset))._replace(throttle=throttle)
        for tp, fetch in fetches.items()
    ]


def throttle_seconds(response: decoding.FetchAnswer) -> float:
    """Return the throttle time of a response in seconds, reduced to at most 30."""
    return min(max(0.0, response.throttle_ms / 1000), _MAX_THROTTLE)


def empty_response(
    tp: TopicPartition, offset: int, error: BrokerError | None = None
) -> PartitionResponse:
    """Return a response without records, for a partition that is not in the broker's response."""
    return PartitionResponse(tp, offset, error, -1, -1, -1, None, -1, memoryview(b""))


def parse_partition(
    raw: RawResponse,
    part: decoding.PartitionAnswer,
    fetches: Mapping[TopicPartition, PartitionFetch],
    names: Mapping[bytes, str],
) -> PartitionResponse:
    """Return the response for `part`, one partition of the response `raw`.

    `fetches` has the requested partitions. `names` maps the bytes of topic ids to topic names.
    Raise `MalformedResponse` if the partition was not requested.
    """
    topic = names.get(part.topic) if isinstance(part.topic, bytes) else part.topic
    tp = TopicPartition(topic or "", part.partition)
    fetch = fetches.get(tp)
    if fetch is None:
        reason = f"partition {part.partition} of topic {part.topic!r} was not requested"
        raise MalformedResponse("Fetch", raw.version, part.start, reason)
    return PartitionResponse(
        tp,
        fetch.offset,
        BrokerError.from_code(part.error_code, str(tp)) if part.error_code else None,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.aborted,
        part.preferred_read_replica,
        raw.body[part.start : part.end],
        part.current_leader,
        part.diverging_epoch,
    )

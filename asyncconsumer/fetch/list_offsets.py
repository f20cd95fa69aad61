"""ListOffsets requests to one broker, or with retries to the leaders of many partitions."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from asyncconsumer.aio.concurrency import for_each, in_chunks
from asyncconsumer.aiokafka_parts import Response
from asyncconsumer.errors import (
    BrokerError,
    ConfigError,
    ConsumerError,
    MalformedResponse,
    UnknownTopicOrPartition,
)
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.fetch.policy import LogEnds
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ListedOffset,
    ListOffsetsRequest,
)
from asyncconsumer.types import Address, OffsetAndTimestamp, TopicPartition, partitions_of

_NOT_REQUESTED: Final = LogEnds(-1, -1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN_TOPIC_MS: Final = 2_000  # a new topic reaches all brokers within this time


# --- one broker ----------------------------------------------------------------------------------


async def request_offsets(
    brokers: BrokerPool,
    address: Address,
    rows: Mapping[TopicPartition, ListedOffset],
    *,
    committed_only: bool,
) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """Send one ListOffsets request to a broker. Return an offset or an error for each partition."""
    by_topic: dict[str, list[ListedOffset]] = {}
    for tp, row in rows.items():
        by_topic.setdefault(tp.topic, []).append(row)
    level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
    request = ListOffsetsRequest(by_topic, level)
    result = _parse(await brokers.request(address, Traffic.CONTROL, request))
    if missing := rows.keys() - result.keys():
        raise MalformedResponse("ListOffsets", -1, 0, f"a response without {min(missing)}")
    return result


async def request_log_ends(
    brokers: BrokerPool,
    address: Address,
    leader_epochs: Mapping[TopicPartition, int],
    timestamps: Collection[int],
    *,
    committed_only: bool,
) -> dict[TopicPartition, LogEnds | BrokerError]:
    """Return the log ends of partitions that one broker leads.

    `leader_epochs` maps the partitions to their known leader epochs. `timestamps` has EARLIEST,
    LATEST or both, and each takes one request.
    """
    result: dict[TopicPartition, LogEnds | BrokerError] = dict.fromkeys(
        leader_epochs, _NOT_REQUESTED
    )
    for timestamp in sorted(timestamps):
        rows = {
            tp: ListedOffset(tp.partition, timestamp, epoch) for tp, epoch in leader_epochs.items()
        }
        listed = await request_offsets(brokers, address, rows, committed_only=committed_only)
        for tp, ends in result.items():
            if isinstance(ends, LogEnds):
                result[tp] = _with(ends, timestamp, listed[tp])
    return result


def _parse(response: Response) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """Return the offset or error of each partition in a response.

    The first four columns of a row are the same in every version. A response may have 100,000 rows,
    so rows are not converted to dicts.
    """
    result: dict[TopicPartition, OffsetAndTimestamp | BrokerError] = {}
    for topic, rows, *_ in response.topics or ():
        partitions = partitions_of(topic, [row[0] for row in rows or ()])
        for tp, (_, code, timestamp, offset, *_) in zip(partitions, rows or (), strict=True):
            result[tp] = (
                BrokerError.from_code(code, str(tp))
                if code
                else OffsetAndTimestamp(offset, timestamp)
            )
    return result


def _with(
    ends: LogEnds, timestamp: int, listed: OffsetAndTimestamp | BrokerError
) -> LogEnds | BrokerError:
    """Return `ends` with the offset in `listed` as its earliest or latest offset.

    `timestamp` is EARLIEST or LATEST, and selects the one to replace. If `listed` is an error,
    return the error.
    """
    if isinstance(listed, BrokerError):
        return listed
    if timestamp == EARLIEST:
        return LogEnds(listed.offset, ends.latest)
    return LogEnds(ends.earliest, listed.offset)


# --- the leaders of many partitions --------------------------------------------------------------


class OffsetLookup:
    """A lookup of offsets of many partitions, with one ListOffsets request to each leader.

    If a leader has moved or does not answer, its partitions are retried. `offsets` has the offsets
    that were found so far, even after an error.
    """

    def __init__(
        self,
        leaders: LeaderClient,
        timestamps: Mapping[TopicPartition, int],
        *,
        committed_only: bool = False,
    ) -> None:
        self.offsets: dict[TopicPartition, OffsetAndTimestamp] = {}
        self._leaders = leaders
        self._remaining = dict(timestamps)
        self._committed_only = committed_only

    async def run(self) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return each partition's first offset at or after its timestamp (ms, EARLIEST or LATEST).

        A permanent error is raised at once, for example for a partition that its topic does not
        have. An unknown topic is retried for 2 s, other errors as in `LeaderClient`.
        """
        deadline = self._leaders.retry_deadline()
        topic_deadline = self._leaders.retry_deadline(_UNKNOWN_TOPIC_MS)
        while self._remaining:
            try:
                errors = await self._ask_leaders()
            except ConsumerError as error:  # no metadata
                await deadline.wait_or_raise(error)
                continue
            if errors:
                cause, topic_is_unknown = self._retriable_error(errors)
                await (topic_deadline if topic_is_unknown else deadline).wait_or_raise(cause)
        return self.offsets

    def _retriable_error(
        self, errors: Mapping[TopicPartition, ConsumerError]
    ) -> tuple[ConsumerError, bool]:
        """Return one of the errors, and whether it means that a topic is unknown.

        Mark the leaders of the partitions as stale. If a retry cannot resolve one of the errors,
        raise it.
        """
        unknown: ConsumerError | None = None
        for tp, error in errors.items():
            self._leaders.mark_stale(tp)
            topic = self._leaders.metadata.topics.get(tp.topic)
            if not error.retriable:
                raise error
            if topic is not None and topic.lacks(tp.partition):
                about = f"partition {tp}, of a topic with {len(topic.partitions)} partitions"
                raise UnknownTopicOrPartition(about)
            if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
                unknown = error
        return unknown or next(iter(errors.values())), unknown is not None

    async def _ask_leaders(self) -> dict[TopicPartition, ConsumerError]:
        """Send one request to each leader. Return the errors of partitions without a result."""
        errors: dict[TopicPartition, ConsumerError] = {}
        by_leader: dict[Address, dict[TopicPartition, ListedOffset]] = {}
        leaders = await self._leaders.find_all(self._remaining)
        async for tp, leader in in_chunks(leaders.items()):
            if isinstance(leader, BrokerError):
                errors[tp] = leader
                continue
            row = ListedOffset(tp.partition, self._remaining[tp], leader.leader_epoch)
            by_leader.setdefault(leader.address, {})[tp] = row

        async def ask(address: Address) -> None:
            rows = by_leader[address]
            try:
                result = await request_offsets(
                    self._leaders.brokers, address, rows, committed_only=self._committed_only
                )
            except ConsumerError as error:
                errors.update(dict.fromkeys(rows, error))
                return
            async for tp in in_chunks(rows):
                if isinstance(listed := result[tp], BrokerError):
                    errors[tp] = listed
                else:
                    self.offsets[tp] = listed
                    del self._remaining[tp]

        await for_each(by_leader, ask)
        return errors


async def list_offsets(
    leaders: LeaderClient, timestamps: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return the offsets of many partitions at timestamps. See `OffsetLookup.run`."""
    return await OffsetLookup(leaders, timestamps, committed_only=committed_only).run()


async def list_offset(
    leaders: LeaderClient, tp: TopicPartition, timestamp: int, *, committed_only: bool = False
) -> OffsetAndTimestamp:
    """Return the offset of one partition at a timestamp. See `OffsetLookup.run`."""
    return (await list_offsets(leaders, {tp: timestamp}, committed_only=committed_only))[tp]


async def list_log_ends(leaders: LeaderClient, tp: TopicPartition) -> LogEnds:
    """Return the earliest offset and the high watermark of one partition."""
    earliest = await list_offset(leaders, tp, EARLIEST)
    latest = await list_offset(leaders, tp, LATEST)
    return LogEnds(earliest.offset, latest.offset)


def milliseconds(moment: int | datetime) -> int:
    """Return a timestamp for ListOffsets: an int unchanged, or a datetime converted to ms."""
    if isinstance(moment, int) and MAX_TIMESTAMP <= moment < 2**63:
        return moment
    if not isinstance(moment, datetime):
        raise ConfigError(
            f"{moment!r} is not a moment: give a datetime with a time zone, milliseconds since "
            "1970, EARLIEST or LATEST"
        )
    if moment.tzinfo is None:
        raise ConfigError(f"{moment} has no time zone: give one, e.g. datetime.now(UTC)")
    # Integer division is exact, float seconds are not. Times before 1970 become 0, because -1 means
    # LATEST.
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))

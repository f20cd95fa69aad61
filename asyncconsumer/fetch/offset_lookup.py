"""Offset lookups by earliest, latest or timestamp, sent to the leaders of many partitions."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from asyncconsumer.aio.concurrency import each
from asyncconsumer.aio.long_work import in_pieces
from asyncconsumer.errors import BrokerError, ConfigError, ConsumerError, UnknownTopicOrPartition
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.fetch.list_offsets import list_offsets_at
from asyncconsumer.protocol.messages import MAX_TIMESTAMP, ListedOffset
from asyncconsumer.types import Address, OffsetAndTimestamp, TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN_TOPIC_MS: Final = 2_000  # a new topic reaches all brokers within this time


class OffsetLookup:
    """An offset lookup for many partitions, with one request to each leader.

    A partition whose leader moved or does not answer is retried. `found` has the offsets found so
    far, also after an error.
    """

    def __init__(
        self,
        leaders: LeaderClient,
        moments: Mapping[TopicPartition, int],
        *,
        committed_only: bool = False,
    ) -> None:
        self.found: dict[TopicPartition, OffsetAndTimestamp] = {}
        self._leaders = leaders
        self._remaining = dict(moments)
        self._committed_only = committed_only

    async def run(self) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after each timestamp (ms) or ListOffsets constant.

        Permanent errors are raised at once, for example for a partition that its topic does not
        have. An unknown topic is retried for 2 s, other errors as in `LeaderClient`.
        """
        patience = self._leaders.patience()
        with_topics = self._leaders.patience(_UNKNOWN_TOPIC_MS)
        while self._remaining:
            try:
                refused = await self._ask_leaders()
            except ConsumerError as error:  # no metadata
                await patience.bear(error)
                continue
            if refused:
                trouble, topic_is_unknown = self._judge(refused)
                await (with_topics if topic_is_unknown else patience).bear(trouble)
        return self.found

    def _judge(self, refused: Mapping[TopicPartition, ConsumerError]) -> tuple[ConsumerError, bool]:
        """Return the error to wait out, and whether a topic is unknown to all brokers.

        Raise an error that waiting does not resolve.
        """
        unknown: ConsumerError | None = None
        for one, error in refused.items():
            self._leaders.doubt(one)
            topic = self._leaders.metadata.topics.get(one.topic)
            if not error.retriable:
                raise error
            if topic is not None and topic.lacks(one.partition):
                about = f"partition {one}, of a topic with {len(topic.partitions)} partitions"
                raise UnknownTopicOrPartition(about)
            if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
                unknown = error
        return unknown or next(iter(refused.values())), unknown is not None

    async def _ask_leaders(self) -> dict[TopicPartition, ConsumerError]:
        """Send one request to each leader. Return the errors of partitions without a result."""
        refused: dict[TopicPartition, ConsumerError] = {}
        at_leaders: dict[Address, dict[TopicPartition, ListedOffset]] = {}
        places = await self._leaders.places(self._remaining)
        async for one, place in in_pieces(places.items()):
            if isinstance(place, BrokerError):
                refused[one] = place
                continue
            row = ListedOffset(one.partition, self._remaining[one], place.leader_epoch)
            at_leaders.setdefault(place.address, {})[one] = row

        async def ask(address: Address) -> None:
            asked = at_leaders[address]
            try:
                answer = await list_offsets_at(
                    self._leaders.brokers, address, asked, committed_only=self._committed_only
                )
            except ConsumerError as error:
                refused.update(dict.fromkeys(asked, error))
                return
            async for one in in_pieces(asked):
                if isinstance(listed := answer[one], BrokerError):
                    refused[one] = listed
                else:
                    self.found[one] = listed
                    del self._remaining[one]

        await each(at_leaders, ask)
        return refused


async def list_offsets(
    leaders: LeaderClient, moments: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return the offsets of many partitions; see `OffsetLookup.run`."""
    return await OffsetLookup(leaders, moments, committed_only=committed_only).run()


async def list_offset(
    leaders: LeaderClient,
    partition: TopicPartition,
    timestamp: int,
    *,
    committed_only: bool = False,
) -> OffsetAndTimestamp:
    """Return the offset of one partition; see `OffsetLookup.run`."""
    found = await list_offsets(leaders, {partition: timestamp}, committed_only=committed_only)
    return found[partition]


def milliseconds(moment: int | datetime) -> int:
    """Return a moment as a ListOffsets timestamp. Numbers are returned unchanged."""
    if isinstance(moment, int) and MAX_TIMESTAMP <= moment < 2**63:
        return moment
    if not isinstance(moment, datetime):
        raise ConfigError(
            f"{moment!r} is no moment: give a datetime with a time zone, milliseconds since 1970, "
            "EARLIEST or LATEST"
        )
    if moment.tzinfo is None:
        raise ConfigError(f"{moment} has no time zone: give one, e.g. datetime.now(UTC)")
    # Integer division is exact, float seconds are not. Times before 1970 become 0, because -1 means
    # LATEST.
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))

"""The lag of a group, in records and as the age of its first unread record."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.results import ConsumerGroupDescription, LogRange, PartitionLag
from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import BrokerError, ConsumerError
from asyncconsumer.fetch.fetch_request import (
    PartitionFetch,
    PartitionResponse,
    build_request,
    parse_response,
)
from asyncconsumer.fetch.leader_client import LeaderInfo
from asyncconsumer.fetch.list_offsets import OffsetLookup
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import Address, TopicPartition

# a broker returns at least one batch for one partition, however small the limit is
_FETCH: Final = FetchConfig(
    max_partition_fetch_bytes=16_384, fetch_max_bytes=2**20, fetch_min_bytes=1, fetch_max_wait_ms=1
)


async def partition_lags(
    client: AdminClient,
    description: ConsumerGroupDescription,
    committed: Mapping[TopicPartition, int],
    *,
    seconds: bool,
) -> tuple[PartitionLag, ...]:
    """Return the lag of each partition that has a committed offset or an owner."""
    owners = {tp: member for member in description.members for tp in member.partitions}
    partitions = committed.keys() | owners.keys()
    existing = partitions & await client.existing({tp.topic for tp in partitions})
    ends = await find_offsets(client, existing, LATEST)
    ages: dict[TopicPartition, float] = {}
    if seconds:
        behind = {
            tp: offset for tp, offset in committed.items() if tp in ends and offset < ends[tp]
        }
        starts = await find_offsets(client, behind, EARLIEST)
        unread = {tp: max(offset, starts.get(tp, 0)) for tp, offset in behind.items()}
        ages = await _ages(client, unread, ends)
        ages |= {tp: 0.0 for tp in committed.keys() & ends.keys() if tp not in behind}
    rows = []
    for tp in sorted(partitions):
        offset, end, owner = committed.get(tp), ends.get(tp), owners.get(tp)
        rows.append(
            PartitionLag(
                *tp,
                committed=offset,
                end=end,
                lag=None if offset is None or end is None else max(0, end - offset),
                lag_seconds=ages.get(tp),
                member_id=None if owner is None else owner.member_id,
                client_id=None if owner is None else owner.client_id,
                host=None if owner is None else owner.host,
            )
        )
    return tuple(rows)


async def find_offsets(
    client: AdminClient, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition for `timestamp`: ms since 1970, EARLIEST or LATEST.

    Leave out partitions whose lookup failed, for example because they have no leader. If all
    lookups failed, raise the error.
    """
    lookup = OffsetLookup(client.kafka.leaders, dict.fromkeys(partitions, timestamp))
    try:
        await lookup.run()
    except ConsumerError:
        if not lookup.offsets:
            raise
    return {tp: listed.offset for tp, listed in lookup.offsets.items()}


async def find_ranges(client: AdminClient, topics: Collection[str]) -> list[LogRange]:
    """Return the first offset and the end of each partition that has a leader."""
    partitions = await client.existing(set(topics))
    starts = await find_offsets(client, partitions, EARLIEST)
    ends = await find_offsets(client, partitions, LATEST)
    return [LogRange(*tp, starts[tp], ends[tp]) for tp in sorted(starts.keys() & ends.keys())]


async def read_last(client: AdminClient, ranges: Collection[LogRange]) -> list[Record]:
    """Return the record at the last offset of each partition, if there is one."""
    records = []
    last = {row.tp: row.end - 1 for row in ranges if row.start < row.end}
    for response in await _fetch(client, last) if last else []:
        at_end = None
        for record in response.records(_FETCH):
            at_end = record if record.offset == last[response.partition] else None
        if at_end is not None:
            records.append(at_end)
    return records


async def _ages(
    client: AdminClient, unread: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return the age in seconds of the first record at or after each offset in `unread`.

    The age is 0 if only transaction markers are left before the offsets in `ends`. Leave out a
    partition if its record has no timestamp, or if the brokers return no record.
    """
    ages: dict[TopicPartition, float] = {}
    remaining = dict(unread)
    while remaining:
        before = dict(remaining)
        for response in await _fetch(client, remaining):
            tp = response.partition
            record = next(iter(response.records(_FETCH)), None)
            if record is not None:
                if record.timestamp >= 0:
                    now = datetime.now(UTC).timestamp()
                    ages[tp] = max(0.0, round(now - record.timestamp / 1000, 3))
                del remaining[tp]
            elif response.end_offset >= ends[tp]:  # only transaction markers are left
                ages[tp] = 0.0
                del remaining[tp]
            else:
                remaining[tp] = response.end_offset
        if remaining == before:  # brokers have nothing more at the moment
            break
    return ages


async def _fetch(
    client: AdminClient, offsets: Mapping[TopicPartition, int]
) -> list[PartitionResponse]:
    """Fetch from each leader once, at these offsets. Leave out partitions with errors."""
    by_leader: dict[Address, dict[TopicPartition, PartitionFetch]] = {}
    for tp, leader in (await client.kafka.leaders.find_all(offsets.keys())).items():
        if isinstance(leader, LeaderInfo):
            fetch = PartitionFetch(
                offsets[tp],
                _FETCH.max_partition_fetch_bytes,
                leader.leader_epoch,
                leader.topic_id,
            )
            by_leader.setdefault(leader.address, {})[tp] = fetch
    responses: list[PartitionResponse] = []

    async def ask(address: Address) -> None:
        asks = by_leader[address]
        connection = await client.kafka.brokers.connection(address, Traffic.FETCH)
        raw = await connection.send_raw(build_request(asks, _FETCH))
        for response in parse_response(raw, asks, _FETCH.fetch_max_bytes):
            if isinstance(response.error, BrokerError):
                client.kafka.leaders.mark_stale(response.partition)
            else:
                responses.append(response)

    await for_each(by_leader, ask)
    return responses

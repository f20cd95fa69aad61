"""The simple consumer, which reads explicit partitions and offsets without a group."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, Final, NamedTuple, Unpack

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import (
    FetchConfig,
    ReaderOptions,
    check_together,
    document_options,
    one_of,
    split,
    whole_number,
)
from asyncconsumer.config.choices import OFFSET_RESETS, AutoOffsetReset
from asyncconsumer.consumer.groupless import GrouplessReader
from asyncconsumer.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from asyncconsumer.events import Skipped
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.fetch_request import (
    PartitionFetch,
    PartitionResponse,
    build_request,
    empty_response,
    parse_response,
)
from asyncconsumer.fetch.list_offsets import list_offset, milliseconds
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.metadata import Leader
from asyncconsumer.net.pool import Traffic
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records import decoding
from asyncconsumer.types import Address, TopicPartition

_LEADER_TRIES: Final = 3
_LEADER_WAITS: Final = (1.0, 2.0)  # seconds between tries: the first wait and the longest


class FetchResult(NamedTuple):
    """The result of a fetch of one partition: records, or an error."""

    partition: TopicPartition
    records: decoding.Records
    """The records, decoded during iteration."""
    next_offset: int
    """The offset of the next fetch."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    error: BrokerError | None
    """The error of the broker for this partition; then there are no records."""


@document_options(ReaderOptions)
class SimpleConsumer(GrouplessReader):
    """A consumer for single fetches, and for reading partitions across leader changes.

    If an offset is out of range, `read` follows ``auto_offset_reset``: "none" raises, "earliest"
    and "latest" skip. A skip is logged, and ``on_skip`` is called with the skipped range.
    Retriable errors are retried for ``retry_timeout_ms`` and raised after that.
    """

    _own_options = ("auto_offset_reset", "on_skip", "retry_timeout_ms")

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        auto_offset_reset: AutoOffsetReset = "none",
        on_skip: Callable[[Skipped], None] | None = None,
        retry_timeout_ms: int = 60_000,
        **options: Unpack[ReaderOptions],
    ) -> None:
        one_of("auto_offset_reset", auto_offset_reset, OFFSET_RESETS)
        whole_number("retry_timeout_ms", retry_timeout_ms, 0)
        if on_skip is not None and not callable(on_skip):
            raise ConfigError(f"`on_skip` must be a function with one argument, got {on_skip!r}")
        connection, self._fetch_config = split(
            {**options, "bootstrap_servers": bootstrap_servers}, self._own_options
        )
        self._retry_timeout_ms = retry_timeout_ms
        self._session = KafkaClient(connection, patience_ms=retry_timeout_ms)
        self._policy = ReadPolicy(
            auto_offset_reset=auto_offset_reset, on_skip=on_skip, bodies=self._session.bodies
        )
        # The connections without a fetch in flight, one for each concurrent `fetch`. Fetches do not
        # share a connection, because a broker answers the requests of a connection in order.
        self._free_slots = [0]

    # --- leaders ---------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, from fresh metadata."""
        metadata = (await self._session.cluster.refresh([topic])).topics.get(topic)
        if metadata is None:
            raise UnknownTopicOrPartition(f"topic {topic!r}")
        if metadata.error is not None:
            raise metadata.error
        return sorted(metadata.partitions)

    async def find_leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition, from fresh metadata. Errors are not retried."""
        return (await self._session.cluster.refresh([topic])).leader(
            TopicPartition(topic, partition)
        )

    async def find_new_leader(self, topic: str, partition: int, old: int) -> Leader:
        """Return the leader of a partition after the broker `old` failed as its leader.

        There are 3 tries, with waits of about 1 s and 2 s. The first try does not accept `old`,
        because the metadata may be out of date. Later tries accept it, because the broker may have
        recovered.
        """
        waits = backoff(*_LEADER_WAITS, self._session.randomness)
        about = f"a leader of {TopicPartition(topic, partition)} after broker {old}"
        for tries_left in reversed(range(_LEADER_TRIES)):
            try:
                leader = await self.find_leader(topic, partition)
                if leader.broker.node_id != old or tries_left < _LEADER_TRIES - 1:
                    return leader
                trouble: ConsumerError = LeaderNotAvailable(about)
            except ConsumerError as error:
                trouble = error
            if not tries_left or not trouble.retriable:
                raise trouble
            await asyncio.sleep(next(waits))
        raise AssertionError("unreachable")

    # --- fetch -----------------------------------------------------------------------------------

    async def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
    ) -> dict[TopicPartition, FetchResult]:
        """Fetch each partition from an offset, with one request to each leader.

        ``max_bytes`` applies to each partition. Missing arguments are taken from the options. A
        request is sent once more after a lost connection. If it fails, the next call looks up the
        leader again. An error of one partition is in its result and does not affect the others.
        """
        config = self._changed(max_bytes, max_wait_ms, min_bytes)
        for tp, offset in offsets.items():
            _check_offset(tp, offset, 0, "Pass an offset from 0 on")
        results: dict[TopicPartition, FetchResult] = {}
        at_leaders: dict[Address, dict[TopicPartition, PartitionFetch]] = {}
        for (topic, number), offset in offsets.items():
            tp = TopicPartition(topic, number)
            try:
                place = await self._session.leaders.find(tp)
            except BrokerError as error:
                results[tp] = self._result(empty_response(tp, offset, error))
                continue
            size = config.max_partition_fetch_bytes
            ask = PartitionFetch(offset, size, place.leader_epoch, place.topic_id)
            at_leaders.setdefault(place.address, {})[tp] = ask
        for fetched in await self._fetch_all(at_leaders, config):
            results[fetched.partition] = self._result(fetched)
        return results

    def _changed(self, size: int | None, wait_ms: int | None, least: int | None) -> FetchConfig:
        """Return the fetch options, with the arguments in place of the options' values.

        An argument of None leaves its option unchanged. The result is validated.
        """
        own = {
            "max_partition_fetch_bytes": size,
            "fetch_max_wait_ms": wait_ms,
            "fetch_min_bytes": least,
        }
        changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        if not changes:
            return self._fetch_config
        config = replace(self._fetch_config, **changes)
        check_together(self._session.brokers.config, config)
        return config

    async def _fetch_all(
        self,
        at_leaders: Mapping[Address, Mapping[TopicPartition, PartitionFetch]],
        config: FetchConfig,
    ) -> list[PartitionResponse]:
        """Send the fetches to all leaders concurrently. Raise the first error."""
        slot = self._free_slots.pop() if self._free_slots else self._session.brokers.new_slot()
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    start_task(group, self._fetch_at(address, slot, asks, config))
                    for address, asks in at_leaders.items()
                ]
        except* ConsumerError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._free_slots.append(slot)
        return [fetched for task in asked for fetched in task.result()]

    async def _fetch_at(
        self,
        address: Address,
        slot: int,
        asks: Mapping[TopicPartition, PartitionFetch],
        config: FetchConfig,
    ) -> list[PartitionResponse]:
        message, brokers = build_request(asks, config), self._session.brokers
        for last_try in (False, True):
            try:
                connection = await brokers.connection(address, Traffic.FETCH, slot=slot)
                return parse_response(
                    await connection.send_raw(message), asks, config.fetch_max_bytes
                )
            except ConsumerError as error:
                # after any error, the partition may have another leader at the next fetch
                for partition in asks:
                    self._session.leaders.mark_stale(partition)
                if last_try or not isinstance(error, ConnectionLost):
                    raise
        raise AssertionError("unreachable")

    def _result(self, fetched: PartitionResponse) -> FetchResult:
        if fetched.error is not None:
            self._session.leaders.mark_stale(fetched.partition)
        return FetchResult(
            fetched.partition,
            fetched.records(self._fetch_config, bodies=self._session.bodies),
            fetched.end_offset,
            fetched.high_watermark,
            fetched.last_stable_offset,
            fetched.log_start_offset,
            fetched.error,
        )

    # --- offsets ---------------------------------------------------------------------------------

    async def offsets_before(
        self, topic: str, partition: int, when: int | datetime = LATEST
    ) -> int:
        """Return the partition's first offset at or after a time, or its EARLIEST or LATEST offset.

        A time is a datetime with a time zone, or milliseconds since 1970. All records before the
        offset are older. If no record is that new, the result is the end of the log. A request for
        an unknown topic is retried for 2 s. A partition that its topic does not have is an error at
        once.
        """
        moment = milliseconds(when)
        tp = TopicPartition(topic, partition)
        committed = self._fetch_config.committed_only
        listed = await list_offset(self._session.leaders, tp, moment, committed_only=committed)
        if listed.offset < 0:
            listed = await list_offset(self._session.leaders, tp, LATEST, committed_only=committed)
        return listed.offset

    async def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        The consumer does not join the group.
        """
        return await self._offsets_of(group).load(partitions)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a Kafka group without joining it.

        Kafka rejects the commit while the group has members.
        """
        for tp, offset in offsets.items():
            _check_offset(tp, offset, 0, "Commit the offset of the next record to read, from 0 on")
        await self._offsets_of(group).commit(offsets)

    def _offsets_of(self, group: str) -> KafkaOffsets:
        if not group:
            raise ConfigError("the name of the group is empty. Pass the name of a group")
        return KafkaOffsets(
            Coordinator(group, self._session.brokers, self._session.cluster),
            patience_ms=self._retry_timeout_ms,
            randomness=Random(),  # noqa: S311 - for jitter
        )

    # --- read ------------------------------------------------------------------------------------

    def read(
        self, topic: str, partition: int, offset: int = EARLIEST, *, end: int | None = None
    ) -> PartitionStream:
        """Return a stream of a partition that continues across leader changes.

        It starts at `offset`, EARLIEST or LATEST. Iterate over it with ``async for``. Its
        `chunks()` and `arrow()` are cheaper. Without `end` the stream has no end. Otherwise it ends
        before the offset `end`. ``end=LATEST`` stands for the current end of the log.
        """
        tp = TopicPartition(topic, partition)
        for place in (offset, 0 if end is None else end):
            _check_offset(tp, place, EARLIEST, "Pass an offset from 0 on, EARLIEST or LATEST")

        async def open_reader(slot: int) -> PartitionReader:
            start = offset if offset >= 0 else await self.offsets_before(topic, partition, offset)
            stop = None if end is None or end >= 0 else await self.offsets_before(*tp, end)
            return PartitionReader(
                tp,
                start,
                self._session.leaders,
                self._fetch_config,
                policy=self._policy,
                end=end if stop is None else stop,
                slot=slot,
            )

        return self._session.stream(open_reader)


def _check_offset(tp: tuple[str, int], offset: object, least: int, advice: str) -> None:
    if not isinstance(offset, int) or not least <= offset < 2**63:
        raise ConfigError(f"offset {offset!r} of {TopicPartition(*tp)} is not valid. {advice}")

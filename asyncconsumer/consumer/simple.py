"""The simple consumer: explicit partitions, leaders and offsets, without a group."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import (
    FetchConfig,
    check_names,
    check_together,
    one_of,
    split,
    whole_number,
)
from asyncconsumer.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_reader import PartitionReader, ReadPolicy, SkippedRange
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.fetch_request import PartitionFetch, PartitionResponse, request, understand
from asyncconsumer.fetch.offset_lookup import list_offset, milliseconds
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.metadata import Leader
from asyncconsumer.net.pool import Traffic
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records import decoding
from asyncconsumer.types import Address, TopicPartition

OFFSET_RESETS: Final = ("none", "earliest", "latest")
_OWN_OPTIONS: Final = ("auto_offset_reset", "on_skip", "retry_timeout_ms")
_LEADER_TRIES: Final = 3
_LEADER_WAITS: Final = (1.0, 2.0)  # seconds between tries: the first wait and the longest


class FetchResult(NamedTuple):
    """The result of a fetch for one partition."""

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


class SimpleConsumer:
    """A consumer for single fetches, and for reading partitions across leader changes.

    The options are those of `ConnectionConfig` and `FetchConfig`. If an offset is out of range,
    `read` follows ``auto_offset_reset``: "none" raises, "earliest" and "latest" skip. A skip is
    logged, and ``on_skip`` is called with the skipped range. Retriable errors are retried for
    ``retry_timeout_ms`` and raised after that.
    """

    def __new__(cls, *servers: Any, **options: Any) -> Self:  # noqa: ANN401 - checks names
        """Check the option names before a missing `bootstrap_servers` raises TypeError."""
        named = {"bootstrap_servers": servers[0]} if servers else {}
        check_names({**options, **named}, _OWN_OPTIONS)
        return super().__new__(cls)

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        auto_offset_reset: str = "none",
        on_skip: Callable[[SkippedRange], None] | None = None,
        retry_timeout_ms: int = 60_000,
        **options: Any,  # noqa: ANN401 - checked by the configs that take them
    ) -> None:
        one_of("auto_offset_reset", auto_offset_reset, OFFSET_RESETS)
        whole_number("retry_timeout_ms", retry_timeout_ms, 0)
        if on_skip is not None and not callable(on_skip):
            raise ConfigError(f"on_skip must be a function of one argument, got {on_skip!r}")
        options["bootstrap_servers"] = bootstrap_servers
        connection, self._fetch_config = split(options, _OWN_OPTIONS)
        self._retry_timeout_ms = retry_timeout_ms
        self._session = KafkaClient(connection, patience_ms=retry_timeout_ms)
        self._policy = ReadPolicy(
            auto_offset_reset=auto_offset_reset, on_skip=on_skip, bodies=self._session.bodies
        )
        # connections without a fetch in flight: a broker answers each connection in order
        self._free_lanes = [0]

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    # --- leaders ---------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, from fresh metadata."""
        found = (await self._session.cluster.refresh([topic])).topics.get(topic)
        if found is None:
            raise UnknownTopicOrPartition(f"topic {topic!r}")
        if found.error is not None:
            raise found.error
        return sorted(found.partitions)

    async def find_leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition from fresh metadata, without retries."""
        return (await self._session.cluster.refresh([topic])).leader(
            TopicPartition(topic, partition)
        )

    async def find_new_leader(self, topic: str, partition: int, old: int) -> Leader:
        """Return the leader after broker `old` failed, with 3 tries and waits of about 1 s and 2 s.

        The first try does not accept `old`, because the metadata may be out of date. Later tries
        accept it, because the broker may have recovered.
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
        wanted: Mapping[TopicPartition, int],
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
        for at, offset in wanted.items():
            _check_offset(at, offset, 0, "a fetch needs one from 0")
        results: dict[TopicPartition, FetchResult] = {}
        at_leaders: dict[Address, dict[TopicPartition, PartitionFetch]] = {}
        for (topic, number), offset in wanted.items():
            at = TopicPartition(topic, number)
            try:
                place = await self._session.leaders.place(at)
            except BrokerError as error:
                results[at] = self._result(_refused(at, offset, error))
                continue
            size = config.max_partition_fetch_bytes
            ask = PartitionFetch(offset, size, place.leader_epoch, place.topic_id)
            at_leaders.setdefault(place.address, {})[at] = ask
        for fetched in await self._fetch_all(at_leaders, config):
            results[fetched.partition] = self._result(fetched)
        return results

    def _changed(self, size: int | None, wait_ms: int | None, least: int | None) -> FetchConfig:
        """Return the fetch options with the arguments of one fetch, validated together."""
        own = {
            "max_partition_fetch_bytes": size,
            "fetch_max_wait_ms": wait_ms,
            "fetch_min_bytes": least,
        }
        given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        if not given:
            return self._fetch_config
        config = replace(self._fetch_config, **given)
        check_together(self._session.brokers.config, config)
        return config

    async def _fetch_all(
        self,
        at_leaders: Mapping[Address, Mapping[TopicPartition, PartitionFetch]],
        config: FetchConfig,
    ) -> list[PartitionResponse]:
        """Send the fetches to all leaders concurrently. Raise the first error."""
        lane = self._free_lanes.pop() if self._free_lanes else self._session.brokers.new_lane()
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    start_task(group, self._fetch_at(address, lane, asks, config))
                    for address, asks in at_leaders.items()
                ]
        except* ConsumerError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._free_lanes.append(lane)
        return [fetched for task in asked for fetched in task.result()]

    async def _fetch_at(
        self,
        address: Address,
        lane: int,
        asks: Mapping[TopicPartition, PartitionFetch],
        config: FetchConfig,
    ) -> list[PartitionResponse]:
        message, brokers = request(asks, config), self._session.brokers
        for last_try in (False, True):
            try:
                connection = await brokers.connection(address, Traffic.FETCH, lane=lane)
                return understand(await connection.send_raw(message), asks, config.fetch_max_bytes)
            except ConsumerError as error:
                # after any error, the partition may have another leader at the next fetch
                for partition in asks:
                    self._session.leaders.doubt(partition)
                if last_try or not isinstance(error, ConnectionLost):
                    raise
        raise AssertionError("unreachable")

    def _result(self, fetched: PartitionResponse) -> FetchResult:
        if fetched.error is not None:
            self._session.leaders.doubt(fetched.partition)
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
        """Return the first offset at or after a moment, or the EARLIEST or LATEST offset.

        A moment is a datetime with a time zone, or milliseconds since 1970. All records before the
        offset are older. If no record is that new, the result is the end of the log. An unknown
        topic is retried for 2 s. A partition that its topic does not have is an error at once.
        """
        moment = milliseconds(when)
        at = TopicPartition(topic, partition)
        committed = self._fetch_config.committed_only
        found = await list_offset(self._session.leaders, at, moment, committed_only=committed)
        if found.offset < 0:
            found = await list_offset(self._session.leaders, at, LATEST, committed_only=committed)
        return found.offset

    async def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offsets of a group in Kafka, or None, without joining it."""
        return await self._offsets_of(group).load(partitions)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group in Kafka without joining it. A group with members refuses."""
        for at, offset in offsets.items():
            _check_offset(at, offset, 0, "commit one from 0, that of the next record to read")
        await self._offsets_of(group).commit(offsets)

    def _offsets_of(self, group: str) -> KafkaOffsets:
        if not group:
            raise ConfigError("the group is empty: name one")
        return KafkaOffsets(
            Coordinator(group, self._session.brokers, self._session.cluster),
            patience_ms=self._retry_timeout_ms,
            randomness=Random(),  # noqa: S311 - for jitter
        )

    # --- read ------------------------------------------------------------------------------------

    def read(
        self, topic: str, partition: int, offset: int = EARLIEST, *, end: int | None = None
    ) -> PartitionStream:
        """Return a stream of a partition from an offset, EARLIEST or LATEST, across leader changes.

        Use ``async for record in simple.read("orders", 0)``. Its `chunks()` and `arrow()` are
        cheaper. Without `end` the stream has no end. With one it stops before that offset, and
        with ``end=LATEST`` at the current end of the log.
        """
        at = TopicPartition(topic, partition)
        for place in (offset, 0 if end is None else end):
            _check_offset(at, place, EARLIEST, "give one from 0, or EARLIEST, or LATEST")

        async def open_reader(lane: int) -> PartitionReader:
            start = offset if offset >= 0 else await self.offsets_before(topic, partition, offset)
            stop = None if end is None or end >= 0 else await self.offsets_before(*at, end)
            return PartitionReader(
                at,
                start,
                self._session.leaders,
                self._fetch_config,
                policy=self._policy,
                end=end if stop is None else stop,
                lane=lane,
            )

        return self._session.stream(open_reader)


def _check_offset(at: tuple[str, int], offset: object, least: int, advice: str) -> None:
    if not isinstance(offset, int) or not least <= offset < 2**63:
        raise ConfigError(f"offset {offset!r} of {TopicPartition(*at)}: {advice}")


def _refused(at: TopicPartition, offset: int, error: BrokerError) -> PartitionResponse:
    """Return the response for a partition whose leader is not known."""
    return PartitionResponse(at, offset, error, -1, -1, -1, None, -1, memoryview(b""))

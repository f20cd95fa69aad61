"""A SimpleConsumer under faults, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConfigError, SimpleConsumer, TopicPartition
from asyncconsumer.config import FetchConfig
from asyncconsumer.consumer.ranges import RangeReader
from asyncconsumer.errors import (
    BrokerConnectionError,
    CorruptMessage,
    CorruptRecords,
    HostNotAllowed,
    LeaderNotAvailable,
    MalformedResponse,
)
from asyncconsumer.fetch import fetch_request
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.fetch.fetch_request import PartitionFetch, parse_response
from asyncconsumer.fetch.list_offsets import _EPOCH, milliseconds
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.protocol.messages import LIST_OFFSETS
from asyncconsumer.records import decoding
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster, handler
from asyncconsumer.testing.fake_kafka.fetch_codec import encode
from asyncconsumer.testing.fake_kafka.sessions import Part
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import OffsetRange
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

AT, OTHER = TopicPartition("a", 0), TopicPartition("a", 1)
FETCH = 1  # the API key


@asynccontextmanager
async def consumer_on(cluster: FakeCluster, **options: Any) -> AsyncIterator[SimpleConsumer]:
    consumer = SimpleConsumer(cluster.bootstrap_servers, **options)
    config = consumer._session.brokers.config
    consumer._session = KafkaClient(
        config, patience_ms=60_000, opener=cluster.open, randomness=Random(2)
    )
    async with consumer:
        yield consumer


# --- fetch ---------------------------------------------------------------------------------------


def die(cluster: FakeCluster, node: int) -> None:
    cluster.kill(node)


def become_silent(cluster: FakeCluster, node: int) -> None:
    cluster.black_hole(node)
    cluster.move_leader(AT, 2)


@simulated(range(5))
@pytest.mark.parametrize("happen", [die, become_silent])
async def test_a_fetch_finds_the_new_leader_after_its_election(
    happen: Callable[[FakeCluster, int], None],
) -> None:
    async with FakeCluster(Random(1), failover=5.0) as cluster:
        cluster.add_topic("a", 1)
        cluster.append("a", 0, 3)
        async with consumer_on(cluster, request_timeout_ms=3_000) as consumer:
            await consumer.fetch({AT: 0})
            happen(cluster, cluster.leader(AT))
            failed = 0
            async with asyncio.timeout(20):
                while True:
                    try:
                        result = await consumer.fetch({AT: 0})
                        break
                    except BrokerConnectionError:
                        failed += 1
                        await asyncio.sleep(1)
            assert failed
            assert [record.offset for record in result[AT].records] == [0, 1, 2]


@simulated(range(3))
async def test_a_fetch_waits_for_min_bytes() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("a", 1)
        cluster.append("a", 0, 1)
        async with consumer_on(cluster) as consumer, asyncio.TaskGroup() as group:
            number = (await consumer.fetch({AT: 0}))[AT].records.size
            options = {"min_bytes": 3 * number - 20, "max_wait_ms": 20_000}
            waiting = group.create_task(consumer.fetch({AT: 0}, **options))
            for _ in range(2):
                await asyncio.sleep(5)
                assert not waiting.done()
                cluster.append("a", 0, 1)
            assert len(list((await waiting)[AT].records)) == 3


@simulated(range(3))
async def test_fetches_do_not_wait_for_each_other() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 20)
        async with consumer_on(cluster) as consumer:
            for _ in range(3):
                async with asyncio.timeout(0.6), asyncio.TaskGroup() as group:
                    for number in range(20):
                        group.create_task(consumer.fetch({TopicPartition("a", number): 0}))
        assert cluster.brokers[1].requests[FETCH] == 60
        assert sorted(consumer._free_slots) == list(range(20))


@simulated(range(3))
async def test_invalid_requests_are_reported() -> None:
    async with FakeCluster(Random(1)) as cluster, consumer_on(cluster) as consumer:
        cluster.add_topic("a", 1)
        for offset in (-1, 2**63, "5"):
            with pytest.raises(ConfigError, match=r"of a\[0\] .* Pass an offset from 0 on"):
                await consumer.fetch({AT: offset})  # type: ignore[dict-item]
            with pytest.raises(
                ConfigError, match=r"of a\[0\] .* Commit the offset of the next record"
            ):
                await consumer.commit_offsets("g", {AT: offset})  # type: ignore[dict-item]
        for place in (-3, 2**63, "5"):
            with pytest.raises(ConfigError, match="Pass an offset from 0 on, EARLIEST or LATEST"):
                consumer.read("a", 0, place)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="Pass an offset from 0 on, EARLIEST or LATEST"):
                consumer.read("a", 0, end=place)  # type: ignore[arg-type]
        for moment in (-4, 2**63, "now"):
            with pytest.raises(ConfigError, match="is not a moment"):
                await consumer.offsets_before("a", 0, moment)  # type: ignore[arg-type]
        for options, problem in (
            ({"max_bytes": 0}, "`max_partition_fetch_bytes` must be a whole number from 1"),
            ({"max_wait_ms": -1}, "`fetch_max_wait_ms` must be a whole number from 0"),
            ({"max_wait_ms": 30_000}, "must be less than `request_timeout_ms`"),
            ({"min_bytes": 2**31}, "`fetch_min_bytes` must be a whole number from 0"),
        ):
            with pytest.raises(ConfigError, match=problem):
                await consumer.fetch({AT: 0}, **options)
        with pytest.raises(ConfigError, match="0 <= start <= end"):
            RangeReader(cluster.bootstrap_servers).read(OffsetRange("a", 0, 0, 2**63))


def test_moments_before_1970_are_timestamp_0() -> None:
    for moment in (_EPOCH - timedelta(milliseconds=1), datetime.min.replace(tzinfo=UTC), _EPOCH):
        assert milliseconds(moment) == 0


# --- leaders -------------------------------------------------------------------------------------


@simulated(range(5))
async def test_a_new_leader_is_waited_for() -> None:
    async with FakeCluster(Random(1), failover=0.7) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer:
            old = (await consumer.find_leader("a", 0)).broker.node_id
            cluster.kill(old)
            assert (await consumer.find_new_leader("a", 0, old)).broker.node_id != old


@simulated(range(3))
async def test_find_new_leader_fails_after_three_seconds() -> None:
    async with FakeCluster(Random(1), failover=0.1) as cluster:
        cluster.add_topic("a", 1, replicas=1)
        async with consumer_on(cluster) as consumer:
            old = (await consumer.find_leader("a", 0)).broker.node_id
            cluster.kill(old)
            began = asyncio.get_running_loop().time()
            with pytest.raises(LeaderNotAvailable):
                await consumer.find_new_leader("a", 0, old)
            assert 2 < asyncio.get_running_loop().time() - began < 4


# --- replicas in the rack ------------------------------------------------------------------------


async def next_comes_within(
    seconds: float, cluster: FakeCluster, records: decoding.AsyncRecords
) -> None:
    (offset,) = cluster.append(*AT, 1)
    async with asyncio.timeout(seconds):
        assert (await anext(records)).offset == offset


@simulated(range(5))
async def test_the_leader_is_read_while_a_replica_is_unreachable() -> None:
    async with FakeCluster(Random(1), racks=("x", "y", "z")) as cluster:
        cluster.add_topic("a", 1)
        options = {"client_rack": "y", "request_timeout_ms": 4_000}
        async with consumer_on(cluster, **options) as consumer:
            records = aiter(consumer.read("a", 0))
            await next_comes_within(2, cluster, records)
            cluster.black_hole(2)  # the cluster does not notice it
            await next_comes_within(5, cluster, records)
            for _ in range(5):
                await next_comes_within(1, cluster, records)
            cluster.restore(2)
            await asyncio.sleep(60)
            before = cluster.brokers[2].requests[FETCH]
            await next_comes_within(2, cluster, records)
            await next_comes_within(2, cluster, records)
            assert cluster.brokers[2].requests[FETCH] > before


@simulated(range(5))
async def test_an_unknown_replica_causes_few_requests() -> None:
    async with FakeCluster(Random(1), racks=("x", "y", "z")) as cluster:
        cluster.add_topic("a", 1)
        cluster.kill(2)
        await asyncio.sleep(5)
        async with consumer_on(cluster, client_rack="y") as consumer:
            records = aiter(consumer.read("a", 0))
            await next_comes_within(2, cluster, records)
            cluster.start(2)
            await asyncio.sleep(5)
            before = sum(broker.requests[FETCH] for broker in cluster.brokers.values())
            await next_comes_within(2, cluster, records)
            after = sum(broker.requests[FETCH] for broker in cluster.brokers.values())
            assert after - before < 10
            await asyncio.sleep(40)
            await next_comes_within(2, cluster, records)
            await next_comes_within(2, cluster, records)
            assert cluster.brokers[2].requests[FETCH] > 0


@simulated(range(2))
async def test_the_preferred_replica_is_requested_again_after_an_interval() -> None:
    async with FakeCluster(Random(1), racks=("x", "y", "z")) as cluster:
        cluster.add_topic("a", 1)
        cluster.append("a", 0, 400, batches=400)
        options = {"client_rack": "y", "max_partition_fetch_bytes": 1}  # a batch each time
        async with consumer_on(cluster, **options) as consumer:
            asked = []
            async for _ in consumer.read("a", 0, 0, end=400):  # there is always more
                await asyncio.sleep(1)
                asked.append(cluster.brokers[1].requests[FETCH])
            assert (asked[0], asked[250], asked[-1]) == (1, 1, 2)


# --- streams that are closed ---------------------------------------------------------------------


async def rest_of(stream: PartitionStream) -> list[decoding.Record]:
    return [record async for record in stream]


@simulated(range(10))
@pytest.mark.parametrize("after", [0.0, 0.002, 0.004, 0.006, 0.008, 0.2])
async def test_a_closed_stream_ends_a_waiting_reader(after: float) -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer, asyncio.TaskGroup() as group:
            stream = consumer.read("a", 0)
            waiting = group.create_task(rest_of(stream))
            await asyncio.sleep(after)
            stream.close()
            async with asyncio.timeout(2):
                assert await waiting == []
            assert not [way for way in consumer._session.brokers._opened if way.slot]


@simulated(range(5))
async def test_a_closed_stream_ends_a_reader_that_retries() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer, asyncio.TaskGroup() as group:
            stream = consumer.read("a", 0, 0)
            waiting = group.create_task(rest_of(stream))
            await asyncio.sleep(1)
            for node in cluster.brokers:
                cluster.kill(node)
            await asyncio.sleep(2)
            stream.close()
            for node in cluster.brokers:
                cluster.start(node)
            cluster.append("a", 0, 1)
            async with asyncio.timeout(5):
                assert await waiting == []
            assert not [way for way in consumer._session.brokers._opened if way.slot]


# --- invalid responses ---------------------------------------------------------------------------


ASKED = {AT: PartitionFetch(5, 1000), OTHER: PartitionFetch(7, 1000)}


def answered(*partitions: TopicPartition) -> RawResponse:
    topics = [encode(11, 0, (0, 0), {tp: Part()}, [])[14:] for tp in partitions]
    head = encode(11, 0, (0, 0), {}, [])[:-4]
    return RawResponse(11, memoryview(head + len(topics).to_bytes(4, "big") + b"".join(topics)))


def test_a_partition_that_is_not_in_the_response_has_no_records() -> None:
    for reported in ((AT, OTHER), (OTHER,), ()):
        results = parse_response(answered(*reported), ASKED)
        assert [
            (response.partition, response.offset, bytes(response.data)) for response in results
        ] == [
            (AT, 5, b""),
            (OTHER, 7, b""),
        ]


@pytest.mark.parametrize(("reported", "seconds"), [(0, 0), (1500, 1.5), (-5, 0), (2**31 - 1, 30)])
def test_throttle_times_of_a_broker_are_limited(reported: int, seconds: float) -> None:
    raw = RawResponse(11, memoryview(encode(11, reported, (0, 0), {}, [])))
    assert [response.throttle for response in parse_response(raw, ASKED)] == [seconds, seconds]


def test_a_partition_that_is_in_the_response_twice_is_refused() -> None:
    with pytest.raises(MalformedResponse, match=r"a\[0\] is in the response twice"):
        parse_response(answered(AT, AT), ASKED)


def test_a_response_far_above_the_byte_limit_is_refused() -> None:
    def observed(*sets: bytes) -> RawResponse:
        topics = [
            encode(11, 0, (0, 0), {tp: Part(data=partition)}, [])[14:]
            for tp, partition in zip(ASKED, sets, strict=False)
        ]
        head = encode(11, 0, (0, 0), {}, [])[:-4]
        return RawResponse(11, memoryview(head + len(topics).to_bytes(4, "big") + b"".join(topics)))

    def count(raw: RawResponse) -> list[int]:
        return [len(response.data) for response in parse_response(raw, ASKED)]

    large, small = batch([Row(5, bytes(5 * 2**20))]), batch([Row(5)])
    assert count(observed(large)) == [len(large), 0]  # brokers send a whole batch to every client
    assert count(observed(large, large)) == [len(large), len(large)]
    assert count(observed(small * 5000)) == [
        5000 * len(small),
        0,
    ]  # some brokers stop only after the limit
    with pytest.raises(MalformedResponse, match="bytes of records, but 2000 and one batch"):
        parse_response(observed(small * 30_000), ASKED)
    with pytest.raises(MalformedResponse, match="bytes of records, but 500 and one batch"):
        parse_response(observed(small * 30_000), ASKED, 500)


@simulated(range(3))
@pytest.mark.parametrize(
    "topics",
    [
        None,
        [],
        [{"name": "b", "partitions": [{"partition": 0}]}],
        [{"name": "a", "partitions": [{"partition": 1}]}],
    ],
)
async def test_a_response_without_the_requested_offsets_is_refused(topics: Any) -> None:
    row = {"error_code": 0, "timestamp": -1, "offset": 3, "leader_epoch": 0}
    for topic in topics or ():
        topic["partitions"] = [row | partition for partition in topic["partitions"]]
    reported = handler(
        LIST_OFFSETS, lambda request, asked: {"throttle_time_ms": 0, "topics": topics}
    )
    async with FakeCluster(Random(1), handlers={**HANDLERS, LIST_OFFSETS.key: reported}) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer:
            with pytest.raises(
                MalformedResponse, match=r"response without a\[0\]|array that is null"
            ):
                await consumer.offsets_before("a", 0)


def test_a_large_batch_is_read_if_complete_and_otherwise_corrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_request, "_LARGE_BATCH", 1000)
    came = batch([Row(5, b"-" * 2000)])
    (response, _) = parse_response(answered(AT, OTHER), ASKED)
    assert [
        record.offset for record in response._replace(data=memoryview(came)).records(FetchConfig())
    ] == [5]
    with pytest.raises(CorruptRecords, match="more than the maximum of"):
        list(response._replace(data=memoryview(came)[:100]).records(FetchConfig()))


# --- hosts that are not allowed ------------------------------------------------------------------


@simulated(range(3))
async def test_connections_to_hosts_that_are_not_allowed_are_refused() -> None:
    async with FakeCluster(Random(1), brokers=2) as cluster:
        cluster.add_topic("a", 1)
        cluster.append("a", 0, 1)
        cluster.move_leader(AT, 2)
        options = {"allowed_hosts": ["broker-1"], "client_rack": "x"}
        async with consumer_on(cluster, **options) as consumer:
            async with asyncio.timeout(5):
                assert (await consumer.find_leader("a", 0)).broker.node_id == 2
                with pytest.raises(HostNotAllowed, match=r"broker-2:9092: .*allowed_hosts"):
                    await rest_of(consumer.read("a", 0, end=1))
                with pytest.raises(HostNotAllowed, match=r"broker-2:9092: .*allowed_hosts"):
                    await consumer.fetch({AT: 0})
            reader = RangeReader(cluster.bootstrap_servers)
            reader._session = consumer._session
            with pytest.raises(HostNotAllowed):
                async with asyncio.timeout(5), reader.read_all([OffsetRange("a", 0, 0, 1)]):
                    pass
        assert cluster.brokers[2].requests.total() == 0


# --- silent brokers ------------------------------------------------------------------------------


@simulated(range(5))
async def test_a_silent_leader_is_replaced_by_the_new_leader() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer:
            records = aiter(consumer.read("a", 0))
            await next_comes_within(2, cluster, records)
            cluster.black_hole(cluster.leader(AT))
            cluster.move_leader(AT, 2)
            await next_comes_within(8, cluster, records)


@simulated(range(5))
async def test_a_throttling_broker_keeps_its_connection() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer:
            records = aiter(consumer.read("a", 0))
            await next_comes_within(2, cluster, records)
            cluster.throttle(1, 20.0)
            existing = dict(consumer._session.brokers._opened)
            for _ in range(3):
                await next_comes_within(25, cluster, records)
            assert dict(consumer._session.brokers._opened) == existing


@simulated(range(3))
async def test_a_broker_that_reports_corruption_is_asked_three_times() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        async with consumer_on(cluster) as consumer:
            records = aiter(consumer.read("a", 0))
            cluster.fail_next(FETCH, CorruptMessage.code, times=2)
            await next_comes_within(2, cluster, records)
            await asyncio.sleep(1)  # requests sent ahead are answered
            before, began = cluster.brokers[1].requests[FETCH], asyncio.get_running_loop().time()
            cluster.fail_next(FETCH, CorruptMessage.code, times=1000)
            with pytest.raises(
                CorruptRecords, match="the broker reports corrupt records"
            ) as caught:
                await anext(records)
            assert caught.value.offset == 1
            assert asyncio.get_running_loop().time() - began < 5
            assert cluster.brokers[1].requests[FETCH] - before <= 4
            cluster._rules.troubles.clear()
            await next_comes_within(2, cluster, records)

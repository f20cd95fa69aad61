"""Metadata of clusters with hundreds of thousands of partitions: memory and event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    ClusterAccessDenied,
    FrameTooLarge,
    MalformedResponse,
    NoBrokerAnswered,
    RequestTimedOut,
    TopicAccessDenied,
    UnknownTopicOrPartition,
)
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.group.kip848.topic_watch import TopicWatch
from asyncconsumer.group.subscription import PatternSubscription
from asyncconsumer.net import cluster as module
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.protocol.messages import LIST_CONFIG_RESOURCES, ListTopicsRequest
from asyncconsumer.spark.options.selection import Matching
from asyncconsumer.spark.source.client import Client
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address, TopicPartition
from tests.support.fake_connections import FakeOpener, metadata_answer
from tests.support.large_metadata import large_answer

pytestmark = pytest.mark.fast


METADATA, LIST = 3, LIST_CONFIG_RESOURCES.key
A, B = Address("a", 1), Address("b", 2)
PLACES = {1: ("a", 1), 2: ("b", 2)}
SHAPES = {
    "one": {"t": 200_000},
    "some": {f"t-{n}": 100 for n in range(2_000)},
    "many": {f"t-{n}": 10 for n in range(20_000)},
}


class Large(FakeOpener):
    """Brokers a:1 and b:2, which answer every request for metadata with the same body."""

    def __init__(self, body: bytes, *, lists: bytes | None = None) -> None:
        super().__init__()
        self.body = body
        self.lists = (
            lists  # the response to ListConfigResources, or None if brokers do not support it
        )
        self.asked: list[tuple[Address, int]] = []
        self.answers = self.reply

    def reply(self, address: Address, request: bytes) -> bytes | None:
        api = int.from_bytes(request[4:6], "big")
        self.asked.append((address, api))
        return b"\0" + (self.body if api == METADATA else self.lists or b"")

    async def __call__(self, address: Address, config: ConnectionConfig) -> Any:
        connection = await super().__call__(address, config)
        if self.lists is not None:
            connection.versions = connection.versions | {LIST: (0, 1)}
        return connection


def listed(*names: str, code: int = 0) -> bytes:
    request = ListTopicsRequest().prepare({LIST: (0, 1)})
    return bytes(request.RESPONSE_TYPE(0, code, [(name, 2, {}) for name in names], {}).encode())


@asynccontextmanager
async def joined(opener: FakeOpener) -> AsyncIterator[Cluster]:
    config = ConnectionConfig(bootstrap_servers="a:1,b:2")
    async with (
        BrokerPool(config, randomness=Random(1), opener=opener) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
    ):
        yield cluster


async def turns_during(work: Callable[[], Awaitable[Any]]) -> int:
    """Return how many turns other tasks had during an operation."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_awaited(work))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return turns


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


# --- decoding in pieces ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
async def test_other_tasks_run_while_200_000_partitions_are_decoded(shape: str) -> None:
    topics = SHAPES[shape]
    opener = Large(large_answer(topics, brokers=PLACES))
    async with joined(opener) as cluster:
        assert await turns_during(partial(cluster.refresh, topics)) >= 200
        result = cluster.metadata.topics
        assert {name: len(topic.partitions) for name, topic in result.items()} == topics
        for name in list(topics)[:: len(topics) // 10 or 1]:
            last = TopicPartition(name, topics[name] - 1)
            assert cluster.leader(last).epoch == 7
        await cluster.refresh(topics)
        again = cluster.metadata.topics
        assert all(again[name].partitions is result[name].partitions for name in topics)
        opener.body = large_answer(topics, brokers=PLACES, replicas=1)
        assert await turns_during(partial(cluster.refresh, topics)) >= 200, (
            "a changed response is decoded again"
        )
        assert len(cluster.metadata.topics[name].partitions[0].replicas) == 1
        assert await turns_during(cluster.topic_names) >= 200
        assert await cluster.topic_names() == sorted(topics)


async def test_a_metadata_response_of_more_than_16_mib_is_decoded() -> None:
    body = large_answer({"t": 300_000}, brokers=PLACES, replicas=6)
    assert len(body) > 16 * 2**20
    async with joined(Large(body)) as cluster:
        metadata = await cluster.refresh(["t"])
        assert len(metadata.topics["t"].partitions) == 300_000
        assert metadata.topics["t"].partitions[299_999].replicas == (2, 1) * 3


async def test_the_size_of_a_metadata_response_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    async with joined(Large(large_answer({"t": 100}, brokers=PLACES))) as cluster:
        with pytest.raises(FrameTooLarge, match="at most 1000 are allowed"):
            await cluster.refresh(["t"])


async def test_topics_that_were_not_requested_are_not_kept() -> None:
    async with joined(Large(large_answer(SHAPES["some"], brokers=PLACES))) as cluster:
        assert set((await cluster.refresh(["t-5"])).topics) == {"t-5"}


async def test_another_broker_is_asked_after_a_malformed_response() -> None:
    opener = Large(large_answer({"t": 5}, brokers=PLACES))
    good, malformed_broker = opener.body, list[Address]()

    def reply(address: Address, request: bytes) -> bytes | None:
        opener.asked.append((address, METADATA))
        malformed_broker[:] = malformed_broker or [address]
        return b"\0" + (good[:-20] if malformed_broker == [address] else good)

    opener.answers = reply
    async with joined(opener) as cluster:
        assert len((await cluster.refresh(["t"])).topics["t"].partitions) == 5
        assert len(opener.asked) == 2
    opener.answers = lambda address, request: b"\0" + good[:-20]
    async with joined(opener) as cluster:
        with pytest.raises(NoBrokerAnswered, match="malformed Metadata") as caught:
            await cluster.refresh(["t"])
        assert all(isinstance(error, MalformedResponse) for error in caught.value.errors)


@simulated([1])
async def test_a_slow_response_is_awaited_while_bytes_arrive() -> None:
    opener = Large(b"")
    body = large_answer({"t": 20_000}, brokers=PLACES)
    opener.answers = lambda address, request: None

    async def send_slowly(piece: int) -> None:
        wire = opener.wires[-1]
        frame = (len(body) + 5).to_bytes(4, "big") + wire.sent[0][8:12] + b"\0" + body
        while frame and not wire.connection.is_closed:
            await asyncio.sleep(1)
            sent, frame = frame[:piece], frame[piece:]
            while sent and not wire.connection.is_closed:
                room = wire.connection.get_buffer(-1)
                now, sent = sent[: len(room)], sent[len(room) :]
                room[: len(now)] = now
                wire.connection.buffer_updated(len(now))

    async with joined(opener) as cluster, asyncio.TaskGroup() as group:
        start = asyncio.get_running_loop().time()
        answer = group.create_task(cluster.refresh(["t"]))
        await asyncio.sleep(0.1)
        await send_slowly(len(body) // 10)
        assert len((await answer).topics["t"].partitions) == 20_000
        assert asyncio.get_running_loop().time() - start >= 10
    opener = Large(b"")
    opener.answers = lambda address, request: None
    async with joined(opener) as cluster:
        start = asyncio.get_running_loop().time()
        with pytest.raises(NoBrokerAnswered, match="no response within 3 s"):
            await cluster.refresh(["t"])
        assert asyncio.get_running_loop().time() - start < 8  # two brokers, three seconds each
        assert all(isinstance(wire.connection.ending, RequestTimedOut) for wire in opener.wires)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 50_000])
async def test_only_names_are_requested_from_brokers_that_can_list_them(count: int) -> None:
    names = [f"t-{n}" for n in range(count)]
    opener = Large(b"", lists=listed(*names))
    async with joined(opener) as cluster:
        assert await turns_during(cluster.topic_names) >= count // 1000
        assert await cluster.topic_names() == sorted(names)
        assert {api for _, api in opener.asked} == {LIST}


async def test_metadata_is_requested_after_a_denied_list_of_names() -> None:
    denied = listed(code=ClusterAccessDenied.code)
    opener = Large(large_answer({"t": 5, "u": 1}, brokers=PLACES), lists=denied)
    async with joined(opener) as cluster:
        for _ in range(3):
            assert await cluster.topic_names() == ["t", "u"]
        assert [api for _, api in opener.asked] == [LIST, METADATA, METADATA, METADATA]


async def test_a_malformed_list_of_names_is_refused() -> None:
    whole = listed("first", "second")
    for end in range(len(whole) - 2):
        async with joined(Large(b"", lists=whole[:end])) as cluster:
            with pytest.raises(NoBrokerAnswered, match="malformed ListConfigResources"):
                await cluster.topic_names()


@simulated([1])
@pytest.mark.parametrize(("takes", "asked"), [(0.0, 20), (0.1, 20), (1.0, 9), (2.5, 4)])
async def test_slow_lists_of_names_are_requested_less_often(takes: float, asked: int) -> None:
    opener = Large(large_answer({"t": 1}, brokers=PLACES))
    list_times = list[float]()
    loop = asyncio.get_running_loop()

    def reply(address: Address, request: bytes) -> bytes | None:
        wire = next(wire for wire in opener.wires if wire.connection.address == address)
        if request[-4:-2] != b"\0\x02":  # a request for all topics, not for named topics
            list_times.append(loop.time())
        correlation = int.from_bytes(request[8:12], "big")
        loop.call_later(takes, wire.receive, correlation, b"\0" + opener.body)
        return None

    opener.answers = reply
    async with joined(opener) as cluster:
        for _ in range(20):  # like a member of a group
            await cluster.recent_topic_names()
            await asyncio.sleep(5)
        assert len(list_times) <= asked + 1
        assert len(list_times) >= asked - 1
        before = len(list_times)
        await cluster.topic_names()
        await cluster.topic_names()
        assert len(list_times) == before + 2, "a single call gets a fresh response"


async def test_a_pattern_requests_partitions_of_matching_topics_only() -> None:
    lists = listed("orders-1", "orders-2", *(f"t-{n}" for n in range(5_000)))
    opener = Large(large_answer({"orders-1": 2, "orders-2": 1}, brokers=PLACES), lists=lists)
    async with joined(opener) as cluster:
        topics = SubscribedTopics(cluster, PatternSubscription("orders-.*"), exclude_internal=True)
        assert await topics.names() == {"orders-1", "orders-2"}
        assert set(cluster.metadata.topics) == {"orders-1", "orders-2"}
        assert [api for _, api in opener.asked] == [LIST, METADATA]


def observed(**codes: int) -> bytes:
    """A Metadata answer with one partition of each topic whose code is 0."""
    leader = {0: (1, 0)}
    topics = {
        name.replace("_", "-"): (UUID(int=len(name)), code, {} if code else leader)
        for name, code in codes.items()
    }
    return metadata_answer(PLACES, topics)[1:]


async def test_a_pattern_excludes_topics_whose_metadata_is_denied() -> None:
    lists = listed("orders-1", "orders-secret", "other")
    opener = Large(observed(orders_1=0, orders_secret=TopicAccessDenied.code), lists=lists)
    pattern, event = PatternSubscription("orders-.*"), asyncio.Event()
    async with joined(opener) as cluster:
        topics = SubscribedTopics(cluster, pattern, exclude_internal=True)
        assert await topics.names() == {"orders-1"}
        watch = TopicWatch(
            cluster,
            pattern,
            exclude_internal=True,
            changed=event,
            names_found=event,
            randomness=Random(1),
        )
        assert (await watch._look_up(pattern)).names == {"orders-1"}
        client: Any = Client({"bootstrap.servers": "a:1"})
        client._session.cluster = cluster
        assert await client.partitions(Matching("orders-.*")) == {TopicPartition("orders-1", 0)}


async def test_partitions_of_a_topic_that_reappears_are_fresh() -> None:
    opener = Large(observed(orders_1=0, orders_22=0))
    async with joined(opener) as cluster:
        topics = SubscribedTopics(cluster, PatternSubscription("orders-.*"), exclude_internal=True)
        assert await topics.names() == {"orders-1", "orders-22"}
        again = TopicPartition("orders-22", 0)
        assert not topics.fresh([again])
        opener.body = observed(orders_1=0, orders_22=UnknownTopicOrPartition.code)
        for _ in range(6):  # a single broker that does not know the topic may be stale
            await cluster.topic_names()
            names = await topics.names()
        assert names == {"orders-1"}
        assert topics._seen.keys() == {"orders-1"}
        opener.body = observed(orders_1=0, orders_22=0)
        await cluster.topic_names()
        assert await topics.names() == {"orders-1", "orders-22"}
        assert topics.fresh([again]) == {again}

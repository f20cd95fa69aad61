"""Incremental fetch requests for thousands of partitions."""

import struct
from random import Random
from uuid import UUID

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import Cursor, FetchTarget
from asyncconsumer.fetch.fetch_request import PartitionFetch
from asyncconsumer.fetch.fetch_session import FetchSession
from asyncconsumer.fetch.fetcher import Fetcher, Report
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.fetch.plan import FetchPlan
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.fetch_codec import encode
from asyncconsumer.testing.fake_kafka.state import BrokerEndpoint
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.types import Address, TopicPartition
from tests.support.worlds.fetch import FETCH

pytestmark = pytest.mark.fast

OLD, NEW = UUID(int=1), UUID(int=2)
NO_RECORDS = RawResponse(17, memoryview(struct.pack(">ihi", 0, 0, 77) + b"\x01\x00"))
UNIT = 1000


def at(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class Broker:
    """A broker's view of a fetch session, request by request."""

    def __init__(self, session: FetchSession) -> None:
        self.session = session

    def observed(self) -> tuple[dict[int, int], list[int]]:
        """Return the offsets and the forgotten partitions of the next request."""
        versions = {1: (4, 17)}
        message = self.session.request(FetchConfig(), versions, max_wait_ms=1, rack="", max_bytes=1)
        values = message.prepare(versions)
        self.session.parse_response(NO_RECORDS)
        rows = [row for topic in values.topics for row in topic["partitions"]]
        forgotten = [number for topic in values.forgotten for number in topic["partitions"]]
        return {row.partition: row.fetch_offset for row in rows}, forgotten


def test_only_valid_broker_endpoints_are_accepted() -> None:
    reported = [
        BrokerEndpoint(node, Address(host, port), None)
        for node, (host, port) in enumerate([("k", 9092), ("", 9092), ("k", 0), ("k", 70_000)])
    ]
    raw = RawResponse(17, memoryview(encode(17, 0, (0, 77), {}, reported)))
    assert FetchSession().parse_response(raw).nodes == {0: Address("k", 9092)}


def test_a_fetch_session_sends_only_changes() -> None:
    session = FetchSession()
    broker = Broker(session)
    for number in range(1000):
        session.add(at(number), PartitionFetch(0, UNIT, 0, OLD))
    assert broker.observed() == (dict.fromkeys(range(1000), 0), [])
    session.add(at(7), PartitionFetch(5, UNIT, 0, OLD))
    session.add(at(8), PartitionFetch(0, UNIT, 0, OLD))  # as before
    session.remove(at(9))
    assert broker.observed() == ({7: 5}, [9])
    assert broker.observed() == ({}, [])
    session.add(at(7), PartitionFetch(0, UNIT, 0, NEW))  # the topic was re-created
    assert broker.observed() == ({7: 0}, [7])
    session.remove(at(7))
    session.add(at(7), PartitionFetch(0, UNIT, 0, NEW))  # before the next request
    assert broker.observed() == ({}, [])


def test_a_reset_fetch_session_sends_all_partitions() -> None:
    session = FetchSession()
    broker = Broker(session)
    for number in range(3):
        session.add(at(number), PartitionFetch(0, UNIT, 0, OLD))
    broker.observed()
    session.add(at(0), PartitionFetch(5, UNIT, 0, OLD))
    session.remove(at(1))
    session.reset()
    reported, forgotten = broker.observed()
    assert list(reported.items()) == [(2, 0), (0, 5)]  # a partition with new records is last
    assert forgotten == []


class Engine:
    """A plan with cursors for two channels that share a budget."""

    def __init__(self) -> None:
        self.budget = Budget(10 * UNIT)
        self.channels = Channel(self.budget), Channel(self.budget)
        self.session = FetchSession()
        self.broker = Broker(self.session)
        self.plan = FetchPlan(self.budget)
        self.cursors = [
            Cursor.of(at(number), FetchTarget(self.channels[number % 2], 0)) for number in range(4)
        ]
        for cursor in self.cursors:
            self.plan.add(cursor)

    def observed(self) -> tuple[dict[int, int], list[int]] | None:
        return self.broker.observed() if self.plan.apply_to(self.session, UNIT, UNIT) else None

    def fill(self, channel: int, size: int) -> None:
        self.budget.take(size)
        self.channels[channel].buffered_bytes += size


def test_a_plan_visits_only_changed_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    assert engine.observed() == (dict.fromkeys(range(4), 0), [])
    visited: list[int] = []
    ask = Cursor.to_fetch

    def recorded(self: Cursor, max_bytes: int) -> PartitionFetch:
        visited.append(self.partition.partition)
        return ask(self, max_bytes)

    monkeypatch.setattr(Cursor, "to_fetch", recorded)
    engine.cursors[2].advance(9, 0)
    engine.plan.mark_changed(engine.cursors[2])
    engine.cursors[3].paused = True
    engine.plan.mark_changed(engine.cursors[3])
    assert engine.observed() == ({2: 9}, [3])
    assert visited == [2]


def test_partitions_of_a_full_channel_are_omitted_until_it_has_room() -> None:
    engine = Engine()
    engine.observed()
    engine.fill(0, 6 * UNIT)
    assert engine.observed() == ({}, [0, 2])
    assert engine.plan.held_back
    engine.fill(1, 4 * UNIT)
    assert engine.observed() is None  # no channel has room: no request
    engine.fill(1, -4 * UNIT)
    engine.fill(0, -6 * UNIT)
    assert engine.observed() == ({0: 0, 2: 0}, [])
    assert not engine.plan.held_back


def test_a_requested_cursor_is_identified_by_its_version() -> None:
    engine = Engine()
    engine.observed()
    first = engine.cursors[0]
    engine.plan.remove(first)
    first.detach()
    assert engine.plan.requested_cursor(first.partition) is None  # a response is expected
    engine.plan.add(first)
    engine.observed()
    assert engine.plan.requested_cursor(first.partition) is first
    engine.plan.remove(first)
    engine.observed()
    assert first.partition not in engine.plan.requested


def test_no_cursor_is_visited_again_after_channels_were_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine()
    engine.observed()
    monkeypatch.setattr(Cursor, "to_fetch", None)
    engine.fill(0, 10 * UNIT)
    assert engine.observed() is None
    engine.fill(0, -10 * UNIT)
    assert engine.observed() == ({}, [])


async def read_all(refusals: list[Report], monkeypatch: pytest.MonkeyPatch) -> None:
    report = Fetcher._report

    def recorded(self: Fetcher, reported: Report) -> None:
        refusals.append(reported)
        report(self, reported)

    monkeypatch.setattr(Fetcher, "_report", recorded)
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        session = KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open
        )
        async with session:
            manager = FetchManager(
                session.brokers, session.cluster, FETCH, EngineConfig(), randomness=Random(3)
            )
            async with manager:
                channel = manager.channel()
                manager.reconcile({at(number): FetchTarget(channel, 0) for number in range(2)})
                records = aiter(Stream(channel))
                for number in (0, 1, 0, 1, 0):
                    cluster.append(*at(number), 40, batches=4, size=50)
                    for _ in range(40):
                        await anext(records)


def test_the_next_fetch_starts_after_the_received_records(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[Report] = []  # records that arrive twice are refused
    run(read_all(refusals, monkeypatch), seed=1, lag=0.001, limit=1000)
    assert refusals == []

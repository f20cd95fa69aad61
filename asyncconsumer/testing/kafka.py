"""A fake Kafka for tests without a broker.

async with FakeKafka() as kafka:
    async with Consumer("orders", group_id="billing", **kafka.options) as consumer:
        await kafka.send("orders", {"id": 1}, key="ann")
"""

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from operator import attrgetter
from random import Random
from typing import Any, Final, Protocol

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.environment import Environment
from asyncconsumer.testing.client import FakeClient
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.fake_kafka.log import Batch
from asyncconsumer.testing.settling import SETTLE_SECONDS, is_virtual, settle, unread
from asyncconsumer.testing.values import (
    HeadersToSend,
    PublishedRecord,
    encode,
    encode_batch_of_one,
    encode_headers,
    partition_of,
)
from asyncconsumer.types import TopicPartition

_LATENCY: Final = (0.0002, 0.002)  # of virtual time; on a real clock there is none


class Tested(Protocol):
    """The interface of an app under test. `FakeKafka.settled` waits until its records are done."""

    def check(self) -> None:
        """Raise the app's error if the app has failed."""

    def waits(self, tp: TopicPartition, committed: int) -> bool:
        """Return whether all uncommitted records of `tp` wait for their next attempt.

        Return False unless `tp` is a partition of a retry topic. `committed` is its committed
        offset.
        """

    async def commit(self) -> None:
        """Commit the offsets of processed records now, before the next automatic commit."""

    def describe(self) -> Iterable[str]:
        """Return a line of text for each handler that still has records to process."""


class FakeKafka(AsyncResource):
    """A Kafka cluster within the test process, without sockets, threads and files.

    Consumers, producers and apps that are created in its ``async with`` block run their production
    code with it. Pass them its `bootstrap_servers` or `options`. `ConsumerApp.testing` opens a
    FakeKafka for an app.

    A topic is created when it is first used, with `partitions` partitions. With
    ``auto_create_topics=False`` only `create_topic` creates one. On a virtual event loop
    (``@simulated``) the cluster runs in virtual time, otherwise in real time.

    `cluster` has methods for faults: `kill`, `start`, `freeze`, `slow`, `black_hole`,
    `move_leader`, `fail_next`, `lose_next` and more.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        partitions: int = 1,
        auto_create_topics: bool = True,
        seed: int = 0,
    ) -> None:
        self.partitions: Final = partitions
        self.auto_create_topics: Final = auto_create_topics
        self._brokers = brokers
        self._randomness = Random(seed)  # noqa: S311 - for repeatable tests
        self._cluster: CompleteCluster | None = None
        self._client: FakeClient | None = None
        self._sent: set[str] = set()
        self._tested: list[Tested] = []
        self._names = itertools.count(1)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._cluster = await stack.enter_async_context(
            CompleteCluster(
                self._randomness,
                brokers=self._brokers,
                latency=_LATENCY if is_virtual() else (0.0, 0.0),
                topic_partitions=self.partitions if self.auto_create_topics else None,
            )
        )
        self._client = self.client()
        await stack.enter_async_context(self._client)

    # --- clients ---------------------------------------------------------------------------------

    @property
    def cluster(self) -> CompleteCluster:
        """The brokers, with methods for faults."""
        assert self._cluster is not None, "enter the `async with` block of the FakeKafka first"
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, which exist only in this process."""
        return self.cluster.bootstrap_servers

    @property
    def options(self) -> dict[str, Any]:
        """The option `bootstrap_servers`, as keyword arguments: ``**kafka.options``."""
        return {"bootstrap_servers": self.bootstrap_servers}

    @property
    def environment(self) -> Environment:
        """Transports, random numbers and clocks of the clients that are created in the block."""
        assert self._client is not None, "enter the `async with` block of the FakeKafka first"
        return self._client.environment

    def client(self) -> FakeClient:
        """Return a client with its own network, which the test can disconnect.

        Consumers, producers and apps that are created in its ``async with`` block use this network.
        """
        return FakeClient(self.cluster, Random(self._randomness.random()))  # noqa: S311

    def expire_members(self, group: str) -> int:
        """Remove all members of a group, as if their sessions had timed out. Return their number.

        The members lose their partitions, and join again.
        """
        return self.cluster.expire_members(group)

    # --- topics ----------------------------------------------------------------------------------

    async def create_topic(self, name: str, *, partitions: int | None = None) -> str:
        """Create a topic and return its name."""
        self.cluster.add_topic(name, partitions or self.partitions)
        return name

    async def topic(self, *, partitions: int | None = None) -> str:
        """Create a topic with a new name, and return the name."""
        return await self.create_topic(f"topic-{next(self._names)}", partitions=partitions)

    def group(self) -> str:
        """Return a new name for a consumer group."""
        return f"group-{next(self._names)}"

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic, which is created if it does not exist."""
        topics = self.cluster.view.topics
        if topic not in topics and self.auto_create_topics:
            self.cluster.add_topic(topic, self.partitions)
        return len(self.cluster.view.topic(topic).partitions)

    def ensure_partitions(self, topic: str, count: int) -> None:
        """Create a topic with at least this number of partitions, or add the missing ones."""
        if topic not in self.cluster.view.topics:
            self.cluster.add_topic(topic, count)
        elif self.partition_count(topic) < count:
            self.cluster.add_partitions(topic, count)

    # --- records ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersToSend = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> TopicPartition:
        """Write a record, and return its partition, which the key selects as Java's producer does.

        A dict, a list or a model is written as JSON, text as UTF-8, and bytes as they are. A
        record without a value is a tombstone.
        """
        raw_key, raw_value = encode(key, topic, "key"), encode(value, topic, "value")
        moment = self.cluster.now_ms() if timestamp_ms is None else timestamp_ms
        data = encode_batch_of_one(raw_key, raw_value, encode_headers(headers), moment)
        count = self.partition_count(topic)
        tp = TopicPartition(topic, partition_of(raw_key, count, partition, self._randomness))
        self.cluster.append_batch(tp, Batch(0, 1, 0, moment, data))
        self._sent.add(topic)
        await asyncio.sleep(0)
        return tp

    def published(self, topic: str) -> list[PublishedRecord]:
        """Return the records of a topic, or an empty list if it does not exist.

        Records of several partitions are merged by their timestamps. Records of open and of
        aborted transactions are left out.
        """
        known = self.cluster.view.topics.get(topic)
        numbers = range(len(known.partitions)) if known is not None else ()
        partitions = [
            self.cluster.committed_records(TopicPartition(topic, number)) for number in numbers
        ]
        merged = heapq.merge(*partitions, key=attrgetter("timestamp"))
        return [PublishedRecord.of(record) for record in merged]

    async def read(self, topic: str) -> list[PublishedRecord]:
        """Return the result of `published`. The fixtures for real brokers have the same method."""
        return self.published(topic)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        offsets = self.cluster.storage.offsets.get(group, {})
        return {TopicPartition(*place): row["offset"] for place, row in offsets.items()}

    # --- settling --------------------------------------------------------------------------------

    async def settled(
        self, group: str | None = None, *, timeout: float = SETTLE_SECONDS, retries: bool = False
    ) -> None:
        """Wait until all records are processed and committed by all groups that read them.

        A record is processed if its handler returned, if it was dead-lettered or skipped, or if it
        waits in a retry topic. With `retries`, wait for records in retry topics as well. With
        `group`, wait for one group only.

        Raise the error of an app that failed. After `timeout` seconds, by the event loop's clock,
        raise `NotSettled` with a list of the pending records.
        """

        async def pending() -> list[str]:
            for tested in self._tested:
                tested.check()
            if not (behind := list(self._behind(group, retries=retries))):
                return []
            for tested in self._tested:
                await tested.commit()
            return behind + [line for tested in self._tested for line in tested.describe()]

        await settle(pending, timeout)

    def _behind(self, group: str | None, *, retries: bool) -> Iterator[str]:
        """Yield a line of text for each partition with records that a group has not committed.

        With `retries=False`, leave out records that wait for their next attempt in a retry topic.
        """
        readers = self.cluster.topics_by_group()
        for name, topics in readers.items():
            if group not in (None, name):
                continue
            committed = self.committed(name)
            for tp in self._partitions(topics):
                offset = committed.get(tp, 0)
                if not retries and any(tested.waits(tp, offset) for tested in self._tested):
                    continue
                records = list(self.cluster.committed_records(tp, offset))
                if records:
                    yield unread(name, tp, len(records), records[0].offset)
        for topic in sorted(self._sent.difference(*readers.values())) if readers else self._sent:
            if group is None and topic in self.cluster.view.topics:
                yield f"no group has read {topic!r}"

    def _partitions(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        for name in sorted(topics):
            if (topic := self.cluster.view.topics.get(name)) is not None:
                yield from (TopicPartition(name, each.number) for each in topic.partitions)

    def watch(self, tested: Tested) -> None:
        """Add an app, for which `settled` waits from now on."""
        self._tested.append(tested)

    def forget(self, tested: Tested) -> None:
        """Remove an app that `watch` added, after it was closed."""
        self._tested.remove(tested)

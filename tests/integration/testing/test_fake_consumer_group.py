"""Equality of the fake coordinator and a real one for KIP-848 requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.virtual_time import run

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
LOADING = {14, 15, 16}


Log: TypeAlias = list[tuple[object, ...]]


class Said:
    """A log of heartbeat responses in a form that a real and a fake coordinator share."""

    def __init__(self, coordinator: Coordinator, topic: str, topic_id: UUID) -> None:
        self.log: Log = []
        self._coordinator = coordinator
        self._topic = topic
        self._topic_id = topic_id
        self._epochs: dict[str, int] = {}
        self.assigned: dict[str, list[int]] = {}

    async def beat(self, name: str, epoch: int | None = None, **more: Any) -> None:
        """Send a heartbeat in the member's current epoch, or in `epoch`."""
        now = self._epochs.get(name, JOIN) if epoch is None else epoch
        if now == JOIN:
            more = {"topics": [self._topic], "rebalance_timeout_ms": 2000, "owned": {}, **more}
        answer = await self._ask(name, now, more)
        if not answer["error_code"]:
            self._epochs[name] = max(answer["member_epoch"], JOIN)
        reported = answer["assignment"]
        if reported is not None:
            self.assigned[name] = sorted(n for row in reported[0] for n in row[1])
        count = None if reported is None else len(self.assigned[name])
        self.log.append((name, now, answer["error_code"], answer["member_epoch"], count))

    def owned(self, numbers: list[int]) -> Mapping[UUID, list[int]]:
        return {self._topic_id: numbers} if numbers else {}

    async def has(self, name: str, numbers: list[int] | None = None, **more: Any) -> None:
        """A heartbeat that says what it owns, all that it was given unless something is said."""
        owned = self.assigned[name] if numbers is None else numbers
        await self.beat(name, owned=self.owned(owned), **more)

    async def _ask(self, name: str, epoch: int, more: Mapping[str, Any]) -> dict[str, Any]:
        group = self._coordinator.group_id
        while True:
            message = ConsumerGroupHeartbeatRequest(group, f"{group}-{name}", epoch, **more)
            try:
                async with self._coordinator.reached(Traffic.HEARTBEAT) as connection:
                    answer: dict[str, Any] = (await connection.request(message)).to_object()
                    if answer["error_code"] not in LOADING:
                        return answer
            except ConsumerError as error:
                if not error.retriable:
                    raise
            self._coordinator.forget()
            await asyncio.sleep(0.1)


Script = Callable[[Said], Awaitable[None]]


async def two_share_and_one_leaves(said: Said) -> None:
    await said.beat("a")
    await said.has("a")
    before = said.assigned["a"]
    await said.beat("b")  # nothing is free
    await said.beat("a")  # has to revoke half
    await said.has("a", before)  # does not
    await said.beat("b")
    await said.beat("a")
    await said.has("a")  # does
    await said.beat("b")
    await said.has("b")
    await said.beat("a", LEAVE)
    await said.beat("b")
    await said.has("b")
    await said.beat("a", LEAVE)
    await said.beat("a", 1)


async def answers_are_lost(said: Said) -> None:
    await said.beat("a")
    await said.beat("a", JOIN)
    first = said._epochs["a"]
    await said.has("a")
    await said.beat("b")
    await said.beat("a")
    await said.has("a")
    later = said._epochs["a"]
    assert later > first
    await said.beat("a", first)  # an epoch behind, and nothing is said of what it owns
    await said.beat("a", first, owned=said.owned(said.assigned["a"]))  # then it is believed
    await said.beat("a", first, owned=said.owned([0, 1, 2, 3]))
    await said.beat("a", later + 1)
    await said.beat("a", later, owned=said.owned(said.assigned["a"]))
    await said.beat("a", JOIN)


async def one_is_too_slow(said: Said) -> None:
    await said.beat("a")
    await said.beat("b")
    await said.beat("a")
    for _ in range(12):  # a rebalance timeout of 2 s, and sessions of 6
        await asyncio.sleep(0.25)
        await said._ask("b", said._epochs["b"], {})
        answer = await said._ask("a", said._epochs["a"], {})
        if answer["error_code"]:
            break
    said.log.append(("a", answer["error_code"]))
    await said.beat("b")
    await said.beat("a", JOIN)


async def one_is_silent(said: Said) -> None:
    await said.beat("a")
    await said.beat("b")
    for _ in range(24):
        await asyncio.sleep(0.5)
        answer = await said._ask("b", said._epochs["b"], {"owned": said.owned(said.assigned["b"])})
        said._epochs["b"] = answer["member_epoch"]
        if answer["assignment"] is not None:
            said.assigned["b"] = sorted(n for row in answer["assignment"][0] for n in row[1])
        if len(said.assigned["b"]) == 4:
            break
    await said.beat("a")
    await said.beat("a", JOIN)


async def static_members(said: Said) -> None:
    await said.beat("a", instance_id="i")
    await said.beat("b", instance_id="i")
    await said.beat("a", LEAVE_FOR_A_WHILE, instance_id="i")
    await said.beat("b", instance_id="i")
    await said.beat("a", 2, instance_id="i")
    await said.beat("a", 2)
    await said.has("b", instance_id="i")
    await said.beat("b", LEAVE, instance_id="i")
    await said.beat("b", instance_id="i")


async def what_makes_no_sense(said: Said) -> None:
    await said.beat("a", 5)  # a group that is not there
    await said.beat("a", LEAVE)
    await said.beat("a", topic_regex="(", topics=None)
    await said.beat("a", server_assignor="fair")
    await said.beat("a", owned=None)
    await said.beat("a", owned=said.owned([0]))
    await said.beat("a", rebalance_timeout_ms=-1)
    await said.beat("a", rack_id="")
    await said.beat("a", topics=[])
    await said.beat("a", 5)


@asynccontextmanager
async def real(kafka: KafkaHandle) -> AsyncIterator[Said]:
    topic = await kafka.topic(partitions=4)
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(1)) as cluster,
    ):
        topic_id = (await cluster.refresh([topic])).topics[topic].topic_id
        assert topic_id is not None
        yield Said(Coordinator(kafka.group(), brokers, cluster), topic, topic_id)


@asynccontextmanager
async def fake() -> AsyncIterator[Said]:
    groups = ConsumerGroups(Random(1), session_timeout=6, interval=0.5)
    async with FakeCluster(Random(2), brokers=1, handlers={**HANDLERS, **groups.handlers}) as fakes:
        topic_id = fakes.add_topic("t", 4)
        async with (
            BrokerPool(fakes.config(), randomness=Random(1), opener=fakes.open) as brokers,
            Cluster(brokers, randomness=Random(1)) as cluster,
        ):
            yield Said(Coordinator("g", brokers, cluster), "t", topic_id)
        groups.close()


@pytest.mark.parametrize(
    "script",
    [
        two_share_and_one_leaves,
        answers_are_lost,
        one_is_too_slow,
        one_is_silent,
        static_members,
        what_makes_no_sense,
    ],
    ids=lambda script: script.__name__,
)
async def test_the_fake_coordinator_answers_as_kafka_does(
    kafka: KafkaHandle, script: Script
) -> None:
    async def play_fake() -> Log:
        async with fake() as said:
            await script(said)
            return said.log

    async with real(kafka) as said:
        await script(said)
    # on virtual time, so on an event loop and in a thread of its own
    assert await asyncio.to_thread(run, play_fake) == said.log

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

JOIN, LEAVE, LEAVE_TEMPORARILY = 0, -1, -2
LOADING = {14, 15, 16}


Log: TypeAlias = list[tuple[object, ...]]


class Heartbeats:
    """A log of heartbeat responses in a form that a real and a fake coordinator share."""

    def __init__(self, coordinator: Coordinator, topic: str, topic_id: UUID) -> None:
        self.log: Log = []
        self._coordinator = coordinator
        self._topic = topic
        self._topic_id = topic_id
        self._epochs: dict[str, int] = {}
        self.assigned: dict[str, list[int]] = {}

    async def send(self, name: str, epoch: int | None = None, **more: Any) -> None:
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

    async def send_owned(self, name: str, numbers: list[int] | None = None, **more: Any) -> None:
        """Send a heartbeat with the owned partitions, by default all assigned ones."""
        owned = self.assigned[name] if numbers is None else numbers
        await self.send(name, owned=self.owned(owned), **more)

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


Script = Callable[[Heartbeats], Awaitable[None]]


async def two_members_share_and_leave(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a")
    await heartbeats.send_owned("a")
    before = heartbeats.assigned["a"]
    await heartbeats.send("b")  # no partition is free
    await heartbeats.send("a")  # must revoke half
    await heartbeats.send_owned("a", before)  # without revoking
    await heartbeats.send("b")
    await heartbeats.send("a")
    await heartbeats.send_owned("a")  # revoked
    await heartbeats.send("b")
    await heartbeats.send_owned("b")
    await heartbeats.send("a", LEAVE)
    await heartbeats.send("b")
    await heartbeats.send_owned("b")
    await heartbeats.send("a", LEAVE)
    await heartbeats.send("a", 1)


async def responses_are_lost(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a")
    await heartbeats.send("a", JOIN)
    first = heartbeats._epochs["a"]
    await heartbeats.send_owned("a")
    await heartbeats.send("b")
    await heartbeats.send("a")
    await heartbeats.send_owned("a")
    later = heartbeats._epochs["a"]
    assert later > first
    await heartbeats.send("a", first)  # the previous epoch, without owned partitions
    # the previous epoch with owned partitions is accepted
    await heartbeats.send("a", first, owned=heartbeats.owned(heartbeats.assigned["a"]))
    await heartbeats.send("a", first, owned=heartbeats.owned([0, 1, 2, 3]))
    await heartbeats.send("a", later + 1)
    await heartbeats.send("a", later, owned=heartbeats.owned(heartbeats.assigned["a"]))
    await heartbeats.send("a", JOIN)


async def one_member_revokes_too_late(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a")
    await heartbeats.send("b")
    await heartbeats.send("a")
    for _ in range(12):  # a rebalance timeout of 2 s, and sessions of 6
        await asyncio.sleep(0.25)
        await heartbeats._ask("b", heartbeats._epochs["b"], {})
        answer = await heartbeats._ask("a", heartbeats._epochs["a"], {})
        if answer["error_code"]:
            break
    heartbeats.log.append(("a", answer["error_code"]))
    await heartbeats.send("b")
    await heartbeats.send("a", JOIN)


async def one_member_sends_no_heartbeat(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a")
    await heartbeats.send("b")
    for _ in range(24):
        await asyncio.sleep(0.5)
        answer = await heartbeats._ask(
            "b", heartbeats._epochs["b"], {"owned": heartbeats.owned(heartbeats.assigned["b"])}
        )
        heartbeats._epochs["b"] = answer["member_epoch"]
        if answer["assignment"] is not None:
            heartbeats.assigned["b"] = sorted(n for row in answer["assignment"][0] for n in row[1])
        if len(heartbeats.assigned["b"]) == 4:
            break
    await heartbeats.send("a")
    await heartbeats.send("a", JOIN)


async def static_members(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a", instance_id="i")
    await heartbeats.send("b", instance_id="i")
    await heartbeats.send("a", LEAVE_TEMPORARILY, instance_id="i")
    await heartbeats.send("b", instance_id="i")
    await heartbeats.send("a", 2, instance_id="i")
    await heartbeats.send("a", 2)
    await heartbeats.send_owned("b", instance_id="i")
    await heartbeats.send("b", LEAVE, instance_id="i")
    await heartbeats.send("b", instance_id="i")


async def invalid_requests(heartbeats: Heartbeats) -> None:
    await heartbeats.send("a", 5)  # a group that does not exist
    await heartbeats.send("a", LEAVE)
    await heartbeats.send("a", topic_regex="(", topics=None)
    await heartbeats.send("a", server_assignor="fair")
    await heartbeats.send("a", owned=None)
    await heartbeats.send("a", owned=heartbeats.owned([0]))
    await heartbeats.send("a", rebalance_timeout_ms=-1)
    await heartbeats.send("a", rack_id="")
    await heartbeats.send("a", topics=[])
    await heartbeats.send("a", 5)


@asynccontextmanager
async def real(kafka: KafkaHandle) -> AsyncIterator[Heartbeats]:
    topic = await kafka.topic(partitions=4)
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(1)) as cluster,
    ):
        topic_id = (await cluster.refresh([topic])).topics[topic].topic_id
        assert topic_id is not None
        yield Heartbeats(Coordinator(kafka.group(), brokers, cluster), topic, topic_id)


@asynccontextmanager
async def fake() -> AsyncIterator[Heartbeats]:
    groups = ConsumerGroups(Random(1), session_timeout=6, interval=0.5)
    async with FakeCluster(Random(2), brokers=1, handlers={**HANDLERS, **groups.handlers}) as fakes:
        topic_id = fakes.add_topic("t", 4)
        async with (
            BrokerPool(fakes.config(), randomness=Random(1), opener=fakes.open) as brokers,
            Cluster(brokers, randomness=Random(1)) as cluster,
        ):
            yield Heartbeats(Coordinator("g", brokers, cluster), "t", topic_id)
        groups.close()


@pytest.mark.parametrize(
    "script",
    [
        two_members_share_and_leave,
        responses_are_lost,
        one_member_revokes_too_late,
        one_member_sends_no_heartbeat,
        static_members,
        invalid_requests,
    ],
    ids=lambda script: script.__name__,
)
async def test_the_fake_coordinator_answers_as_the_real_one(
    kafka: KafkaHandle, script: Script
) -> None:
    async def play_fake() -> Log:
        async with fake() as heartbeats:
            await script(heartbeats)
            return heartbeats.log

    async with real(kafka) as heartbeats:
        await script(heartbeats)
    # virtual time needs an event loop, and so a thread, of its own
    assert await asyncio.to_thread(run, play_fake) == heartbeats.log

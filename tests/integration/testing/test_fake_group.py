"""Equality of the fake coordinator and a real one for classic group requests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from aiokafka.protocol.api import Request

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerOpener, BrokerPool, Traffic
from asyncconsumer.protocol.classic_group import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from asyncconsumer.protocol.offset_commit import Commit, OffsetCommitRequest, OffsetFetchRequest
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolSubscription
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.handles import KafkaHandle

ONE, TWO = (ConsumerProtocolSubscription([name]).encode() for name in ("one", "two"))
ODD = {"odd": ONE, "even": TWO}  # valid subscriptions, because Kafka decodes them


class Coordination:
    """A coordinator and its responses, with member ids replaced by the names of the test."""

    def __init__(self, coordinator: Coordinator, brokers: BrokerPool, topic: str) -> None:
        self.trace: list[object] = []
        self._coordinator = coordinator
        self._group = coordinator.group_id
        self._brokers = brokers
        self._topic = topic
        self._names: dict[str, str] = {}  # by id
        self._ids: dict[str, str] = {}  # by name, the newest
        self._slots: dict[str, int] = {}

    async def ask(self, name: str, request: Request) -> dict[str, Any]:
        slot_number = self._slots.setdefault(name, self._brokers.new_slot())
        while True:
            try:
                address = await self._coordinator.find()
                break
            except BrokerError:
                await asyncio.sleep(0.05)
        connection = await self._brokers.connection(address, Traffic.JOIN, slot=slot_number)
        values: dict[str, Any] = (await connection.request(request)).to_object()
        if values.get("error_code") in (14, 15, 16):  # the coordinator is still loading
            await asyncio.sleep(0.05)
            return await self.ask(name, request)
        return values

    def id(self, name: str) -> str:
        return self._ids.get(name, name)

    async def join(
        self,
        name: str,
        protocols: Mapping[str, bytes] = ODD,
        *,
        instance: str | None = None,
        new: bool = False,
        session: int = 6_000,
    ) -> None:
        request = JoinGroupRequest(
            self._group,
            protocols,
            protocol_type="consumer",
            session_timeout_ms=session,
            rebalance_timeout_ms=20_000,
            member_id="" if new else self.id(name),
            group_instance_id=instance,
        )
        answer = await self.ask(name, request)
        if answer["member_id"] not in ("", name):
            count = len([text for text in self._names.values() if text.startswith(name)])
            self._names.setdefault(answer["member_id"], f"{name}{count + 1}")
            self._ids[name] = answer["member_id"]
        members = [
            (self._name(row["member_id"]), row["group_instance_id"], row["metadata"])
            for row in answer["members"]
        ]
        reported = {
            "code": answer["error_code"],
            "generation": answer["generation"],
            "protocol": answer["protocol"] or "",
            "leader": self._name(answer["leader"]),
            "skip": answer["skip_assignment"],
            "members": sorted(members),
        }
        self.trace.append((f"join {name}", reported))

    async def sync(self, name: str, generation: int, assignments: Mapping[str, bytes] = {}) -> None:
        request = SyncGroupRequest(
            self._group,
            generation,
            self.id(name),
            protocol_type="consumer",
            protocol="odd",
            assignments={self.id(name): assignment for name, assignment in assignments.items()},
        )
        answer = await self.ask(name, request)
        self.trace.append((f"sync {name}", answer["error_code"], answer["assignment"]))

    async def heartbeat(self, name: str, generation: int, *, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            self._group, generation, self.id(name), group_instance_id=instance
        )
        code: int = (await self.ask(f"{name}'s heartbeats", request))["error_code"]
        self.trace.append((f"beat {name}", code))
        return code

    async def describe(self) -> None:
        answer = await self.ask("operator", DescribeGroupsRequest(self._group))
        (group,) = answer["groups"]
        columns = ("group_instance_id", "metadata", "assignment")
        members = [
            (self._name(row["member_id"]), *(row[column] for column in columns))
            for row in group["members"]
        ]
        fields = ("error_code", "group_state", "protocol_type", "protocol", "authorized_operations")
        self.trace.append(("describe", [group[field] for field in fields], sorted(members)))

    async def until_rebalance(self, name: str, generation: int) -> None:
        """Send heartbeats until the group rebalances."""
        self.trace.append(f"until {name} is notified")
        until = len(self.trace)
        while await self.heartbeat(name, generation) != 27:
            await asyncio.sleep(0.05)
        del self.trace[until:]

    async def leave(self, name: str, *, instance: str | None = None) -> None:
        request = LeaveGroupRequest(self._group, self.id(name), group_instance_id=instance)
        answer = await self.ask(f"{name}'s hand", request)
        codes = [row["error_code"] for row in answer["members"]]
        self.trace.append((f"leave {name}", answer["error_code"], codes))

    async def commit(self, name: str, generation: int, offset: int) -> None:
        request = OffsetCommitRequest(
            self._group,
            {self._topic: [Commit(0, offset)]},
            generation=generation,
            member_id="" if name == "nobody" else self.id(name),
        )
        answer = await self.ask(f"{name}'s hand", request)
        self.trace.append((f"commit {name}", answer["topics"][0]["partitions"]))

    async def committed(self) -> None:
        answer = await self.ask("anybody", OffsetFetchRequest(self._group, {self._topic: [0, 1]}))
        rows = [(row["partition"], row["offset"]) for row in answer["topics"][0]["partitions"]]
        self.trace.append(("committed", sorted(rows)))

    def _name(self, member_id: str) -> str:
        return self._names.get(member_id, member_id)


async def one_member(coordinator: Coordination) -> None:
    """Play one member, from before it joins until after it has left."""
    await coordinator.committed()
    await coordinator.commit("nobody", -1, 1)
    await coordinator.heartbeat("a", 1)
    await coordinator.join("a", session=1)
    await coordinator.join("a")  # an unknown member id
    await coordinator.join("a", {}, new=True)
    await coordinator.join("a", new=True)
    await coordinator.heartbeat("a", 0)
    await coordinator.join("a")
    await coordinator.heartbeat("a", 1)
    await coordinator.commit("a", 1, 2)
    await coordinator.sync("a", 7)
    await coordinator.sync("a", 1, {"a": b"all"})
    await coordinator.sync("a", 1)
    await coordinator.heartbeat("a", 1)
    await coordinator.heartbeat("a", 2)
    await coordinator.heartbeat("stranger", 1)
    await coordinator.commit("a", 1, 3)
    await coordinator.commit("a", 0, 4)
    await coordinator.commit("stranger", 1, 5)
    await coordinator.commit("nobody", -1, 6)
    await coordinator.committed()
    await coordinator.join("stranger", {"none of these": b""}, new=True)
    await coordinator.leave("stranger")
    await coordinator.leave("a")
    await coordinator.leave("a")
    await coordinator.heartbeat("a", 1)
    await coordinator.commit("nobody", -1, 7)
    await coordinator.committed()


async def two_join(coordinator: Coordination) -> None:
    await coordinator.join("a", new=True)
    await coordinator.join("a")
    await coordinator.sync("a", 1, {"a": b"all"})
    await coordinator.join("b", new=True)
    await coordinator.heartbeat("a", 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(coordinator.join("b"))
        await coordinator.until_rebalance("a", 1)
        await coordinator.commit("a", 1, 10)
        await coordinator.sync("a", 1)
        await coordinator.join("a")
    coordinator.trace[-2:] = sorted(
        coordinator.trace[-2:], key=str
    )  # the order of responses varies
    await coordinator.heartbeat("b", 1)
    await coordinator.heartbeat("b", 2)
    async with asyncio.TaskGroup() as group:
        group.create_task(coordinator.sync("b", 2))
        await asyncio.sleep(0.05)
        await coordinator.sync("a", 2, {"a": b"half", "b": b"other half"})
    coordinator.trace[-2:] = sorted(coordinator.trace[-2:], key=str)


async def two_members(coordinator: Coordination) -> None:
    """Play a second member that joins. Both rejoin, and one leaves."""
    await two_join(coordinator)
    await coordinator.join("b")  # a follower that joins again gets the same response
    await coordinator.heartbeat("a", 2)
    async with asyncio.TaskGroup() as group:
        group.create_task(coordinator.join("a"))  # the leader triggers a rebalance
        await coordinator.until_rebalance("b", 2)
        await coordinator.join("b")
    coordinator.trace[-2:] = sorted(coordinator.trace[-2:], key=str)
    async with asyncio.TaskGroup() as group:
        group.create_task(coordinator.sync("b", 3))
        await asyncio.sleep(0.05)
        await coordinator.leave("a")  # the leader sends no assignment
    coordinator.trace[-2:] = sorted(coordinator.trace[-2:], key=str)
    await coordinator.join("b")
    await coordinator.sync("b", 4, {"b": b"all"})
    await coordinator.join("b", {"odd": TWO})
    await coordinator.sync("b", 5, {"b": b"all"})


async def silent_member(coordinator: Coordination) -> None:
    """Play a member without heartbeats. It is removed, and rejoins."""
    await two_join(coordinator)
    await coordinator.until_rebalance("a", 2)  # the session of the other is over
    await coordinator.describe()
    await coordinator.heartbeat("b", 2)
    await coordinator.commit("b", 2, 11)
    await coordinator.join("b")
    await coordinator.join("a")
    await coordinator.sync("a", 3, {"a": b"all"})


async def static_member(coordinator: Coordination) -> None:
    """Play a static member that returns, and another with the same instance id."""
    await coordinator.join("a", instance="i", new=True)
    await coordinator.sync("a", 1, {"a": b"all"})
    first = coordinator.id("a")
    await coordinator.describe()
    await coordinator.join("a", instance="i", new=True)
    await coordinator.heartbeat("a", 1, instance="i")
    await coordinator.sync("a", 1)
    await coordinator.describe()
    second = coordinator.id("a")
    coordinator._ids["a"] = first
    await coordinator.heartbeat("a", 1, instance="i")
    await coordinator.heartbeat("a", 1)
    await coordinator.join("a", instance="i")
    coordinator._ids["a"] = second
    await coordinator.leave("a", instance="i")
    await coordinator.heartbeat("a", 1, instance="i")
    await coordinator.describe()


@asynccontextmanager
async def coordination(
    servers: str, group: str, topic: str, opener: BrokerOpener
) -> AsyncIterator[Coordination]:
    config = ConnectionConfig(bootstrap_servers=servers)
    async with (
        BrokerPool(config, randomness=Random(1), opener=opener) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
    ):
        yield Coordination(Coordinator(group, brokers, cluster), brokers, topic)


@pytest.mark.parametrize(
    "script",
    [one_member, two_members, silent_member, static_member],
    ids=lambda member: member.__name__,
)
async def test_the_fake_group_coordinator_answers_as_the_real_one(
    kafka: KafkaHandle, script: Callable[[Coordination], Coroutine[Any, Any, None]]
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    async with GroupCluster(Random(3), brokers=1) as cluster:
        cluster.add_topic(topic, 2)
        async with (
            coordination(kafka.bootstrap_servers, group, topic, open_connection) as real,
            coordination(cluster.bootstrap_servers, group, topic, cluster.open) as fake,
            asyncio.timeout(60),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(script(real))
            tasks.create_task(script(fake))
        for number, (reported, played) in enumerate(zip(real.trace, fake.trace, strict=True)):
            assert played == reported, f"step {number}"

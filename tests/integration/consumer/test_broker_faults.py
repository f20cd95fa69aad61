"""Faults of brokers do not affect groups, and faults of members affect only them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from asyncconsumer import TopicPartition
from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.testing.servers import Broker
from tests.support.consumer_members import (
    AnyMember,
    OwnMember,
    admin_of,
    all_of,
    committed,
    description,
    division,
    repeated,
    send,
    until_divided,
    wait_delivered,
)
from tests.support.consumer_process import OwnConsumer, strategies
from tests.support.helpers import until
from tests.support.real_consumer import QUICK
from tests.support.real_fetch import Writer

PARTITIONS = 6
SAFE = {"min.insync.replicas": "2"}
LONG_SESSION_MS = 45_000  # the default, longer than an election


@asynccontextmanager
async def two_members(
    cluster: KafkaCluster, group: str
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run two consumers and a producer; yield a function that waits for more records.

    Faults inside the block must not reach the consumers.
    """
    topic = await cluster.topic(partitions=PARTITIONS, config=SAFE)
    whole = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    member = partial(OwnMember, cluster, group, topic, session_timeout_ms=LONG_SESSION_MS)
    async with member(name="a") as a, member(name="b") as b:
        await until_divided(division("range", {topic: PARTITIONS}, {"a": (), "b": ()}), a=a, b=b)
        a.changes.clear()
        b.changes.clear()
        async with Writer(cluster.bootstrap_servers, whole) as writer:
            await wait_delivered(writer.acknowledged, a, b)
            yield lambda: wait_delivered(writer.acknowledged, a, b)
        await until(lambda: all_of(writer.acknowledged, a, b))
        assert (a.changes, b.changes) == ([], [])
        assert repeated(a, b) == {}


async def test_restarting_all_brokers_causes_no_rebalance(
    kafka_cluster: KafkaCluster,
) -> None:
    async with two_members(kafka_cluster, kafka_cluster.group()) as more:
        for broker in kafka_cluster.brokers.values():
            await broker.restart()
            await kafka_cluster.server.wait_until_whole()
            await more()


async def test_killing_the_coordinator_causes_no_rebalance(
    kafka_cluster: KafkaCluster,
) -> None:
    group = kafka_cluster.group()
    async with two_members(kafka_cluster, group) as more:
        coordinator = await coordinator_of(kafka_cluster, group)
        await coordinator.kill()
        await more()
        async with asyncio.timeout(60):
            while await coordinator_of(kafka_cluster, group) is coordinator:
                await asyncio.sleep(0.1)
        await more()
        await coordinator.start()
        await more()


async def test_partitions_of_a_killed_member_continue_at_its_commits(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, group = await kafka_cluster.topic(partitions=PARTITIONS), kafka_cluster.group()
    whole = {TopicPartition(topic, n) for n in range(PARTITIONS)}
    async with (
        OwnMember(kafka_cluster, group, topic, name="a") as a,
        OwnConsumer(kafka_cluster.bootstrap_servers, group, [topic], name="b") as b,
        Writer(kafka_cluster.bootstrap_servers, whole) as writer,
    ):
        await until_divided(division("range", {topic: PARTITIONS}, {"a": (), "b": ()}), a=a, b=b)
        await wait_delivered(writer.acknowledged, a, b)
        had = b.owned
        await b.kill()
        safe = await committed(kafka_cluster, group)
        await until(lambda: a.owned == whole)
        await writer.stop()
        await until(lambda: all_of(writer.acknowledged, a, b))
        again = repeated(a, b)
        assert {tp for tp, _ in again} <= had
        assert all(offset >= safe[tp] for tp, offset in again)


# --- cooperative ---------------------------------------------------------------------------------


class Hesitating(OwnMember):
    """A member that revokes nothing before `may_revoke` is set."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.may_revoke = asyncio.Event()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        super().on_partitions_revoked(partitions)
        await self.may_revoke.wait()


async def test_partitions_that_stay_are_read_during_a_cooperative_rebalance(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, group = await kafka_cluster.topic(partitions=100), kafka_cluster.group()
    whole = {TopicPartition(topic, n) for n in range(100)}
    properties = {**strategies("cooperative-sticky"), "session.timeout.ms": str(LONG_SESSION_MS)}
    servers, strategy = kafka_cluster.bootstrap_servers, "cooperative-sticky"
    async with AsyncExitStack() as stack:
        a = Hesitating(kafka_cluster, group, topic, name="a", strategy=strategy)
        a.may_revoke.set()
        await stack.enter_async_context(a)
        b = OwnConsumer(servers, group, [topic], name="b", properties=properties)
        await stack.enter_async_context(b)
        await until(lambda: len(a.owned) == len(b.owned) == 50)
        both: list[AnyMember] = [a, b]
        before = [(member, len(member.changes), member.owned) for member in both]
        c = OwnMember(kafka_cluster, group, topic, name="c", strategy=strategy)

        # the group waits for the frozen member: the other one still reads after its session timeout
        a.may_revoke.clear()
        b.freeze()
        joining = (await stack.enter_async_context(asyncio.TaskGroup())).create_task(c.__aenter__())
        stack.push_async_exit(c)
        await until(partial(is_preparing, kafka_cluster, group))
        await asyncio.sleep(QUICK["session_timeout_ms"] / 1000)
        written = [await send(kafka_cluster, a.owned, 1)]
        await until(lambda: all_of(written[0], a))
        assert await is_preparing(kafka_cluster, group)
        b.thaw()

        # the member delays a revocation, and still reads the partitions that stay
        await until(lambda: len(a.changes) > before[0][1])
        (_, going), stays = a.changes[-1], {tp for tp in a.owned if tp not in a.changes[-1][1]}
        await until(lambda: len(b.owned) < 50)
        written.append(await send(kafka_cluster, stays | b.owned, 1))
        await until(lambda: all_of(written[1], a, b))
        assert not c.owned & going
        a.may_revoke.set()
        await joining
        await until(lambda: sorted([*a.owned, *b.owned, *c.owned]) == sorted(whole))

        written.append(await send(kafka_cluster, whole, 1))
        await until(lambda: all(all_of(member, a, b, c) for member in written))
        assert repeated(a, b, c) == {}
        for member, reported, had in before:
            assert len(member.owned) >= 33
            for _, partitions in member.changes[reported:]:
                assert partitions <= had - member.owned


async def is_preparing(cluster: KafkaCluster, group: str) -> bool:
    return bool((await description(cluster, group))["state"] == "PreparingRebalance")


async def coordinator_of(cluster: KafkaCluster, group: str) -> Broker:
    async with admin_of(cluster) as admin:
        return cluster.brokers[await admin.find_coordinator(group)]

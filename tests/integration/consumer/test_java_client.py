"""Members of asyncconsumer and of the Java client in one group."""

import re
from contextlib import AsyncExitStack
from functools import partial

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import JavaConsumers
from asyncconsumer.testing.servers.process import together
from tests.support.consumer_members import (
    AnyMember,
    OwnMember,
    Place,
    all_of,
    committed,
    description,
    division,
    received,
    repeated,
    send,
    until_divided,
    wait_delivered,
)
from tests.support.consumer_process import OwnConsumer, strategies
from tests.support.helpers import until
from tests.support.real_fetch import Writer


def everything(topics: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_assignments_are_those_of_java_members_with_either_leader(
    kafka: KafkaHandle, java_consumers: JavaConsumers, strategy: str
) -> None:
    topics = {await kafka.topic(partitions=count): count for count in (3, 5)}
    group, whole = kafka.group(), everything(topics)
    java = await java_consumers.start(group, topics, name="b", properties=strategies(strategy))
    await java.until_owning(whole)
    async with (
        Writer(kafka.bootstrap_servers, whole) as writer,
        OwnMember(kafka, group, *topics, name="a", strategy=strategy) as tested,
    ):
        # the first member leads
        expected = division(strategy, topics, {"a": (), "b": whole})
        await until_divided(expected, a=tested, b=java)
        await wait_delivered(writer.acknowledged, java, tested)
        await java.stop()
        await until(lambda: tested.owned == whole)
        await wait_delivered(writer.acknowledged, java, tested)
        # the leader is asyncconsumer now
        await java.start()
        expected = division(strategy, topics, {"a": whole, "b": ()})
        await until_divided(expected, a=tested, b=java)
        await wait_delivered(writer.acknowledged, java, tested)
        await writer.stop()
        await until(lambda: all_of(writer.acknowledged, java, tested))
    # the member left
    await java.until_owning(whole)
    assert repeated(java, tested) == {}


async def test_killed_or_frozen_members_repeat_only_uncommitted_records(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topics = {await kafka.topic(partitions=10): 10}
    group, whole = kafka.group(), everything(topics)
    own = partial(OwnConsumer, kafka.bootstrap_servers, group, topics, commit_ms=500)
    (d := own(name="d")).pause = 0.001
    async with (
        OwnMember(kafka, group, *topics, name="e") as e,
        own(name="c") as c,
        d,
        Writer(kafka.bootstrap_servers, whole) as writer,
    ):
        a = await java_consumers.start(group, topics, name="a")
        b = await java_consumers.start(group, topics, name="b", commit_ms=500)
        everybody: dict[str, AnyMember] = {"a": a, "b": b, "c": c, "d": d, "e": e}
        share = partial(division, "range", topics)
        await until_divided(share(dict.fromkeys("abcde", ())), **everybody)
        await wait_delivered(writer.acknowledged, *everybody.values())
        unlucky, busy = b.owned | c.owned | d.owned, len(d.records) + 50
        assert repeated(*everybody.values()) == {}

        # member d gets more records than it can process
        for tp, offsets in (await send(kafka, d.owned, 300)).items():
            writer.acknowledged[tp].update(offsets)
        await until(lambda: len(d.records) > busy)
        d.freeze()
        await together(b.kill(), c.kill())
        safe = await committed(kafka, group)
        await until_divided(share(dict.fromkeys("ae", ())), a=a, e=e)
        await wait_delivered(writer.acknowledged, a, e)
        reported = len(d.records) + 1  # one record may be in flight and not printed yet
        d.thaw()
        await until_divided(share(dict.fromkeys("ade", ())), a=a, d=d, e=e)
        await wait_delivered(writer.acknowledged, *everybody.values())
        await writer.stop()
        await until(lambda: all_of(writer.acknowledged, *everybody.values()))
        again = repeated(*everybody.values())
        assert {tp for tp, _ in again} <= unlucky
        assert all(offset >= safe[tp] for tp, offset in again)
        assert set(again.values()) <= {2}
        since = {
            Place(TopicPartition(r.topic, r.partition), r.offset) for r in d.records[reported:]
        }
        assert since
        assert not since & received(a, e).keys()  # no record that other members read meanwhile


async def test_a_group_migrates_from_range_to_cooperative_sticky(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topics = {await kafka.topic(partitions=8): 8}
    group, whole = kafka.group(), everything(topics)
    members: dict[str, AnyMember] = {}
    ever: list[AnyMember] = []

    async def bounce(name: str, *strategy: str) -> None:
        if name in members:
            await members[name].stop()
        if name == "j":
            members[name] = await java_consumers.start(
                group, topics, name=name, properties=strategies(*strategy)
            )
        else:
            tested = OwnMember(kafka, group, *topics, name=name, strategy=strategy)
            members[name] = await stack.enter_async_context(tested)
        ever.append(members[name])

    async def settled() -> None:
        has = members.values()
        await until(lambda: sorted(tp for member in has for tp in member.owned) == sorted(whole))
        await wait_delivered(writer.acknowledged, *ever)

    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(Writer(kafka.bootstrap_servers, whole))
        for name in "ajb":
            await bounce(name, "range")
        await settled()
        for step in (["cooperative-sticky", "range"], ["cooperative-sticky"]):
            for name in "ajb":
                await bounce(name, *step)
                await settled()
                by_range = (await description(kafka, group))["protocol"] == "range"
                assert by_range == ("range" in step and name != "b")
        before = [(member, len(member.changes), member.owned) for member in members.values()]
        await bounce("c", "cooperative-sticky")
        await settled()
        # partitions that stay are not revoked any more
        for member, reported, had in before:
            for _, partitions in member.changes[reported:]:
                assert partitions <= had - member.owned
        await writer.stop()
        await until(lambda: all_of(writer.acknowledged, *ever))
    assert repeated(*ever) == {}


async def test_static_members_get_the_same_partitions_without_a_rebalance(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topics = {(topic := await kafka.topic(partitions=4)): 4}
    group, whole = kafka.group(), everything(topics)
    tested = partial(
        OwnMember, kafka, group, topic, name="o", group_instance_id="o", session_timeout_ms=30_000
    )
    async with Writer(kafka.bootstrap_servers, whole) as writer:
        async with tested() as first:
            properties = {"group.instance.id": "j", "session.timeout.ms": "30000"}
            java = await java_consumers.start(group, topics, name="j", properties=properties)
            expected = division("range", topics, {"j": (), "o": ()})
            await until_divided(expected, j=java, o=first)
            reported, java_changes = len(first.changes), len(java.changes)
            await java.stop()
            await java.start()
            await until_divided(expected, j=java, o=first)
            await wait_delivered(writer.acknowledged, java, first)
            assert len(first.changes) == reported
            assert [change.kind for change in java.changes[java_changes:]] == [
                "revoked",
                "assigned",
            ]
            java_changes = len(java.changes)
        # asyncconsumer leads, also after it rejoined
        async with tested() as second:
            await until_divided(expected, j=java, o=second)
            await wait_delivered(writer.acknowledged, java, first, second)
            assert len(java.changes) == java_changes
            await kafka.admin.add_partitions(topic, 6)
            expected = division("range", {topic: 6}, {"j": (), "o": ()})
            await until_divided(expected, j=java, o=second)
        await kafka.admin.add_partitions(topic, 7)  # while the leader is away
        async with tested() as third:
            expected = division("range", {topic: 7}, {"j": (), "o": ()})
            await until_divided(expected, j=java, o=third)
            await writer.stop()
            await until(lambda: all_of(writer.acknowledged, java, first, second, third))
    assert repeated(java, first, second, third) == {}


async def test_members_with_one_pattern_share_topics_that_are_created_later(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topics, group = {(stem := await kafka.topic(partitions=3)): 3}, kafka.group()
    pattern = f"{re.escape(stem)}(-more)?"
    seldom = {"metadata.max.age.ms": "300000"}  # so that asyncconsumer notices new topics first
    java = await java_consumers.start(group, pattern=pattern, name="j", properties=seldom)
    async with OwnMember(kafka, group, pattern=pattern, name="o") as tested:
        await until_divided(division("range", topics, {"j": (), "o": ()}), j=java, o=tested)
        await kafka.admin.create_topic(f"{stem}-more", partitions=5)
        topics[f"{stem}-more"] = 5
        await until_divided(division("range", topics, {"j": (), "o": ()}), j=java, o=tested)
        async with Writer(kafka.bootstrap_servers, everything(topics)) as writer:
            await wait_delivered(writer.acknowledged, java, tested)
        await until(lambda: all_of(writer.acknowledged, java, tested))
        assert repeated(java, tested) == {}

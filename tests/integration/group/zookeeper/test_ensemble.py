"""A ZooKeeper group while an ensemble of three loses servers."""

from itertools import count
from random import Random
from typing import Any

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.environment import Environment
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import ZooKeeper
from asyncconsumer.testing.servers.process import together
from asyncconsumer.testing.servers.zookeeper import ZooKeeperNode
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.support.connector_members import (
    OwnMember,
    all_of,
    equal,
    expected_owners,
    open_member,
    received,
    sending,
)
from tests.support.helpers import until
from tests.support.zookeeper_nodes import nodes_of


def beginning_with(ensemble: ZooKeeper, node: ZooKeeperNode) -> Environment:
    """Return an environment whose random order of servers begins with `node`."""
    addresses = ZooKeeperConfig(zookeeper_connect=ensemble.connect).addresses
    for seed in count():
        if str(Random(seed).sample(addresses, len(addresses))[0]) == node.address:
            break
    return Environment(randomness=Random(seed))


def session(tested: OwnMember) -> ZooKeeperSession:
    return tested.connector._group.session


def server(tested: OwnMember) -> str:
    connection = session(tested)._connection
    assert connection is not None
    return str(connection.address)


async def test_failing_zookeeper_servers_cause_no_rebalance(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    async with ZooKeeper(nodes=3) as ensemble:
        leader = await ensemble.leader()
        follower, other = (node for node in ensemble.nodes if node is not leader)
        options: Any = {
            "zookeeper_connect": ensemble.connect,
            "zookeeper_session_timeout_ms": 9_000,
            "bootstrap_servers": kafka.bootstrap_servers,
        }
        async with (
            open_member(
                kafka,
                group,
                {topic: 1},
                "a",
                environment=beginning_with(ensemble, follower),
                **options,
            ) as first,
            open_member(
                kafka,
                group,
                {topic: 1},
                "b",
                environment=beginning_with(ensemble, leader),
                **options,
            ) as second,
            sending(kafka, topic) as sent,
        ):
            both = expected_owners(topic, 4, (first.id, 1), (second.id, 1))
            async with nodes_of(ensemble.connect, group) as nodes:
                await until(lambda: equal(nodes.owners(), both))
                claimed_ms = await nodes.claimed_ms()
            await until(lambda: bool(first.values) and bool(second.values))
            before = [
                (member.connector.rebalances, session(member).epoch, session(member).session_id)
                for member in (first, second)
            ]

            async def all_is_delivered() -> None:
                requested = list(sent)
                await until(lambda: all_of(requested, first, second))

            assert (server(first), server(second)) == (follower.address, leader.address)
            follower.pause()
            await until(lambda: server(first) != follower.address)
            await all_is_delivered()
            follower.resume()
            await until(follower.is_serving)

            await leader.kill()
            await until(lambda: not session(second).connected.is_set())
            await until(
                lambda: all(session(member).connected.is_set() for member in (first, second))
            )
            await all_is_delivered()
            await leader.start()

            await together(leader.kill(), other.kill())
            await until(
                lambda: not any(session(member).connected.is_set() for member in (first, second))
            )
            await together(leader.start(), other.start())
            await until(
                lambda: all(session(member).connected.is_set() for member in (first, second))
            )
            await all_is_delivered()

            after = [
                (member.connector.rebalances, session(member).epoch, session(member).session_id)
                for member in (first, second)
            ]
            assert after == before
            async with nodes_of(ensemble.connect, group) as nodes:
                assert await nodes.owners() == both
                assert await nodes.claimed_ms() == claimed_ms
            assert max(received(first, second).values()) == 1

"""A program that runs many members of a ZooKeeper group in one process, without brokers.

`python -m benchmarks._group_members ZOOKEEPER GROUP SUBSCRIPTION NAME...`. SUBSCRIPTION is a JSON
object with the number of streams of each topic. The program answers each line of its input with the
totals of all its members, as a line of JSON. It ends when its input ends.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.membership import ZooKeeperMemberConfig, ZooKeeperMembership
from asyncconsumer.group.zookeeper.topic_source import ZooKeeperTopics
from asyncconsumer.zookeeper.session import ZooKeeperSession


class Joined(NamedTuple):
    """A member of the group, and its ZooKeeper session."""

    session: ZooKeeperSession
    membership: ZooKeeperMembership


async def join(
    stack: AsyncExitStack, connect: str, group: str, subscription: StreamSubscription, name: str
) -> Joined:
    """Open a member, whose assignments nobody reads yet.

    Its session timeout is long, because a hundred members on one event loop delay each other.
    """
    config = ZooKeeperConfig(
        zookeeper_connect=connect, session_timeout_ms=30_000, connection_timeout_ms=60_000
    )
    session = ZooKeeperSession(config, randomness=Random())
    await stack.enter_async_context(session)
    wakeup = asyncio.Event()
    topics = ZooKeeperTopics(session, wakeup)
    requested = ZooKeeperMemberConfig(
        group_id=group, consumer_id=f"{group}_{name}", subscription=subscription, registered_ms=0
    )
    return Joined(session, ZooKeeperMembership(session, topics, requested, wakeup))


async def follow(membership: ZooKeeperMembership, settled: asyncio.Event) -> None:
    """Accept each assignment at once. The member reads no records that it would have to stop."""
    async for _ in membership.assignments():
        settled.set()


async def tell(members: Sequence[Joined]) -> None:
    """Print the totals of all members for each line of the input."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        reported = {
            "requests": sum(member.session.requests for member in members),
            "rebalances": sum(member.membership.rebalances for member in members),
            "sessions": sum(member.session.epoch for member in members),
            "cpu_s": time.process_time(),
        }
        print(json.dumps(reported), flush=True)


async def run(connect: str, group: str, subscription: str, *names: str) -> None:
    stream_subscription = StreamSubscription(MappingProxyType(json.loads(subscription)))
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        members = [await join(stack, connect, group, stream_subscription, name) for name in names]
        settled = [asyncio.Event() for _ in members]
        following = [
            tasks.create_task(follow(member.membership, event))
            for member, event in zip(members, settled, strict=True)
        ]
        for event in settled:
            await event.wait()
        print("{}", flush=True)
        await tell(members)
        for task in following:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))

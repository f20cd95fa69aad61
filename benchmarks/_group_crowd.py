"""A ZooKeeper group of many members that read nothing, in a few processes, without brokers."""

import asyncio
import json
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from asyncconsumer.group.zookeeper.assignors import GroupInfo, GroupMemberInfo, by_range
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper import paths
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.session import ZooKeeperSession
from benchmarks._child import Figures

TOPICS, PROCESSES, EACH = 4, 2, 10  # EACH: partitions of each member
NEWCOMER: Final = "m000a"  # sorts near the front, so that nearly all assignments change


class Crowd:
    """A group of many members, and the processes in which they run."""

    def __init__(self, session: ZooKeeperSession, connect: str, members: int) -> None:
        self._session = session
        self._connect = connect
        self._group = f"crowd-{members}-{secrets.token_hex(3)}"
        size = members * EACH // TOPICS
        self._topics = {f"{self._group}-{number}": size for number in range(TOPICS)}
        self._names = [f"m{number:03}" for number in range(members)]
        self._processes: list[Process] = []

    async def form(self, stack: AsyncExitStack) -> None:
        """Create the topics, start all members, and wait until they have their partitions."""
        await ensure_path(self._session, paths.TOPICS)
        for topic, size in self._topics.items():
            reported = {"version": 3, "partitions": {str(number): [1] for number in range(size)}}
            await self._session.create(paths.topic(topic), json.dumps(reported).encode())
        for number in range(PROCESSES):
            names = self._names[number::PROCESSES]
            self._processes.append(await stack.enter_async_context(self._process(names)))
        for process in self._processes:
            await _line(process)
        await self._settled(self._names)

    async def one_more(self) -> Figures:
        """Let one more member join and leave, and return the figures of both rebalances."""
        before = await self._totals()
        async with self._process([NEWCOMER]) as newcomer:
            await _line(newcomer)
            last = await self._settled([*self._names, NEWCOMER])
            path = GroupPaths(self._group).member(f"{self._group}_{NEWCOMER}")
            registered = (await self._session.get(path)).stat.created
            existing = await self._totals()
            its_own = (await _ask(newcomer))["requests"]
        await self._settled(self._names)
        gone = await self._totals()
        return {
            "join_s": (last - registered) / 1000,
            "join_requests": existing["requests"] - before["requests"] + its_own,
            "join_cpu_s": existing["cpu_s"] - before["cpu_s"],
            "leave_requests": gone["requests"] - existing["requests"],
            "lost_sessions": gone["sessions"] - len(self._names),
        }

    async def _totals(self) -> Figures:
        """Return the sum of the reports of all processes."""
        reported = [await _ask(process) for process in self._processes]
        return {metric: sum(report[metric] for report in reported) for metric in reported[0]}

    async def _settled(self, names: Sequence[str]) -> int:
        """Wait until the members with these names own their partitions.

        Return the time of the last claim, in ms by ZooKeeper's clock.
        """
        streams = dict.fromkeys(self._topics, 1)
        partitions = {topic: range(size) for topic, size in self._topics.items()}
        members = [GroupMemberInfo(f"{self._group}_{name}", streams) for name in names]
        expected = by_range(GroupInfo(members, partitions))
        every = [TopicPartition(topic, number) for topic, of in partitions.items() for number in of]
        where = [GroupPaths(self._group).owner(tp) for tp in every]
        async with asyncio.timeout(300):
            while True:
                nodes = await self._session.get_many(where)
                owners = [(node.data or b"").decode() if node else "" for node in nodes]
                if owners == [expected[tp] for tp in every]:
                    return max(node.stat.created for node in nodes if node)
                await asyncio.sleep(0.2)  # the requests of this check cost CPU time, too

    @asynccontextmanager
    async def _process(self, names: Sequence[str]) -> AsyncIterator[Process]:
        """Return an async context manager that runs members with these names in a process.

        The members leave the group at its end.
        """
        streams = json.dumps(dict.fromkeys(self._topics, 1))
        arguments = ["-m", "benchmarks._group_members", self._connect, self._group, streams, *names]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


@asynccontextmanager
async def crowd(session: ZooKeeperSession, connect: str, members: int) -> AsyncIterator[Crowd]:
    """Return an async context manager with a group of `members` that own their partitions."""
    async with AsyncExitStack() as stack:
        group = Crowd(session, connect, members)
        await group.form(stack)
        yield group


async def _ask(process: Process) -> Figures:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    return await _line(process)


async def _line(process: Process) -> Figures:
    assert process.stdout is not None
    reported: Figures = json.loads(await process.stdout.readline())
    return reported

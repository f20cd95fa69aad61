"""`asyncconsumer consume` as a program: output and exit codes."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import ScalaConsumers
from tests.support.helpers import until
from tests.support.zookeeper_nodes import GroupNodes, nodes_of

PROGRAM = [sys.executable, "-c", "from asyncconsumer.cli import main; main()"]


class Member:
    """A running `consume`. It prints to a file, or to a pipe of the test."""

    def __init__(self, folder: Path, name: str, *arguments: str, stdout: Any = None) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*PROGRAM, "consume", "--consumer-id", name, *arguments],
                stdout=stdout or out,
                stderr=err,
            )

    @property
    def lines(self) -> list[str]:
        """Return the complete lines that the program has printed."""
        return self._out.read_text().split("\n")[:-1]

    @property
    def observed(self) -> str:
        return self._err.read_text()

    async def end(self, how: signal.Signals | None = None) -> int:
        """Wait for the end of the program, and return its exit code."""
        if how is not None:
            self.process.send_signal(how)
        await until(lambda: self.process.poll() is not None)
        assert "Traceback" not in self.observed
        return self.process.returncode


class Group:
    """A topic, a group that reads it, and the members that a test starts."""

    def __init__(
        self, kafka: KafkaWithZooKeeper, topic: str, nodes: GroupNodes, folder: Path
    ) -> None:
        self.kafka, self.topic, self.nodes, self.folder = kafka, topic, nodes, folder
        self.name = nodes.group
        self.members: list[Member] = []
        self.sent = 0

    def start(self, name: str, *arguments: str, zookeeper: str = "", stdout: Any = None) -> Member:
        values = [
            *("--zookeeper", zookeeper or self.kafka.zookeeper_connect, "--group", self.name),
            *("--from", "smallest", "--property", "rebalance.backoff.ms=300"),
            *("--property", "rebalance.max.retries=40", *arguments),
        ]
        if not {"--whitelist", "--blacklist"} & set(arguments):
            values += ["--topic", self.topic]
        member = Member(self.folder, name, *values, stdout=stdout)
        self.members.append(member)
        return member

    async def send(self, count: int, size: int = 0) -> set[str]:
        """Send records in order to each partition. Return their values."""
        values = {f"{number:0{size}}" for number in range(self.sent, self.sent + count)}
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for value in sorted(values):
                partition = int(value) % 4
                await producer.send(self.topic, value.encode(), b"key", partition)
            await producer.flush()
        self.sent += count
        return values

    async def until_owned(self, **counts: int) -> None:
        """Wait until each member owns the given number of partitions."""

        async def shared() -> bool:
            owners = [
                owner.removeprefix(f"{self.name}_").rpartition("-")[0]
                for owner in (await self.nodes.owners()).values()
            ]
            return {name: owners.count(name) for name in owners} == counts

        await until(shared)

    async def committed(self) -> int:
        return sum((await self.nodes.offsets()).values())


@pytest.fixture
async def group(kafka_zk: KafkaWithZooKeeper, tmp_path: Path) -> AsyncIterator[Group]:
    topic = await kafka_zk.topic(partitions=4)
    async with nodes_of(kafka_zk.zookeeper_connect, kafka_zk.group()) as nodes:
        group = Group(kafka_zk, topic, nodes, tmp_path)
        yield group
        for member in group.members:
            member.process.kill()
            member.process.wait()


async def test_two_members_share_a_topic_and_commit_when_they_stop(
    group: Group,
) -> None:
    first = group.start("a")
    values = await group.send(40)
    await until(lambda: set(first.lines) == values)
    second = group.start("b", "--streams", "2")
    await group.until_owned(a=2, b=2)  # three streams, two of them b's
    values |= await group.send(40)
    await until(lambda: {*first.lines, *second.lines} == values)
    assert len(first.lines) + len(second.lines) == len(values)

    assert await first.end(signal.SIGTERM) == 0
    assert list(await group.nodes.members()) == [f"{group.name}_b"]
    await group.until_owned(b=4)
    values |= await group.send(40)
    await until(lambda: {*first.lines, *second.lines} == values)
    assert await second.end(signal.SIGINT) == 0
    assert len(first.lines) + len(second.lines) == len(values) == await group.committed()
    assert (await group.nodes.members(), await group.nodes.owners()) == ({}, {})
    assert f"% assigned to {group.name}_a: {group.topic}[0]" in first.observed


async def test_a_member_shares_a_group_with_kafkas_console_consumer(
    group: Group, scala_consumers: ScalaConsumers
) -> None:
    tested = group.start("a", "--format", r"%p:%o:%k:%s\n", "--quiet")
    values = await group.send(8)
    await until(lambda: len(tested.lines) == 8)
    scala = await scala_consumers.start_console(group.name, group.topic, name="s")
    await group.until_owned(a=2, s=2)

    result = await asyncio.to_thread(
        subprocess.run,
        [*PROGRAM, "groups", "describe", group.name, "--zookeeper", group.kafka.zookeeper_connect],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    rows = [line.split("│") for line in result.stdout.splitlines() if group.topic in line]
    reported = [(row[6].strip(), row[8].strip()) for row in rows]
    assert sorted(reported) == sorted(
        2 * [(f"{group.name}_a-0", "static"), (f"{group.name}_s-0", "white_list")]
    )

    values |= await group.send(40)
    await until(
        lambda: {line.rpartition(":")[2] for line in tested.lines} | set(scala.values) == values
    )
    assert await tested.end(signal.SIGTERM) == 0
    await group.until_owned(s=4)
    assert len(tested.lines) + len(scala.values) == len(values)
    assert all(line.split(":")[2] == "key" for line in tested.lines)
    assert tested.observed == ""


async def test_max_messages_records_are_printed_and_committed(group: Group) -> None:
    values = await group.send(40)
    some = group.start("a", "--max-messages", "17", "--streams", "3")
    assert await some.end() == 0
    assert len(some.lines) == 17 == await group.committed()
    rest = group.start("b", "--timeout-ms", "500", "--offsets-storage", "dual")
    assert await rest.end() == 0
    assert sorted([*some.lines, *rest.lines]) == sorted(values)
    assert await group.committed() == 40


async def test_a_member_prints_selected_records_as_json(group: Group) -> None:
    await group.send(12)
    some = group.start("a", "--json", "--key", "key", "--grep", "1", "--timeout-ms", "1000")
    assert await some.end() == 0
    assert sorted(json.loads(line)["value"] for line in some.lines) == ["1", "10", "11"]
    assert await group.committed() == 12


async def test_a_stopped_member_has_committed_its_printed_records(group: Group) -> None:
    values = await group.send(10_000, size=100)
    first = group.start("a", "--streams", "2", stdout=subprocess.PIPE)
    assert first.process.stdout is not None
    with first.process.stdout as pipe:
        lines = [
            await asyncio.to_thread(pipe.readline)
        ]  # the program prints until the pipe is full
        first.process.send_signal(signal.SIGTERM)
        lines += await asyncio.to_thread(pipe.readlines)
    assert await first.end() == 0
    assert len(lines) == await group.committed() < len(values)
    second = group.start("b", "--max-messages", str(len(values) - len(lines)))
    assert await second.end() == 0
    assert {*second.lines, *(line.decode().rstrip() for line in lines)} == values


async def test_lines_are_flushed_and_a_closed_pipe_ends_the_program(group: Group) -> None:
    member = group.start("a", "--whitelist", group.topic, stdout=subprocess.PIPE)
    assert member.process.stdout is not None
    with member.process.stdout as pipe:
        for number in range(3):
            await group.send(1)
            assert await asyncio.to_thread(pipe.readline) == b"%d\n" % number
    await group.send(4)
    assert await member.end() == 0  # as with `head`
    assert await group.nodes.members() == {}
    assert await group.committed() == 3


async def test_a_signal_stops_a_program_whose_output_is_not_read(group: Group) -> None:
    await group.send(400, size=1000)
    member = group.start("a", stdout=subprocess.PIPE)
    assert member.process.stdout is not None
    with member.process.stdout:
        await until(lambda: "assigned to" in member.observed)
        await asyncio.to_thread(member.process.stdout.read, 1)  # the program blocks at a full pipe
        assert await member.end(signal.SIGTERM) == 0
    assert (await group.nodes.members(), await group.nodes.owners()) == ({}, {})


async def test_a_second_signal_ends_the_program_at_once(group: Group) -> None:
    host, port = group.kafka.zookeeper_connect.split(":")
    async with TcpProxy(host, int(port)) as proxy:
        member = group.start("a", zookeeper=proxy.address)
        await group.send(1)
        await until(lambda: member.lines == ["0"])
        proxy.black_hole()  # no response to the commit and to the leave
        member.process.send_signal(signal.SIGTERM)
        await until(lambda: "% committing and leaving" in member.observed)
        assert await member.end(signal.SIGINT) == -signal.SIGINT

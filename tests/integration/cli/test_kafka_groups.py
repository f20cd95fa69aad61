"""The commands for groups, lag, topics and records on Kafka, as a program."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import Admin, Consumer, SimpleConsumer, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import DEFAULT_KAFKA, Kafka, maven
from asyncconsumer.testing.servers.java import LOGGING, find_java, java_command
from tests.integration.admin.test_admin import commit, send
from tests.support.helpers import until

PROGRAM = [sys.executable, "-c", "from asyncconsumer.cli import main; main()"]
TOOLS = (
    LOGGING,
    *(f"org.apache.kafka:{name}:{DEFAULT_KAFKA}" for name in ("kafka_2.13", "kafka-tools")),
)
COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


async def run(*arguments: str, code: int = 0, stdin: str = "") -> str:
    """Run the program and return its standard output."""
    result = await asyncio.to_thread(
        subprocess.run,
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        input=stdin,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


@asynccontextmanager
async def share_consumer(kafka: KafkaHandle, topic: str, group: str) -> AsyncIterator[None]:
    """Run Kafka's own consumer of a share group."""
    jars = await maven.class_path(f"Kafka tools {DEFAULT_KAFKA}", TOOLS)
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    process = await asyncio.create_subprocess_exec(
        *java_command(find_java(), jars, SHARE_CONSUMER, *arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def kafkas_command(kafka: KafkaHandle, group: str, *arguments: str) -> list[list[str]]:
    """Return the words of each line about the group that Kafka's own command prints."""
    jars = await maven.class_path(f"Kafka tools {DEFAULT_KAFKA}", TOOLS)
    servers = ("--bootstrap-server", kafka.bootstrap_servers, "--group", group)
    result = await asyncio.to_thread(
        subprocess.run,
        java_command(find_java(), jars, COMMAND, *servers, "--describe", *arguments),
        capture_output=True,
        text=True,
        timeout=120,
    )
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(group)]
    assert rows, result.stderr
    return rows


async def kafkas_rows(kafka: KafkaHandle, group: str) -> dict[tuple[str, int], list[str]]:
    """Return offset, end, lag, member, host and client as Kafka's own command prints them."""
    rows = await kafkas_command(kafka, group)
    return {(row[1], int(row[2])): row[3:9] for row in rows}


async def kafkas_state(kafka: KafkaHandle, group: str) -> tuple[str, int]:
    """Return the state and the number of members as Kafka's own command prints them."""
    ((*_, state, members),) = await kafkas_command(kafka, group, "--state")
    return state, int(members)


def command_rows(partitions: list[dict[str, Any]]) -> dict[tuple[str, int], list[str]]:
    names = ("committed", "end", "lag", "member_id", "host", "client_id")
    return {
        (row["topic"], row["partition"]): [
            "-" if row[name] is None else str(row[name]) for name in names
        ]
        for row in partitions
    }


async def agree(kafka: KafkaHandle, group: str) -> dict[tuple[str, int], list[str]]:
    """Compare `lag` and `groups describe` with Kafka's own command. Return its rows."""
    servers = ("-b", kafka.bootstrap_servers)
    described = json.loads(await run("groups", "describe", group, *servers, "--json"))
    (lag,) = json.loads(await run("lag", group, *servers, "--json"))
    theirs = await kafkas_rows(kafka, group)
    assert command_rows(described["partitions"]) == command_rows(lag["partitions"]) == theirs
    state = (described["state"], len(described["members"]))
    assert state == await kafkas_state(kafka, group)
    assert lag["lag"] == sum(int(row[2]) for row in theirs.values() if row[2] != "-")
    return theirs


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_lag_and_describe_print_the_values_of_kafkas_command(
    kafka: KafkaHandle, protocol: str
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, 7)
    async with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,  # type: ignore[arg-type]
        auto_offset_reset="earliest",
        max_records=3,
    ) as consumer:
        async for _ in consumer:
            pass
        await consumer.commit()
        with_member = await agree(kafka, group)
    assert with_member[topic, 0][:3] == ["3", "7", "4"]
    assert "-" not in with_member[topic, 0]
    without_members = await agree(kafka, group)
    assert without_members[topic, 0] == ["3", "7", "4", "-", "-", "-"]


async def test_groups_are_listed_reset_and_deleted(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, 7)
    await commit(kafka, group, topic, 5)
    servers = ("-b", kafka.bootstrap_servers)

    async def committed() -> list[int | None]:
        async with SimpleConsumer(kafka.bootstrap_servers) as simple:
            partitions = [TopicPartition(topic, number) for number in (0, 1)]
            offsets = await simple.fetch_offsets(group, partitions)
        return [offsets[tp] for tp in partitions]

    assert group in {
        row["group"] for row in json.loads(await run("groups", "list", *servers, "--json"))
    }
    await run("groups", "reset", group, "--to", "earliest", *servers, code=1)
    assert await committed() == [5, None]
    await run("groups", "reset", group, "--to", "-2", "--yes", *servers)
    assert await committed() == [3, None]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,6\n{topic},1,0\n")
    await run("groups", "reset", group, "--from-file", str(file), "--yes", *servers)
    assert await committed() == [6, 0]
    await run("groups", "delete-offsets", group, "-t", f"{topic}:1", "--yes", *servers)
    assert await committed() == [6, None]
    output = await run("groups", "delete", group, "--json", *servers, code=1)
    assert json.loads(output) == {"group": group, "deleted": False}
    output = await run("groups", "delete", group, "--yes", "--json", *servers)
    assert json.loads(output) == {"group": group, "deleted": True}
    await run("groups", "describe", group, *servers, code=1)


async def test_share_groups_are_only_listed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()

    async def has_share_group() -> bool:
        async with Admin(kafka.bootstrap_servers) as admin:
            return ("share", group) in {(each.kind, each.group) for each in await admin.groups()}

    async with share_consumer(kafka, topic, group):
        await until(has_share_group)
        servers = ("-b", kafka.bootstrap_servers)
        listed = json.loads(await run("groups", "list", "--json", *servers))
        assert ("share", group) in {(row["kind"], row["group"]) for row in listed}
        await run("groups", "describe", group, *servers, code=2)
        await run("lag", *servers)  # leaves out share groups


@pytest.mark.parametrize("command", [("describe",), ("reset", "--to", "earliest")])
async def test_the_error_for_a_missing_group_names_the_most_similar_one(
    kafka: KafkaHandle, command: tuple[str, ...]
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 1)
    await commit(kafka, group, topic, 1)
    name, *options = command
    result = await asyncio.to_thread(
        subprocess.run,
        [*PROGRAM, "groups", name, f"{group}x", *options, "-b", kafka.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode != 0
    assert f"(did you mean {group!r}?)" in result.stderr


async def test_lag_above_the_limit_sets_the_exit_code(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 5, seconds_ago=100)
    await commit(kafka, group, topic, 2)
    servers = ("-b", kafka.bootstrap_servers)
    await run("lag", group, "--fail-above", "3", *servers)
    await run("lag", group, "--fail-above", "2", *servers, code=3)
    await run("lag", group, "--fail-above", "2", "--topic", topic, *servers, code=3)
    await run("lag", group, "--topic", f"{topic}x", *servers, code=2)
    await run("lag", group, "--fail-above", "10m", *servers)
    await run("lag", group, "--fail-above", "90s", *servers, code=3)
    (lag,) = json.loads(await run("lag", group, "--seconds", *servers, "--json"))
    assert 100 <= lag["lag_seconds"] < 160
    assert "seconds" in await run("lag", group, "--seconds", *servers)


async def test_a_watch_of_the_lag_continues_after_a_broker_restart(tmp_path: Path) -> None:
    async with Kafka() as server:
        (broker,) = server.brokers.values()
        await server.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with SimpleConsumer(server.bootstrap_servers) as simple:
            await simple.commit_offsets("billing", {TopicPartition("orders", 0): 0})
        watch = ("lag", "--watch", "--interval", "0.2", "--json", "-b", server.bootstrap_servers)
        output, errors = tmp_path / "output", tmp_path / "errors"

        def count() -> int:
            return output.read_text().count("\n")

        with output.open("wb") as out, errors.open("wb") as err:
            process = await asyncio.create_subprocess_exec(*PROGRAM, *watch, stdout=out, stderr=err)
        try:
            await until(lambda: count() > 1)
            await broker.stop()
            await until(lambda: "error: no broker answered" in errors.read_text())
            before = count()
            await broker.start()
            await until(lambda: count() > before)
        finally:
            process.terminate()
            assert await process.wait() == 0, errors.read_text()


async def test_lag_of_a_group_in_zookeeper(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, topic, 5)
    servers = ("--zookeeper", kafka_zk.zookeeper_connect)
    await run(
        *("consume", "--group", group, "--topic", topic, "--from", "smallest"),
        *("--max-messages", "3", *servers),
    )
    (lag,) = json.loads(await run("lag", group, *servers, "--json"))
    assert lag["lag"] == 2
    await run("groups", "delete", group, "--yes", *servers)
    await run("groups", "describe", group, *servers, code=2)


async def test_topics_are_created_altered_written_and_deleted(kafka: KafkaHandle) -> None:
    name, servers = kafka.group(), ("-b", kafka.bootstrap_servers)
    await run("topics", "create", name, "--partitions", "2", *servers)
    assert name in (await run("topics", "list", *servers)).split()
    await run("topics", "alter", name, "--config", "retention.ms=1000000", *servers)
    described = json.loads(await run("topics", "describe", name, "--json", *servers))
    assert (len(described["partitions"]), described["configs"]["retention.ms"]) == (2, "1000000")
    await run("produce", "-t", name, "-K", ":", "-p", "0", *servers, stdin="k:one\ntwo\n")
    line = json.dumps({"value": "three", "key": None, "headers": [["h", "x"]], "partition": 0})
    await run("produce", "-t", name, "--json", *servers, stdin=f"{line}\n")
    async with SimpleConsumer(kafka.bootstrap_servers) as simple:
        records = [(record.key, record.value) async for record in simple.read(name, 0, end=3)]
    assert records == [(b"k", b"one"), (None, b"two"), (None, b"three")]
    await run("topics", "delete", name, *servers, code=1)
    await run("topics", "delete", name, "--yes", *servers)
    assert name not in (await run("topics", "list", *servers)).split()


async def test_produce_writes_lines_files_generated_values_and_json(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic = await kafka.topic()
    write = ("produce", "-t", topic, "-b", kafka.bootstrap_servers)
    lines, image = tmp_path / "lines", tmp_path / "image"
    lines.write_text("one\ntwo\n")
    image.write_bytes(b"\x00\n\xff")
    await run(*write, str(lines), str(lines), "-k", "all", "-H", "h=x=y", "-z", "zstd")
    await run(*write, str(image), str(lines), "--whole-files")
    await run(*write, "--count", "1500", "--size", "30", "-z", "lz4", "-q")
    await run(*write, str(lines), "--property", "acks=1", code=2)
    line = json.dumps({"value": {"n": 1}, "headers": [["own", None]]})
    acks = ("--property", "acks=all")
    await run(*write, "--json", "-k", "all", "-H", "h=x", *acks, stdin=f"{line}\n")
    async with SimpleConsumer(kafka.bootstrap_servers) as simple:
        read = [record async for record in simple.read(topic, 0, end=1507)]
    assert [(r.key, r.value, r.headers) for r in read[:4]] == [
        (b"all", value, (("h", b"x=y"),)) for value in (b"one", b"two") * 2
    ]
    assert [(r.key, r.value) for r in read[4:6]] == [(None, b"\x00\n\xff"), (None, b"one\ntwo\n")]
    assert read[6].value == b"record 0 abcdefghijklmnopqrstu"
    assert {len(r.value or b"") for r in read[6:1506]} == {30}
    last = read[1506]
    assert (last.key, last.value) == (b"all", b'{"n": 1}')
    assert last.headers == (("h", b"x"), ("own", None))


async def test_records_are_read_from_any_position(kafka: KafkaHandle) -> None:
    topic, servers = await kafka.topic(partitions=2), ("-b", kafka.bootstrap_servers)
    await send(kafka, topic, 4, seconds_ago=3600)
    await send(kafka, topic, 3)
    consume = ("consume", "-C", *servers, "-t", topic, "-f", r"%o\n")

    async def offsets(*arguments: str) -> list[int]:
        return [int(line) for line in (await run(*consume, *arguments)).split()]

    assert await offsets("--from", "earliest", "--until", "end") == list(range(7))
    assert await offsets("-o", "beginning", "-c", "2", "-q") == [0, 1]
    assert await offsets("--tail", "2", "-e") == [5, 6]
    assert await offsets("--from", "5", "--until", "6", "-p", "0") == [5]
    assert await offsets("--from", "30m", "--until", "end") == [4, 5, 6]
    since = int((datetime.now(UTC).timestamp() - 1800) * 1000)
    assert await offsets("-o", f"s@{since}", "-e") == [4, 5, 6]
    assert await offsets("--until", f"e@{since}") == [0, 1, 2, 3]
    await run(*consume, "-e", "-p", "0", "-p", "2", code=1)  # the topic has no partition 2
    assert await offsets("--grep", "^[12]$", "-e") == [1, 2, 5, 6]
    assert await offsets("--timeout-ms", "2000") == list(range(7))
    lines = await run("consume", *servers, "-t", f"^{topic[:-1]}", "-e", "--json", "-c", "1")
    assert {"topic": topic, "offset": 0, "value": "0", "key": None}.items() <= json.loads(
        lines
    ).items()


async def test_consume_with_a_group_continues_at_its_commits(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 5)
    member = ("consume", "-b", kafka.bootstrap_servers, "-t", topic, "--group", group)
    assert (await run(*member, "--from", "earliest", "-c", "2")).split() == ["0", "1"]
    assert (await run(*member, "-e")).split() == ["2", "3", "4"]

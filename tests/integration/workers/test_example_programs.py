"""The examples without a web server, as programs."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from tests.support.example_services import Program, Service, open_service
from tests.support.helpers import consume, produce, until

COMMAND = str(Path(sys.executable).with_name("asyncconsumer"))


@pytest.fixture
async def program(kafka: KafkaHandle, tmp_path: Path) -> AsyncIterator[Program]:
    variables = {
        "ASYNCCONSUMER_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "ASYNCCONSUMER_GROUP_ID": kafka.group(),
        "FOLDER": str(tmp_path / "landing"),
        "TOPIC": await kafka.topic(partitions=2),
    }
    async with aclosing(Program(tmp_path, **variables)) as running:
        yield running


async def send(kafka: KafkaHandle, program: Program, *orders: Mapping[str, object]) -> None:
    values = [json.dumps(order).encode() for order in orders]
    topic = program.environment["TOPIC"]
    await produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)


async def test_the_loop_example_stores_each_order_once(kafka: KafkaHandle, tmp_path: Path) -> None:
    async with open_service(kafka, tmp_path) as service:
        await service.send(100)
        service.start(sys.executable, "-m", "examples.service")
        await service.wait_stored()
        assert await service.end() == 0, service.observed
        await stores_each_order_once(service)


async def stores_each_order_once(service: Service) -> None:
    """Check that a restarted service continues at the commits of the first one."""
    await service.send(20)
    service.start(sys.executable, "-m", "examples.service")
    await service.wait_stored()
    assert max(service.stored().values()) == 1
    assert await service.end() == 0, service.observed


async def test_the_dead_letter_example_can_be_replayed(
    kafka: KafkaHandle, program: Program
) -> None:
    await send(kafka, program, {"number": 1, "amount": 5}, {"number": 2, "amount": 0})
    program.start(COMMAND, "run", "examples.dead_letters:app", "--create-topics")
    await program.wait_output("billed 1")
    dead = f"{program.environment['TOPIC']}.dead"
    [value] = await consume(dead, 1, bootstrap_servers=kafka.bootstrap_servers)
    assert json.loads(value)["number"] == 2
    assert await program.end() == 0, program.observed
    program.start(COMMAND, "replay", "examples.dead_letters:app", "--yes")
    assert await program.end(how=None) == 0, program.observed
    topic = program.environment["TOPIC"]
    values = await consume(topic, 3, bootstrap_servers=kafka.bootstrap_servers)
    assert sorted(json.loads(value)["number"] for value in values) == [1, 2, 2]


async def test_the_exactly_once_example_writes_each_bill(
    kafka: KafkaHandle, program: Program
) -> None:
    await send(kafka, program, *({"number": n, "amount": 100 * n} for n in range(10)))
    program.start(COMMAND, "run", "examples.exactly_once:app", "--create-topics")
    bills = f"{program.environment['TOPIC']}.billed"
    values = await consume(
        bills,
        10,
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
    )
    assert {(bill["order"], bill["total"]) for bill in map(json.loads, values)} == {
        (n, 119 * n) for n in range(10)
    }
    assert await program.end() == 0, program.observed


async def test_the_spark_feeder_example_writes_all_records(
    kafka: KafkaHandle, program: Program
) -> None:
    await send(kafka, program, *({"number": n} for n in range(20)))
    program.start(COMMAND, "run", "examples.spark_feeder:feeder")
    folder = Path(program.environment["FOLDER"])

    def rows() -> int:
        assert program.alive()
        files = [path for path in folder.rglob("*.parquet") if "_" not in path.parent.name]
        return sum(pq.read_metadata(path).num_rows for path in files)

    await until(lambda: rows() == 20)
    assert await program.end() == 0, program.observed


async def test_the_migration_example_continues_at_the_migrated_offset(
    kafka_zk: KafkaWithZooKeeper, tmp_path: Path
) -> None:
    topic, group, connect = await kafka_zk.topic(), kafka_zk.group(), kafka_zk.zookeeper_connect
    servers = kafka_zk.bootstrap_servers
    await produce(topic, [b"first"], bootstrap_servers=servers)
    names = {"ASYNCCONSUMER_GROUP_ID": group, "TOPIC": topic}
    example = (sys.executable, "-m", "examples.zookeeper_migration")
    before = {
        "ASYNCCONSUMER_GROUP_PROTOCOL": "zookeeper",
        "ASYNCCONSUMER_ZOOKEEPER_CONNECT": connect,
    }
    async with aclosing(Program(tmp_path, **names, **before)) as member:
        member.start(*example)
        await member.wait_output("0 0")
        assert await member.end() == 0, member.observed
        member.start(
            *(COMMAND, "groups", "migrate", group, "--zookeeper", connect),
            *("--from", "zookeeper", "--to", "kafka", "--yes"),
        )
        assert await member.end(how=None) == 0, member.observed
    await produce(topic, [b"second"], bootstrap_servers=servers)
    after = {"ASYNCCONSUMER_GROUP_PROTOCOL": "classic", "ASYNCCONSUMER_BOOTSTRAP_SERVERS": servers}
    async with aclosing(Program(tmp_path, **names, **after)) as member:
        member.start(*example)
        await member.wait_output("0 1")
        assert member.observed.count("0 0") == 1
        assert await member.end() == 0, member.observed

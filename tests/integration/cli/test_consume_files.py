"""`asyncconsumer consume` to files, with values of a registry, and with a progress bar."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aiokafka import AIOKafkaProducer
from pyarrow import ipc

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.registry import FakeRegistry
from tests.integration.admin.test_admin import send
from tests.integration.cli.test_kafka_groups import PROGRAM, run
from tests.support.registry_serializers import AVRO_ORDER, messages, writing


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
async def test_records_are_written_to_files(kafka: KafkaHandle, tmp_path: Path, kind: str) -> None:
    forever = {"retention.ms": "-1"}  # the records are of 1970
    topic = await kafka.topic(partitions=2, config=forever)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        headers = [("h", b"x"), ("empty", None)]
        await producer.send_and_wait(
            topic, b"one", key=b"k", partition=0, timestamp_ms=1000, headers=headers
        )
        await producer.send_and_wait(topic, None, key=b"d", partition=1, timestamp_ms=2000)
        await producer.send_and_wait(topic, b"three", partition=1, timestamp_ms=3000)
    file = tmp_path / f"records.{kind}"
    read = ("consume", "-b", kafka.bootstrap_servers, topic, "-e", f"--{kind}", str(file))
    assert await run(*read) == ""

    def rows() -> list[dict[str, object]]:
        table = pq.read_table(file) if kind == "parquet" else ipc.open_file(file).read_all()
        listed: list[dict[str, object]] = table.to_pylist()
        return sorted(listed, key=lambda row: str(row["timestamp"]))

    first, second, third = rows()
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 0)
    assert (first["key"], first["value"]) == (b"k", b"one")
    assert str(first["timestamp"]) == "1970-01-01 00:00:01+00:00"
    assert first["headers"] == [{"key": "h", "value": b"x"}, {"key": "empty", "value": None}]
    assert (second["value"], third["offset"], third["value"]) == (None, 1, b"three")
    await run(*read, "--grep", "^three$", "--group", kafka.group(), "--from", "earliest")
    assert [row["value"] for row in rows()] == [b"three"]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


async def test_an_error_leaves_the_existing_file_unchanged(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic = await kafka.topic()
    servers = ("-b", kafka.bootstrap_servers, "-t", topic)
    await run("produce", *servers, "--count", "25000", "-q")
    file = tmp_path / "records.parquet"
    await run("consume", *servers, "-e", "--parquet", str(file))
    assert pq.read_table(file)["offset"].to_pylist() == list(range(25000))
    await run("consume", *servers, "-e", "--parquet", str(tmp_path / "no" / "file"), code=2)
    both = ("--parquet", str(file), "--arrow", str(file))
    await run("consume", *servers, "-e", *both, code=2)
    # after an error there is no new file, and the old one is unchanged
    await run("consume", "-b", kafka.bootstrap_servers, "-t", "missing", "-e", *both[:2], code=1)
    assert pq.read_table(file).num_rows == 25000
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("kind", ["avro", "json-schema", "protobuf"])
async def test_values_with_a_schema_are_printed_as_json(kafka: KafkaHandle, kind: str) -> None:
    topic, orders = await kafka.topic(), [{"id": 1, "item": "tea"}, {"id": 2, "item": "cup"}]
    expected: list[Any] = orders
    if kind == "protobuf":  # its JSON has 64-bit numbers as strings
        expected = [order | {"id": str(order["id"])} for order in orders]
    async with FakeRegistry() as registry:
        async with (
            writing(registry.url, topic) as writer,
            AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer,
        ):
            for order in orders:
                if kind == "avro":
                    encoded = await writer.avro(order, AVRO_ORDER)
                elif kind == "protobuf":
                    encoded = await writer.protobuf(messages()["Order"](**order))
                else:
                    encoded = await writer.json(order)
                await producer.send_and_wait(topic, encoded)
            await producer.send_and_wait(topic, None, key=b"deleted")
        read = ("consume", "-b", kafka.bootstrap_servers, "-t", topic, "-e")
        values = ("--value-format", kind, "--registry", registry.url)
        lines = (await run(*read, *values)).splitlines()
        assert [json.loads(line) for line in lines if line] == expected
        output = await run(*read, *values, "--json")
        assert [json.loads(line)["value"] for line in output.splitlines()] == [*expected, None]
        output = await run(*read, *values, "--grep", '"cup"')
        assert json.loads(output) == expected[1]
    await run(*read, "--value-format", kind, code=2)


async def test_a_progress_bar_is_shown_on_a_terminal_unless_quiet(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, 50)
    read = ("consume", "-b", kafka.bootstrap_servers, "-t", topic, "-e")

    async def shown(*arguments: str) -> tuple[bytes, int]:
        """Run the program with a terminal as standard error. Return what it shows there."""
        terminal, program_side = os.openpty()
        try:
            result = await asyncio.to_thread(
                subprocess.run,
                [*PROGRAM, *read, *arguments],
                stdout=subprocess.PIPE,
                stderr=program_side,
                timeout=60,
                env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
            )
            assert result.returncode == 0
            os.set_blocking(terminal, False)
            try:
                return os.read(terminal, 100_000), len(result.stdout.split())
            except BlockingIOError:
                return b"", len(result.stdout.split())
        finally:
            os.close(terminal)
            os.close(program_side)

    text, count = await shown()
    assert b"50/50" in text
    assert count == 50
    text, _ = await shown("--parquet", str(tmp_path / "file"))
    assert b"50/50" in text
    assert await shown("--quiet") == (b"", 50)

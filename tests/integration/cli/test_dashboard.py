"""`asyncconsumer dashboard` as a program, and `top` on a real broker."""

import json
import re
import sys
from contextlib import aclosing
from pathlib import Path

import aiohttp
from textual.widgets import DataTable

from asyncconsumer.cli.top_view import TopView
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.sites import admin_factory
from asyncconsumer.dashboard.snapshotter import Snapshotter
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.example_services import Program
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer

COMMAND = [sys.executable, "-c", "from asyncconsumer.cli import main; main()", "dashboard"]


async def test_the_page_is_served_until_a_signal(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, group = await kafka.topic(), kafka.group()
    async with aclosing(Program(tmp_path)) as program:
        program.start(*COMMAND, "-b", kafka.bootstrap_servers, "--port", "0")
        await program.wait_output("serving the dashboard on http://127.0.0.1:")
        (url,) = re.findall(r"http://127.0.0.1:\d+", program.observed)
        async with (
            make_consumer(kafka, topic, group_id=group) as consumer,
            aiohttp.ClientSession(url) as session,
        ):
            await consumer.wait_assigned()
            async with session.get("/") as answer:
                assert "<title>" in await answer.text()
            async with session.get("/events") as answer:
                async for line in answer.content:
                    if line.startswith(b"data: ") and group.encode() in line:
                        groups = json.loads(line[6:]).get("groups", ())
                        if any(row["group"] == group and row["members"] for row in groups):
                            break
                assert await program.end() == 0, program.observed
        assert "Traceback" not in program.observed


async def test_an_address_is_required(tmp_path: Path) -> None:
    async with aclosing(Program(tmp_path)) as program:
        program.environment = {"ASYNCCONSUMER_BOOTSTRAP_SERVERS": ""}
        program.start(*COMMAND)
        assert await program.end(None) == 2  # wrong usage
        assert "No broker is known" in program.observed


async def test_top_shows_a_group(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    factory = admin_factory({"bootstrap_servers": kafka.bootstrap_servers})
    view = TopView(Snapshotter(ClusterCollector(interval=0.2), factory))

    def names(table: str) -> list[str]:
        widget = view.query_one(f"#{table}", DataTable)
        return [str(widget.get_row_at(number)[0]) for number in range(widget.row_count)]

    async with make_consumer(kafka, topic, group_id=group, client_id="reader") as consumer:
        await consumer.wait_assigned()
        async with view.run_test(size=(140, 40)) as pilot:
            await until(lambda: group in names("groups"))
            for _ in range(names("groups").index(group)):
                await pilot.press("down")
            await until(lambda: names("members") == ["reader"])
            await pilot.press("q")

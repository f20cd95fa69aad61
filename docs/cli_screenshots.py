"""Take pictures of the command line on a real Kafka: `python docs/cli_screenshots.py`.

Commands run in a pseudo-terminal. Their output becomes an SVG file for each color scheme. Values
that differ between two runs, such as ports, member ids and times, are replaced by constant ones.
"""

import asyncio
import json
import os
import pty
import re
import shlex
import sys
import termios
from contextlib import AsyncExitStack, suppress
from html import escape
from io import StringIO
from pathlib import Path
from time import time_ns
from typing import Any, Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from asyncconsumer import Consumer, Producer
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.testing.servers import Kafka

ROWS, COLUMNS = 16, 124  # a table with member ids needs the columns
COMMANDS: Final = {
    "cli-lag": "lag billing --seconds",
    "cli-groups": "groups describe billing",
    "cli-consume": r"consume orders --tail 3 --until end -f '%t[%p] %o %k %s %h\n'",
    "cli-config": "config show",
    "cli-doctor": "doctor --group billing --topic orders",
    "cli-top": "top",
}
"""The command line of each picture, without the name of the program."""

TERMINAL: Final = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
SETTINGS: Final = """\
BOOTSTRAP_SERVERS=kafka-1:9093,kafka-2:9093 GROUP_ID=orders SECURITY_PROTOCOL=SASL_SSL
SASL_MECHANISM=SCRAM-SHA-512 SASL_PLAIN_USERNAME=orders SASL_PLAIN_PASSWORD=tangerine-48"""
"""Variables for `config show`, as in docs/tutorial-service.md, without their prefix."""

WRITTEN: Final = 1_200  # records in each partition, with a timestamp every half second
LAGS: Final = {"orders": (322, 187, 483, 120), "payments": (0, 3)}
AGE: Final = r"(?<= )[1-9]\d*\.\d(?= )"
MEMBERS: Final = ("3c61f0a9-52d7-4b8e-9f14-0ad7c25e8b36", "b8e2940d-1f6c-4a35-8c07-64f19be3d5a2")
SCHEMES: Final = {  # border, background, text, and the eight colors of a terminal
    "light": "d1d9e0 f6f8fa 1f2328 24292f cf222e 116329 7d4e00 0969da 8250df 1b7c83 6e7781",
    "dark": "3d444d 161b22 e6edf3 484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4",
}

TEMPLATE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>$title</title>
<style>
text {{ font: 21px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
svg > text {{ font-size: 17px; font-weight: 600; }} svg > rect {{ stroke: #$border; }}
{styles}
</style>
<defs>{lines}</defs>{chrome}<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}{matrix}
</g></svg>
"""


async def write(producer: Producer[Any, Any], number: int, timestamp_ms: int, *topics: str) -> None:
    """Write a record to each partition of the topics."""
    for topic in topics:
        for order, partition in enumerate(range(len(LAGS[topic])), 10_000 + 4 * number):
            value = {"order": order, "total": order * 7 % 97 / 4, "currency": "EUR"}
            headers = {"trace": b"%08x" % (order * 2_654_435_761 % 2**32)}
            options: dict[str, Any] = {"partition": partition, "timestamp_ms": timestamp_ms}
            options |= {"key": f"customer-{order % 7}", "headers": headers}
            await producer.send(topic, json.dumps(value), **options)


async def join(stack: AsyncExitStack, servers: str) -> list[Consumer[Any, Any]]:
    """Return the two members of the group, after they have committed their offsets."""
    members: list[Consumer[Any, Any]] = []
    for name in ("billing-1", "billing-2"):  # the assignor sorts static members by name
        options: dict[str, Any] = {"group_id": "billing", "bootstrap_servers": servers}
        options |= {"group_protocol": "consumer", "group_remote_assignor": "range"}
        options |= {"client_id": name, "group_instance_id": name, "enable_auto_commit": False}
        member = Consumer[Any, Any](*LAGS, auto_offset_reset="earliest", **options)
        members.append(await stack.enter_async_context(member))
    await wait_until(lambda: all(len(member.assignment) == 3 for member in members))
    await commit(members, 0)
    return members


async def load(producer: Producer[Any, Any], members: list[Consumer[Any, Any]]) -> None:
    """Write orders, and commit more of them than are written."""
    for number in range(1_000):
        await write(producer, WRITTEN + number, time_ns() // 1_000_000, "orders")
        await commit(members, 3 * number // 2)
        await asyncio.sleep(0.25)  # shorter than the polls of `top`


async def commit(members: list[Consumer[Any, Any]], orders: int) -> None:
    """Commit the first offsets, plus `orders` in each partition of that topic."""
    for member in members:
        starts = {tp: WRITTEN - LAGS[tp.topic][tp.partition] for tp in member.assignment}
        await member.commit({tp: n + orders * (tp.topic == "orders") for tp, n in starts.items()})


async def run_command(name: str, scheme: str, servers: str) -> str:
    """Run the command of a picture in a pseudo-terminal, and return what it printed."""
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
    variables = SETTINGS if name == "cli-config" else f"BOOTSTRAP_SERVERS={servers}"
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("asyncconsumer"),
        *shlex.split(COMMANDS[name]),
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
        env={**TERMINAL, "TEXTUAL_THEME": f"textual-{scheme}"}
        | dict(f"ASYNCCONSUMER_{each}".split("=") for each in variables.split()),
    )
    os.close(terminal)
    if name == "cli-top":
        asyncio.get_running_loop().call_later(28, os.write, reader, b"q")
    data = b""
    with suppress(OSError):  # the end of a terminal is an error
        while block := await asyncio.to_thread(os.read, reader, 65_536):
            data += block
    os.close(reader)
    assert await process.wait() == 0, data.decode()
    return data.decode()


def stable_lines(name: str, printed: str, constants: dict[str, str]) -> list[Text]:
    """Return the printed lines, with constants for values that differ between two runs."""
    for member in re.findall(r"[\da-f]{8}-[-\da-f]{27}", printed):
        constants.setdefault(member, MEMBERS[len(constants) % 2])
    for value, constant in constants.items():
        printed = printed.replace(value, constant)
    if name == "cli-top":
        return screen(re.sub(r"\d\d:\d\d:\d\d", "14:03:27", printed))
    delay = max(map(float, re.findall(AGE, printed)), default=0) - 270.5
    printed = re.sub(
        AGE, lambda age: f"{round(2 * (float(age[0]) - delay)) / 2:>{len(age[0])}}", printed
    )
    lines = printed.rstrip().split("\r\n")
    if name == "cli-config":
        lines[14:] = ["..."]  # the others are defaults
    # partitions have no order
    return [Text.from_ansi(line) for line in (sorted(lines) if name == "cli-consume" else lines)]


def screen(printed: str) -> list[Text]:
    """Return the lines of the screen on which a program has placed its texts."""
    lines = [Text(" " * COLUMNS)] * ROWS
    placed = r"\x1b\[(\d+);(\d+)H((?:(?!\x1b\[(?:\d+;\d+H|\?))[^\r\n])*)"
    for row, column, styled in re.findall(placed, printed):
        text, line, start = Text.from_ansi(styled), lines[int(row) - 1], int(column) - 1
        lines[int(row) - 1] = line[:start] + text + line[start + len(text) :]
    return lines


def picture(name: str, lines: list[Text], scheme: str) -> str:
    """Return the picture of a command in a color scheme as SVG."""
    border, *colors = SCHEMES[scheme].split()
    background, text, *normal = [(*bytes.fromhex(color),) for color in colors]
    title, theme = f"asyncconsumer {COMMANDS[name]}", TerminalTheme(background, text, normal)
    template = TEMPLATE.replace("$title", escape(title)).replace("$border", border)
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True)
    console.print(Text("\n").join(lines), highlight=False)
    svg = console.export_svg(
        title=title, theme=theme, code_format=template, font_aspect_ratio=0.63, unique_id=name
    )
    return re.sub(r"\s*\n\s*", "\n", svg).strip() + "\n"


async def main() -> None:
    """Write all pictures."""
    async with Kafka() as kafka, AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        servers = kafka.bootstrap_servers
        constants = {servers: "10.20.0.11:9092", "127.0.0.1": "10.20.0.7"}
        producer = await stack.enter_async_context(Producer[Any, Any](bootstrap_servers=servers))
        for topic, lags in LAGS.items():
            await kafka.admin.create_topic(topic, partitions=len(lags))
        first_ms = time_ns() // 1_000_000 - 500 * WRITTEN - 21_000
        for number in range(WRITTEN):
            await write(producer, number, first_ms + 500 * number, *LAGS)
        members = await join(stack, servers)
        for name in COMMANDS:
            if name == "cli-doctor":
                work = start_task(tasks, load(producer, members))
            runs = [start_task(tasks, run_command(name, each, servers)) for each in SCHEMES]
            for scheme, run in zip(SCHEMES, runs, strict=True):
                lines = stable_lines(name, await run, constants)
                path = Path(__file__).with_name(f"{name}-{scheme}.svg")
                path.write_text(picture(name, lines, scheme), encoding="utf-8")
        work.cancel()


if __name__ == "__main__":
    asyncio.run(main())

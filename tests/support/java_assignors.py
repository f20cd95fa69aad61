"""Calls of the Java client's own assignors."""

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.compiler import compiled
from asyncconsumer.testing.servers.java import find_java, java_command

PROGRAM = Path(__file__).with_name("JavaAssignors.java")
REFUSED = "refused"


async def ask_java(questions: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the answers of one JVM, in the order of the questions."""
    java = find_java()
    jars = await Kafka().fetch()
    classes = await compiled(PROGRAM, java, jars)
    silent = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = java_command(java, [classes, *jars], PROGRAM.stem, heap="256m")
    text = "".join(f"{json.dumps(question)}\n" for question in questions)
    ran = await asyncio.to_thread(
        subprocess.run,
        [command[0], silent, *command[1:]],
        input=text.encode(),
        capture_output=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    answers = [json.loads(line) for line in ran.stdout.decode().splitlines()]
    assert len(answers) == len(questions), ran.stderr.decode()[-3000:]
    return answers


def refused(answer: Any) -> bool:
    return isinstance(answer, dict) and REFUSED in answer

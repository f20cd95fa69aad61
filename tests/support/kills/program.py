"""The common parts of these programs: a broker, a folder, a seed, messages of progress."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka

Say = Callable[[str], object]


class Result(Protocol):
    """The result of a run."""

    @property
    def wrong(self) -> int:
        """Return the number of records that break a guarantee."""


def nothing(text: str) -> None:
    """Ignore a message of progress."""


def on_a_broker(
    about: str | None,
    options: Callable[[argparse.ArgumentParser], None],
    run: Callable[..., Coroutine[Any, Any, Result]],
) -> None:
    """Run a program with the options of the command line, and print its result.

    Exit with status 1 if something is wrong.
    """
    parser = argparse.ArgumentParser(description=about)
    options(parser)
    parser.add_argument("--seed", type=int, default=1)
    arguments = vars(parser.parse_args())

    async def run_on_a_broker() -> Result:
        with tempfile.TemporaryDirectory() as folder:
            async with Kafka() as kafka:
                return await run(KafkaHandle(kafka, "run"), Path(folder), **arguments, say=_print)

    result = asyncio.run(run_on_a_broker())
    _print(str(result))
    sys.exit(result.wrong > 0)


def _print(text: str) -> None:
    print(text, flush=True)

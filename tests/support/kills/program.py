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
        """The number of records that break a guarantee."""


def nothing(word: str) -> None:
    """For tests, of which nobody reads how far they are."""


def on_a_broker(
    about: str | None,
    options: Callable[[argparse.ArgumentParser], None],
    run: Callable[..., Coroutine[Any, Any, Result]],
) -> None:
    """Run it with the options of the command line, and print what it found.

    Exit with status 1 if something is wrong.
    """
    parser = argparse.ArgumentParser(description=about)
    options(parser)
    parser.add_argument("--seed", type=int, default=1)
    asked = vars(parser.parse_args())

    async def found() -> Result:
        with tempfile.TemporaryDirectory() as folder:
            async with Kafka() as kafka:
                return await run(KafkaHandle(kafka, "run"), Path(folder), **asked, say=_print)

    result = asyncio.run(found())
    _print(str(result))
    sys.exit(result.wrong > 0)


def _print(word: str) -> None:
    print(word, flush=True)

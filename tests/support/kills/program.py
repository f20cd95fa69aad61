"""The common parts of these programs: a broker, a folder, a seed, messages of progress."""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka

Say = Callable[[str], object]


def nothing(word: str) -> None:
    """For tests, of which nobody reads how far they are."""


def on_a_broker(
    about: str | None,
    options: Callable[[argparse.ArgumentParser], None],
    run: Callable[..., Coroutine[Any, Any, object]],
) -> None:
    """Run it with the options of the command line, and print what it found."""
    parser = argparse.ArgumentParser(description=about)
    options(parser)
    parser.add_argument("--seed", type=int, default=1)
    asked = vars(parser.parse_args())

    async def found() -> object:
        with tempfile.TemporaryDirectory() as folder:
            async with Kafka() as kafka:
                return await run(KafkaHandle(kafka, "run"), Path(folder), **asked, say=_print)

    _print(str(asyncio.run(found())))


def _print(word: str) -> None:
    print(word, flush=True)

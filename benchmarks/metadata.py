"""The time for which metadata of many partitions blocks the event loop, compared with aiokafka.

    python -m benchmarks.metadata [--quick] [--json] [--partitions 200000]

The same response, of topics with 100 partitions and three replicas each, is decoded and stored on a
running event loop. "longest" is the longest CPU time for which no other task could run. "all" is
the CPU time of the whole work. "names" reads only the names of topics, as a pattern subscription
does.
"""

import asyncio
import gc
import importlib
import statistics
import time
from collections.abc import Callable, Generator
from io import BytesIO
from typing import NamedTuple, TypeAlias

from asyncconsumer.net.metadata_reader import MetadataReader
from benchmarks._harness import arguments, note, print_lines
from tests.support.large_metadata import OLD, large_answer

PER_TOPIC, BROKERS = 100, 50

Steps: TypeAlias = Generator[None, None, None]
"""A generator that does the work. At each `yield` the event loop may run other tasks."""


class Row(NamedTuple):
    """The milliseconds of one contender, as medians of several rounds."""

    contender: str
    longest: float
    whole: float


def of_asyncconsumer(body: bytes, requested: list[str]) -> Steps:
    yield from MetadataReader(body, OLD, requested).steps()


def of_aiokafka(body: bytes) -> Steps:
    """Decode a response with aiokafka, and store it in aiokafka's view of the cluster.

    Version 5 is the newest that aiokafka supports.
    """
    cluster = importlib.import_module("aiokafka.cluster")
    messages = importlib.import_module("aiokafka.protocol.metadata")
    response = messages.MetadataResponse_v5.decode(BytesIO(body))
    cluster.ClusterMetadata().update_metadata(response)
    yield


async def run(steps: Steps) -> tuple[float, float]:
    """Run the steps with a loop iteration between them.

    Return the longest CPU time of one step, and the CPU time of all steps, in milliseconds.
    """
    times, began = [], time.thread_time()
    for _ in steps:
        times.append(time.thread_time() - began)
        await asyncio.sleep(0)
        began = time.thread_time()
    times.append(time.thread_time() - began)
    return max(times) * 1000, sum(times) * 1000


def measure(contenders: dict[str, Callable[[], Steps]], rounds: int) -> list[Row]:
    taken: dict[str, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    with asyncio.Runner() as runner:
        for _ in range(rounds):
            for contender, make in contenders.items():
                gc.collect()
                taken[contender].append(runner.run(run(make())))
    return [
        Row(contender, *(statistics.median(column) for column in zip(*times, strict=True)))
        for contender, times in taken.items()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--partitions", type=int, default=200_000)
    options = parser.parse_args()
    count: int = options.partitions
    topics = {f"topic-{n:06}": PER_TOPIC for n in range(count // PER_TOPIC)}
    brokers = {node: (f"broker-{node}", 9092) for node in range(BROKERS)}
    body = large_answer(topics, brokers=brokers, version=OLD)
    note(f"{count} partitions, {len(body) >> 10} KiB")
    contenders: dict[str, Callable[[], Steps]] = {
        "asyncconsumer": lambda: of_asyncconsumer(body, list(topics)),
        "asyncconsumer, names": lambda: of_asyncconsumer(body, []),
        "aiokafka": lambda: of_aiokafka(body),
    }
    rows = measure(contenders, 3 if options.quick else 7)
    if options.json:
        for row in rows:
            result = {
                "bench": "metadata",
                "case": f"{count} partitions",
                "contender": row.contender,
            }
            for metric, value in (("longest_ms", row.longest), ("whole_ms", row.whole)):
                print_lines([{**result, "metric": metric, "median": round(value, 1)}])
        return
    print(f"\n{count} partitions\n  {'':24}{'longest, ms':>14}{'all, ms':>12}")
    for row in rows:
        print(f"  {row.contender:24}{row.longest:>14.1f}{row.whole:>12.1f}")


if __name__ == "__main__":
    main()

"""The cost of metrics: the same consumer with and without them.

    python -m benchmarks.metrics [--quick] [--json] [--rounds N] [--case NAME ...]

One consumer process runs at a time, on a real broker with records of 100 bytes, in interleaved
rounds. "without" replaces the methods that record metrics. "scraped" also renders all metrics each
second. If a promised ratio is not reached, the output says so.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import figures
from benchmarks._harness import note
from benchmarks._promises import CPU, RATE, Case, Promise, run_cases
from benchmarks._topics import Load, fill, plain

MODULE: Final = "benchmarks._metrics"
LEAST: Final = 0.98  # the promised part of the rate without metrics


async def loop(kafka: Kafka, *, quick: bool, partitions: int) -> Case:
    """Compare a plain loop with metrics, without them, and with metrics that are scraped."""
    load = Load(
        f"metrics {partitions}", 1_000_000 if quick else 8_000_000, plain, "none", partitions
    )
    note(f"{load.name}: filling {load.records:,} records ...")
    await fill(kafka, load)
    run = partial(
        figures, MODULE, servers=kafka.bootstrap_servers, topic=load.topic, partitions=partitions,
        count=load.records,
    )  # fmt: skip
    return Case(
        {
            "without": partial(run, "read without"),
            "with": partial(run, "read"),
            "scraped": partial(run, "read", scraped=True),
        },
        [
            Promise(contender, "without", metric, LEAST)
            for contender in ("with", "scraped")
            for metric in (RATE, CPU)
        ],
        2 if quick else 9,
    )


async def handlers(kafka: Kafka, *, quick: bool) -> Case:
    """Compare a handler that does nothing with metrics and without them."""
    load = Load("metrics handlers", 300_000 if quick else 2_000_000, plain)
    note(f"{load.name}: filling {load.records:,} records ...")
    await fill(kafka, load)
    run = partial(
        figures, MODULE, servers=kafka.bootstrap_servers, topic=load.topic, count=load.records,
        delay_ms=0, concurrency=100, ordering="key",
    )  # fmt: skip
    return Case(
        {"without": partial(run, "handlers without"), "with": partial(run, "handlers")},
        [Promise("with", "without", metric, LEAST) for metric in (RATE, CPU)],
        2 if quick else 9,
    )


CASES: Final[dict[str, Callable[..., Awaitable[Case]]]] = {
    "loop, 1 partition": partial(loop, partitions=1),
    "loop, 100 partitions": partial(loop, partitions=100),
    "handlers": handlers,
}


def main() -> None:
    run_cases("metrics", __doc__, CASES)


if __name__ == "__main__":
    main()

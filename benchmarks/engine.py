"""The CPU time, speed and memory of the fetch engine and its stream, compared with other clients.

    python -m benchmarks.engine [--quick] [--json] [--rounds N] [--case NAME ...]

One consumer process runs at a time, on a real broker on this machine, in interleaved rounds. A
ratio says how many times better asyncconsumer is. If a promised ratio is not reached, the output
says so.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures, figures, output
from benchmarks._harness import note
from benchmarks._promises import CPU, RATE, RSS, Case, Promise, Run, run_cases
from benchmarks._topics import Load, fill, kilobyte, plain

ENGINE, PEERS = "benchmarks._engine_asyncconsumer", "benchmarks._engine_peers"
BUDGET_MB, REST_MB = 32, 60  # the limits of the engine's buffers, and of all other memory
_numbers: Final = itertools.count()


# --- the cases -----------------------------------------------------------------------------------


async def throughput(kafka: Kafka, *, quick: bool) -> Case:
    """Compare CPU time and rate for 1, 100 and 1,000 partitions, and with the simplest reader."""
    count = 500_000 if quick else 4_000_000
    simple = "SimpleConsumer, 1 partition"
    contenders: dict[str, Run] = {}
    for partitions in (1, 100, 1000):
        load = Load(f"throughput {partitions}", count, plain, partitions=partitions)
        await prepared(kafka, load)
        run = partial(
            figures, ENGINE, servers=kafka.bootstrap_servers, topic=load.topic, count=count,
            partitions=partitions,
        )  # fmt: skip
        contenders[f"engine, {partitions} partition{'s' * (partitions > 1)}"] = partial(run, "read")
        if partitions == 1:
            contenders[simple] = partial(run, "read simply")
    return Case(
        contenders,
        [
            Promise("engine, 1 partition", simple, RATE, 0.9),
            Promise("engine, 1 partition", simple, CPU, 0.9),
            Promise("engine, 100 partitions", "engine, 1 partition", CPU),
            Promise("engine, 1000 partitions", "engine, 1 partition", CPU),
        ],
        1 if quick else 7,
    )


async def member(kafka: Kafka, *, quick: bool) -> Case:
    """Compare a group member that commits with the engine alone."""
    count = 1_000_000 if quick else 4_000_000
    contenders: dict[str, Run] = {}
    promises: list[Promise] = []
    for partitions in (1, 100):
        load = Load(f"member {partitions}", count, plain, partitions=partitions)
        await prepared(kafka, load)
        run = partial(
            figures, ENGINE, servers=kafka.bootstrap_servers, topic=load.topic, count=count,
            partitions=partitions,
        )  # fmt: skip
        of = f"{partitions} partition{'s' * (partitions > 1)}"
        contenders[f"engine, {of}"] = partial(run, "read, opened")
        contenders[f"Consumer, {of}"] = partial(run, "read as a member")
        promises += [
            Promise(f"Consumer, {of}", f"engine, {of}", RATE, 0.9),
            Promise(f"Consumer, {of}", f"engine, {of}", CPU, 0.9),
        ]
    return Case(contenders, promises, 2 if quick else 7)


async def idle(kafka: Kafka, *, quick: bool) -> Case:
    """Measure the CPU time with a thousand empty partitions, in percent of a core."""
    await kafka.admin.create_topic("quiet", partitions=1000)
    settle, seconds = (4.0, 5.0) if quick else (8.0, 20.0)
    run = partial(
        figures, servers=kafka.bootstrap_servers, topic="quiet", partitions=1000, settle=settle,
        seconds=seconds,
    )  # fmt: skip
    return Case(
        {
            "engine": partial(run, ENGINE, "idle"),
            "aiokafka": partial(run, PEERS, "aiokafka idle"),
            "confluent": partial(run, PEERS, "confluent idle"),
        },
        [
            Promise("engine", 1.0, "cpu_percent", 1.0),
            Promise("engine", "aiokafka", "cpu_percent"),
            Promise("engine", "confluent", "cpu_percent"),
        ],
        1 if quick else 3,
    )


async def latency(kafka: Kafka, *, quick: bool, rate: int) -> Case:
    """Measure the delay from a producer's call to the reader, at `rate` records per second."""
    seconds = 8.0 if quick else 10.0  # a reader on a busy machine needs seconds to start
    contenders = {
        "engine": (ENGINE, "latency"),
        "engine, uvloop": (ENGINE, "latency, uvloop"),
        "confluent": (PEERS, "confluent latency"),
        "aiokafka": (PEERS, "aiokafka latency"),
    }
    promised = 1.0 if rate == 1000 else None
    return Case(
        {
            contender: partial(delays, kafka, *run, rate, seconds)
            for contender, run in contenders.items()
        },
        [
            Promise(contender, against, metric, promised)
            for contender in ("engine", "engine, uvloop")
            for against in ("confluent", "aiokafka")
            for metric in ("p50_us", "p99_us")
        ],
        1 if quick else 7,
    )


async def delays(kafka: Kafka, module: str, name: str, rate: int, seconds: float) -> Figures:
    """Run a consumer and a producer at the same time on a new topic, and return the delays."""
    topic, servers = f"delays-{next(_numbers)}", kafka.bootstrap_servers
    await kafka.admin.create_topic(topic)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(figures(module, name, servers, topic))
        sending = ["-m", "benchmarks._sender", servers, topic, str(rate), str(seconds)]
        group.create_task(output(sending))
    await kafka.admin.delete_topic(topic)
    return task.result()


async def start(kafka: Kafka, *, quick: bool, partitions: int) -> Case:
    """Measure the time from the end of the imports to the first record."""
    load = Load(f"start {partitions}", 10_000, plain, partitions=partitions)
    await prepared(kafka, load)
    run = partial(figures, servers=kafka.bootstrap_servers, topic=load.topic, partitions=partitions)
    return Case(
        {
            "engine": partial(run, ENGINE, "start"),
            "aiokafka": partial(run, PEERS, "aiokafka start"),
            "confluent": partial(run, PEERS, "confluent start"),
        },
        [
            Promise("engine", against, metric)
            for against in ("aiokafka", "confluent")
            for metric in ("ms", "cpu_ms")
        ],
        3 if quick else 11,
    )


async def stuck(kafka: Kafka, *, quick: bool) -> Case:
    """Compare nine of ten streams while the tenth is not read with nine and with ten streams.

    Each stream has ten partitions.
    """
    each = 5_000 if quick else 30_000
    load = Load("stuck", 100 * each, plain, partitions=100)
    await prepared(kafka, load)
    run = partial(
        figures, ENGINE, "streams", kafka.bootstrap_servers, load.topic, partitions=10, each=each
    )
    return Case(
        {
            "nine beside a stuck one": partial(run, existing=10, reading=9),
            "ten": partial(run, existing=10, reading=10),
            "nine": partial(run, existing=9, reading=9),
        },
        [
            Promise("nine beside a stuck one", against, metric, 0.9)
            for against in ("ten", "nine")
            for metric in (RATE, CPU)
        ],
        1 if quick else 7,
    )


async def memory(kafka: Kafka, *, quick: bool) -> Case:
    """Measure the memory of a slow reader whose topic is many times larger than its budget."""
    count = 300_000 if quick else 2_000_000
    load = Load("memory", count, kilobyte, partitions=1000)
    await prepared(kafka, load)
    run = partial(
        figures, ENGINE, "slowly", kafka.bootstrap_servers, load.topic, partitions=1000,
        count=count, budget_mb=BUDGET_MB,
    )  # fmt: skip
    promises = [
        Promise("engine", BUDGET_MB + REST_MB, RSS, 1.0),
        Promise("engine", BUDGET_MB, "peak_budget_mb", 1.0),
    ]
    return Case({"engine": run}, promises, 1 if quick else 2)


CASES: Final[dict[str, Callable[..., Awaitable[Case]]]] = {
    "throughput": throughput,
    "member": member,
    "idle": idle,
    "latency, 1000/s": partial(latency, rate=1000),
    "latency, 50000/s": partial(latency, rate=50_000),
    "start, 1 partition": partial(start, partitions=1),
    "start, 100 partitions": partial(start, partitions=100),
    "stuck": stuck,
    "memory": memory,
}


# --- running and printing ------------------------------------------------------------------------


async def prepared(kafka: Kafka, load: Load) -> None:
    note(f"{load.name}: filling {load.records:,} records ...")
    await fill(kafka, load)


def main() -> None:
    run_cases("engine", __doc__, CASES)


if __name__ == "__main__":
    main()

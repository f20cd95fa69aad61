"""The rate of a feeder from a topic into a sink, and the delays of its event loop.

    python -m benchmarks.feeder [--quick] [--json] [--rounds N] [--records N] [--contender NAME ...]

Each contender runs in a process of its own, on a real broker on this machine, in interleaved
rounds.

"from memory" writes the same Arrow batches into the same sink, one after the other, without
fetching and decoding. It is the limit if the writer has a CPU core of its own. "at once" prepares
as many batches at the same time as the feeder, so it uses both cores of a machine with two.
"createDataFrame + append" also has the batches in memory, and runs a Spark job for each.

A stall is the delay of a task that is to run every 2 ms. "nothing" measures the stalls of an idle
loop, which the machine causes. "busy" is the CPU time of the loop's thread during a stall, which is
the stall on a machine without other load.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import figures
from benchmarks._harness import arguments, note
from benchmarks._promises import RATE, Case, Found, Promise, Run, measure, only, tell
from benchmarks._topics import Load, fill, plain

PROGRAM: Final = "benchmarks._feeding"
SINKS: Final = ("landing", "Delta")
SPARK: Final = "createDataFrame + append"
NOTHING: Final = "nothing"
PARTITIONS: Final = 4
LONGEST_STALL_MS, P99_STALL_MS = 50.0, 20.0


def case_of(kafka: Kafka, load: Load, each: int, rounds: int) -> Case:
    run = partial(
        figures, PROGRAM, servers=kafka.bootstrap_servers, topic=load.topic, count=load.records,
        each=each,
    )  # fmt: skip
    contenders: dict[str, Run] = {
        contender: partial(run, contender) for contender in (NOTHING, SPARK)
    }
    promises = []
    for sink in SINKS:
        fed, limit = f"feeder, {sink}", f"from memory, {sink}"
        at_once = f"{limit}, at once"
        contenders |= {contender: partial(run, contender) for contender in (limit, fed, at_once)}
        promises += [
            Promise(fed, limit, RATE, 0.85),
            Promise(fed, at_once, RATE),
            Promise(fed, SPARK, RATE, 3.0),
            Promise(fed, LONGEST_STALL_MS, "longest_stall_ms", 1.0),
            Promise(fed, P99_STALL_MS, "p99_stall_ms", 1.0),
        ]
    return Case(contenders, promises, rounds)


async def feed(records: int, each: int, rounds: int, selected: Sequence[str]) -> Found:
    load = Load("feeder", records, plain, partitions=PARTITIONS)
    async with Kafka() as kafka:
        note(f"filling {records:,} records ...")
        await fill(kafka, load)
        case = only(case_of(kafka, load, each, rounds), selected)
        return await measure(f"{records:,} x 100 B", case)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--records", type=int)
    parser.add_argument("--each", type=int, default=100_000, help="records of a batch")
    parser.add_argument("--contender", action="append", help="beginning of contenders' names")
    options = parser.parse_args()
    records = options.records or (1_000_000 if options.quick else 8_000_000)
    rounds = options.rounds or (1 if options.quick else 5)
    results = asyncio.run(feed(records, options.each, rounds, options.contender or [""]))
    tell("feeder", results, as_json=options.json)


if __name__ == "__main__":
    main()

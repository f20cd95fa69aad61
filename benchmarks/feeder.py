"""From a topic into a lake: how fast, and how long the event loop has to wait meanwhile.

    python -m benchmarks.feeder [--quick] [--json] [--rounds N] [--records N] [--contender NAME ...]

Each contender in a process of its own, against a real broker on this machine, in interleaved
rounds. "From memory" writes the same Arrow batches into the same sink, one after another, with
nothing to fetch or decode: the limit, as long as there is a processor for the writer, and another
one for the feeder and the broker. "At once" has as many of them under way as the feeder, and both
processors for itself: what is left when there are only two, and fetching and decoding and the
broker take their part of them. "createDataFrame + append" has them in memory as well, and a
Spark job for each. Stalls are how late a task was that wants to run every 2 ms; "nothing"
has nothing else to do, so its stalls are the machine's. "Busy" is the CPU of the loop's own thread
in such a wait: what it would be on a machine of its own.
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
    parser.add_argument("--each", type=int, default=100_000, help="records a batch")
    parser.add_argument("--contender", action="append", help="only contenders whose name begins so")
    options = parser.parse_args()
    records = options.records or (1_000_000 if options.quick else 8_000_000)
    rounds = options.rounds or (1 if options.quick else 5)
    results = asyncio.run(feed(records, options.each, rounds, options.contender or [""]))
    tell("feeder", results, as_json=options.json)


if __name__ == "__main__":
    main()

"""From a topic into a lake: how fast, and how long the event loop has to wait meanwhile.

    python -m benchmarks.feeder [--quick] [--json] [--rounds N] [--records N] [--who NAME ...]

Each contender in a process of its own, against a real broker on this machine, in interleaved
rounds. "From memory" writes the same Arrow batches into the same sink, one after another, with
nothing to fetch or decode: the limit, as long as there is a processor for the writer, and another
one for us and the broker. "At once" has as many of them under way as the feeder, and both
processors for itself: what is left when there are only two, and fetching and decoding and the
broker take their part of them. "createDataFrame + append" has them in memory as well, and a
Spark job for each. Stalls are how late a task was that wants to run every 2 ms; "nothing"
has nothing else to do, so its stalls are the machine's. "Busy" is the CPU of the loop's own thread
in such a wait: what it would be on a machine of its own.
"""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures, figures
from benchmarks._harness import arguments, note
from benchmarks._topics import Load, fill, plain
from benchmarks.engine import MORE_IS_BETTER, Case, Promise, Ratio, Result, Run, ratios, show

PROGRAM: Final = "benchmarks._feeding"
SINKS: Final = ("landing", "Delta")
SPARK: Final = "createDataFrame + append"
NOTHING: Final = "nothing"
PARTITIONS: Final = 4
LONGEST_STALL_MS, P99_STALL_MS = 50.0, 20.0


def case_of(kafka: Kafka, load: Load, each: int, rounds: int, who: Sequence[str]) -> Case:
    run = partial(
        figures, PROGRAM, servers=kafka.bootstrap_servers, topic=load.topic, count=load.records,
        each=each,
    )  # fmt: skip
    contenders: dict[str, Run] = {who: partial(run, who) for who in (NOTHING, SPARK)}
    promises = []
    for sink in SINKS:
        ours, limit = f"feeder, {sink}", f"from memory, {sink}"
        at_once = f"{limit}, at once"
        contenders |= {who: partial(run, who) for who in (limit, ours, at_once)}
        promises += [
            Promise(ours, limit, MORE_IS_BETTER, 0.85),
            Promise(ours, at_once, MORE_IS_BETTER),
            Promise(ours, SPARK, MORE_IS_BETTER, 3.0),
            Promise(ours, LONGEST_STALL_MS, "longest_stall_ms", 1.0),
            Promise(ours, P99_STALL_MS, "p99_stall_ms", 1.0),
        ]
    chosen = {name: one for name, one in contenders.items() if name.startswith(tuple(who))}
    there = {*chosen, LONGEST_STALL_MS, P99_STALL_MS}
    kept = [one for one in promises if one.who in chosen and one.against in there]
    return Case(chosen, kept, rounds)


async def measure(records: int, each: int, rounds: int, who: Sequence[str]) -> list[Ratio | Result]:
    name = f"{records:,} x 100 B"
    load = Load("feeder", records, plain, partitions=PARTITIONS)
    async with Kafka() as kafka:
        note(f"filling {records:,} records ...")
        await fill(kafka, load)
        case = case_of(kafka, load, each, rounds, who)
        samples: dict[str, list[Figures]] = {who: [] for who in case.contenders}
        for number in range(1, rounds + 1):
            for who, run in case.contenders.items():
                samples[who].append(await run())
                told = ", ".join(f"{key} {value:,.5g}" for key, value in samples[who][-1].items())
                note(f"  round {number}: {who}: {told}")
    results = {who: Result(name, who, sample) for who, sample in samples.items()}
    return [*results.values(), *ratios(name, case, results)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--records", type=int)
    parser.add_argument("--each", type=int, default=100_000, help="records a batch")
    parser.add_argument("--who", action="append", help="only contenders whose name begins so")
    options = parser.parse_args()
    records = options.records or (1_000_000 if options.quick else 8_000_000)
    rounds = options.rounds or (1 if options.quick else 5)
    found = asyncio.run(measure(records, options.each, rounds, options.who or [""]))
    if not options.json:
        show(found)
        return
    for line in sorted(found, key=lambda one: isinstance(one, Ratio)):
        more = {"missed": line.missed} if isinstance(line, Ratio) else {}
        print(json.dumps(line.as_json() | {"bench": "feeder"} | more))


if __name__ == "__main__":
    main()

"""The rate of handlers that publish their results, compared with other clients.

    python -m benchmarks.publish [--quick] [--json] [--rounds N]

There are a real broker, one partition and records of 100 bytes with 1,000 keys. Each contender
consumes the records, reverses each value, and writes it to another topic with one partition. It
commits a record after its result is acknowledged. Each runs in a process of its own, in interleaved
rounds. If a promised factor is not reached, the output says so.

A handler of batches is the counterpart of a loop over `getmany`. A handler of single records keeps
the order of keys and retries each record, which the loop does not. For exactly-once, a handler of
single records and a loop over `getmany` write results and offsets in transactions.
"""

import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures, figures
from benchmarks._harness import arguments, note
from benchmarks._topics import Load, fill, plain

LOAD: Final = Load("publish", 200_000, plain)
BY_KEY, BATCHES = "asyncconsumer, by key, 100 at once", "asyncconsumer, batches of 500"
LOOP, FASTSTREAM = "aiokafka, getmany loop", "faststream"
EXACTLY_ONCE = "asyncconsumer, exactly once"
TRANSACTIONS = "aiokafka, transactions"
PROMISED: Final = {
    (BY_KEY, FASTSTREAM): 3.0,
    (BY_KEY, LOOP): 1.0,
    (BATCHES, FASTSTREAM): 3.0,
    (BATCHES, LOOP): 1.0,
    (EXACTLY_ONCE, TRANSACTIONS): 1.0,
}
"""The least ratio of the rates of two contenders."""


class Contender(NamedTuple):
    """A program to run, and its options. A slow one gets fewer records."""

    kind: str
    records: int
    options: Mapping[str, Any]


CONTENDERS: Final = {
    LOOP: Contender("aiokafka", 200_000, {}),
    FASTSTREAM: Contender("faststream", 10_000, {"max_workers": 1}),
    "faststream, 100 workers": Contender("faststream", 30_000, {"max_workers": 100}),
    BY_KEY: Contender("asyncconsumer", 200_000, {"concurrency": 100}),
    BATCHES: Contender("asyncconsumer-batch", 200_000, {"batch": 500}),
    TRANSACTIONS: Contender("aiokafka-transactions", 200_000, {}),
    EXACTLY_ONCE: Contender("asyncconsumer", 200_000, {"concurrency": 100, "exactly_once": True}),
}


def row_of(contender: str, samples: Sequence[Figures]) -> dict[str, object]:
    rates = [sample["records_per_s"] for sample in samples]
    cpu = statistics.median(sample["cpu_s_per_million"] for sample in samples)
    return {
        "bench": "publish",
        "contender": contender,
        "records_per_s": round(statistics.median(rates)),
        "worst_records_per_s": round(min(rates)),
        "cpu_s_per_million": round(cpu, 2),
        "peak_rss_mb": round(max(sample["peak_rss_mb"] for sample in samples), 1),
        "rounds": len(samples),
    }


async def measure(rounds: int, scale: float) -> dict[str, list[Figures]]:
    samples: dict[str, list[Figures]] = {}
    async with Kafka() as kafka:
        note(f"filling {LOAD.records:,} records ...")
        await fill(kafka, LOAD)
        for number in range(1, rounds + 1):
            for index, (contender, item) in enumerate(CONTENDERS.items()):
                output = f"output-{number}-{index}"
                await kafka.admin.create_topic(output)
                ran = await figures(
                    "benchmarks._publish",
                    item.kind,
                    kafka.bootstrap_servers,
                    LOAD.topic,
                    count=int(item.records * scale),
                    output=output,
                    **item.options,
                )
                samples.setdefault(contender, []).append(ran)
                rate = f"{ran['records_per_s']:,.0f} records/s"
                note(f"  round {number}: {contender}: {rate}")
    return samples


def ratios(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return the promised ratios of rates and of CPU times."""
    by_name = {row["contender"]: row for row in rows}
    results: list[dict[str, object]] = []
    for (mine, other), promised in PROMISED.items():
        fast, cheap = by_name[mine], by_name[other]
        for metric, ratio in (
            ("records_per_s", fast["records_per_s"] / cheap["records_per_s"]),
            ("cpu_s_per_million", cheap["cpu_s_per_million"] / fast["cpu_s_per_million"]),
        ):
            results.append(
                {
                    "bench": "publish",
                    "contender": mine,
                    "against": other,
                    "metric": metric,
                    "ratio": round(ratio, 2),
                    "promised": promised,
                }
            )
    return results


def show(rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> None:
    print(f"  {'':36}{'records/s':>12}{'worst':>12}{'CPU s/M':>10}{'RSS MB':>8}")
    for row in rows:
        print(
            f"  {row['contender']:36}{row['records_per_s']:>12,}{row['worst_records_per_s']:>12,}"
            f"{row['cpu_s_per_million']:>10}{row['peak_rss_mb']:>8}"
        )
    for result in results:
        what = "the rate" if result["metric"] == "records_per_s" else "less CPU than"
        print(
            f"  {result['contender']}: {result['ratio']:,.1f} times {what} of {result['against']} "
            f"(at least {result['promised']:g})"
            + (": MISSED" if result["ratio"] < result["promised"] else "")
        )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    rounds, scale = options.rounds or (1 if options.quick else 3), 0.3 if options.quick else 1.0
    samples = asyncio.run(measure(rounds, scale))
    rows = [row_of(contender, runs) for contender, runs in samples.items()]
    results = ratios(rows)
    if not options.json:
        show(rows, results)
        return
    for line in [*rows, *results]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

"""Handlers: how many records a second one partition gives them, beside what others offer.

    python -m benchmarks.handlers [--quick] [--json] [--rounds N] [--case NAME ...]

A real broker, one partition, records of 100 bytes with 1,000 keys; each contender in a process of
its own, as a member of a group that commits, in interleaved rounds. Where a factor is promised, a
miss is told.

waiting: a handler that waits for 5 ms, as for a database. aiokafka in a plain loop, faststream with
one worker and with many, a loop with a semaphore and a task a record, and ours, by key.

nothing: a handler that does nothing, so what is measured is the way to it.
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

LOAD: Final = Load("handlers", 400_000, plain)
LOOP, FASTSTREAM = "aiokafka, plain loop", "faststream"
PROMISED: Final = {
    ("waiting", "ours, by key, 500 at once", LOOP): 100.0,
    ("nothing", "ours, by key", FASTSTREAM): 10.0,
}


class Contender(NamedTuple):
    """What to run, and with how many records: the slow ones need not take minutes."""

    kind: str
    records: int
    options: Mapping[str, Any]


def case_of(delay_ms: float, scale: float) -> dict[str, Contender]:
    def one(kind: str, count: int, **options: Any) -> Contender:  # noqa: ANN401
        return Contender(kind, int(count * scale), {"delay_ms": delay_ms, **options})

    if delay_ms:
        return {
            LOOP: one("aiokafka", 1_000),
            FASTSTREAM: one("faststream", 1_000, max_workers=1),
            "faststream, 500 workers": one("faststream", 40_000, max_workers=500),
            "semaphore, 500 at once": one("semaphore", 100_000, concurrency=500),
            "ours, by key, 200 at once": one("ours", 100_000, concurrency=200, ordering="key"),
            "ours, by key, 500 at once": one("ours", 200_000, concurrency=500, ordering="key"),
        }
    return {
        LOOP: one("aiokafka", 200_000),
        FASTSTREAM: one("faststream", 30_000, max_workers=1),
        "faststream, 100 workers": one("faststream", 30_000, max_workers=100),
        "semaphore, 100 at once": one("semaphore", 100_000, concurrency=100),
        "ours, by key": one("ours", 400_000, concurrency=100, ordering="key"),
        "ours, no order": one("ours", 400_000, concurrency=100, ordering="none"),
    }


CASES: Final = {"waiting": 5.0, "nothing": 0.0}


class Row(NamedTuple):
    """One contender in one case."""

    case: str
    who: str
    samples: Sequence[Figures]

    @property
    def rate(self) -> float:
        return statistics.median(one["records_per_s"] for one in self.samples)

    def as_json(self) -> dict[str, object]:
        cpu = statistics.median(one["cpu_s_per_million"] for one in self.samples)
        return {
            "bench": "handlers",
            "case": self.case,
            "who": self.who,
            "records_per_s": round(self.rate),
            "worst_records_per_s": round(min(one["records_per_s"] for one in self.samples)),
            "cpu_s_per_million": round(cpu, 2),
            "peak_rss_mb": round(max(one["peak_rss_mb"] for one in self.samples), 1),
            "rounds": len(self.samples),
        }


class Ratio(NamedTuple):
    """How many times more records a second one of ours has than another."""

    case: str
    who: str
    against: str
    ratio: float

    @property
    def promised(self) -> float | None:
        return PROMISED.get((self.case, self.who, self.against))

    def as_json(self) -> dict[str, object]:
        told = {"bench": "handlers", **self._asdict(), "metric": "records_per_s"}
        return {**told, "ratio": round(self.ratio, 2), "promised": self.promised}


async def measure(cases: Sequence[str], rounds: int, scale: float) -> list[Row]:
    found: dict[tuple[str, str], list[Figures]] = {}
    async with Kafka() as kafka:
        note(f"filling {LOAD.records:,} records ...")
        await fill(kafka, LOAD)
        for number in range(1, rounds + 1):
            for case in cases:
                for who, one in case_of(CASES[case], scale).items():
                    ran = await figures(
                        "benchmarks._handlers",
                        one.kind,
                        kafka.bootstrap_servers,
                        LOAD.topic,
                        count=one.records,
                        **one.options,
                    )
                    found.setdefault((case, who), []).append(ran)
                    note(f"  round {number}: {case}: {who}: {ran['records_per_s']:,.0f} records/s")
    return [Row(*place, samples) for place, samples in found.items()]


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    return [
        Ratio(mine.case, mine.who, other.who, mine.rate / other.rate)
        for mine in rows
        for other in rows
        if mine.case == other.case
        and mine.who.startswith("ours")
        and not other.who.startswith("ours")
    ]


def show(rows: Sequence[Row], found: Sequence[Ratio]) -> None:
    for case in dict.fromkeys(row.case for row in rows):
        print(f"\n{case}")
        print(f"  {'':28}{'records/s':>12}{'worst':>12}{'CPU s/M':>10}{'RSS MB':>8}")
        for row in rows:
            if row.case == case:
                told = row.as_json()
                print(
                    f"  {row.who:28}{told['records_per_s']:>12,}{told['worst_records_per_s']:>12,}"
                    f"{told['cpu_s_per_million']:>10}{told['peak_rss_mb']:>8}"
                )
        for one in found:
            if one.case == case:
                missed = one.promised is not None and one.ratio < one.promised
                promised = "" if one.promised is None else f" (at least {one.promised:g})"
                tail = ": MISSED" if missed else ""
                print(f"  {one.who}: {one.ratio:,.1f} times {one.against}{promised}{tail}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=list(CASES))
    options = parser.parse_args()
    rounds, scale = options.rounds or (1 if options.quick else 3), 0.3 if options.quick else 1.0
    rows = asyncio.run(measure(options.case or list(CASES), rounds, scale))
    found = ratios(rows)
    if not options.json:
        show(rows, found)
        return
    for line in [row.as_json() for row in rows] + [one.as_json() for one in found]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

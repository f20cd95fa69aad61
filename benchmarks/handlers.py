"""The rate of handlers on one partition, compared with other frameworks.

    python -m benchmarks.handlers [--quick] [--json] [--rounds N] [--case NAME ...]

There are a real broker, one partition and records of 100 bytes with 1,000 keys. Each framework runs
in a process of its own, as a member of a group that commits, in interleaved rounds. If a promised
factor is not reached, the output says so.

waiting: the handler waits for 5 ms, as for a database. aiokafka runs in a plain loop, and
faststream with one worker and with many. A loop with a semaphore starts a task for each record.

nothing: the handler does nothing, so the cost of its call is measured.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures, figures
from benchmarks._harness import arguments, note, print_lines
from benchmarks._topics import Load, fill, plain

LOAD: Final = Load("handlers", 400_000, plain)
LOOP, FASTSTREAM = "aiokafka, plain loop", "faststream"
PROMISED: Final = {
    ("waiting", "asyncconsumer, by key, 500 at once", LOOP): 100.0,
    ("nothing", "asyncconsumer, by key", FASTSTREAM): 50.0,
    ("nothing", "asyncconsumer, by partition", FASTSTREAM): 50.0,
    ("nothing", "asyncconsumer, no order", FASTSTREAM): 50.0,
}


class Contender(NamedTuple):
    """A consumer to run, and its options. A slow one gets fewer records."""

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
            "asyncconsumer, by key, 200 at once": one(
                "asyncconsumer", 100_000, concurrency=200, ordering="key"
            ),
            "asyncconsumer, by key, 500 at once": one(
                "asyncconsumer", 200_000, concurrency=500, ordering="key"
            ),
        }
    return {
        LOOP: one("aiokafka", 200_000),
        FASTSTREAM: one("faststream", 30_000, max_workers=1),
        "faststream, 100 workers": one("faststream", 30_000, max_workers=100),
        "semaphore, 100 at once": one("semaphore", 100_000, concurrency=100),
        "asyncconsumer, by key": one("asyncconsumer", 400_000, concurrency=100, ordering="key"),
        "asyncconsumer, by partition": one(
            "asyncconsumer", 400_000, concurrency=100, ordering="partition"
        ),
        "asyncconsumer, no order": one("asyncconsumer", 400_000, concurrency=100, ordering="none"),
    }


CASES: Final = {"waiting": 5.0, "nothing": 0.0}


class Row(NamedTuple):
    """The figures of one consumer in one case."""

    case: str
    contender: str
    samples: Sequence[Figures]

    @property
    def rate(self) -> float:
        return statistics.median(sample["records_per_s"] for sample in self.samples)

    def as_json(self) -> dict[str, object]:
        cpu = statistics.median(sample["cpu_s_per_million"] for sample in self.samples)
        return {
            "bench": "handlers",
            "case": self.case,
            "contender": self.contender,
            "records_per_s": round(self.rate),
            "worst_records_per_s": round(min(sample["records_per_s"] for sample in self.samples)),
            "cpu_s_per_million": round(cpu, 2),
            "peak_rss_mb": round(max(sample["peak_rss_mb"] for sample in self.samples), 1),
            "rounds": len(self.samples),
        }


class Ratio(NamedTuple):
    """The ratio of the rates of asyncconsumer and of another consumer."""

    case: str
    contender: str
    against: str
    ratio: float

    @property
    def promised(self) -> float | None:
        return PROMISED.get((self.case, self.contender, self.against))

    def as_json(self) -> dict[str, object]:
        fields = {"bench": "handlers", **self._asdict(), "metric": "records_per_s"}
        return {**fields, "ratio": round(self.ratio, 2), "promised": self.promised}


async def measure(cases: Sequence[str], rounds: int, scale: float) -> list[Row]:
    result: dict[tuple[str, str], list[Figures]] = {}
    async with Kafka() as kafka:
        note(f"filling {LOAD.records:,} records ...")
        await fill(kafka, LOAD)
        for number in range(1, rounds + 1):
            for case in cases:
                for contender, item in case_of(CASES[case], scale).items():
                    ran = await figures(
                        "benchmarks._handlers",
                        item.kind,
                        kafka.bootstrap_servers,
                        LOAD.topic,
                        count=item.records,
                        **item.options,
                    )
                    result.setdefault((case, contender), []).append(ran)
                    rate = f"{ran['records_per_s']:,.0f} records/s"
                    note(f"  round {number}: {case}: {contender}: {rate}")
    return [Row(*place, samples) for place, samples in result.items()]


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    return [
        Ratio(mine.case, mine.contender, other.contender, mine.rate / other.rate)
        for mine in rows
        for other in rows
        if mine.case == other.case
        and mine.contender.startswith("asyncconsumer")
        and not other.contender.startswith("asyncconsumer")
    ]


def show(rows: Sequence[Row], results: Sequence[Ratio]) -> None:
    for case in dict.fromkeys(row.case for row in rows):
        print(f"\n{case}")
        print(f"  {'':36}{'records/s':>12}{'worst':>12}{'CPU s/M':>10}{'RSS MB':>8}")
        for row in rows:
            if row.case == case:
                line = row.as_json()
                print(
                    f"  {row.contender:36}{line['records_per_s']:>12,}"
                    f"{line['worst_records_per_s']:>12,}"
                    f"{line['cpu_s_per_million']:>10}{line['peak_rss_mb']:>8}"
                )
        for ratio in results:
            if ratio.case == case:
                missed = ratio.promised is not None and ratio.ratio < ratio.promised
                promised = "" if ratio.promised is None else f" (at least {ratio.promised:g})"
                tail = ": MISSED" if missed else ""
                print(
                    f"  {ratio.contender}: {ratio.ratio:,.1f} times {ratio.against}{promised}{tail}"
                )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=list(CASES))
    options = parser.parse_args()
    rounds, scale = options.rounds or (1 if options.quick else 3), 0.3 if options.quick else 1.0
    rows = asyncio.run(measure(options.case or list(CASES), rounds, scale))
    results = ratios(rows)
    if not options.json:
        show(rows, results)
        return
    print_lines([row.as_json() for row in rows] + [ratio.as_json() for ratio in results])


if __name__ == "__main__":
    main()

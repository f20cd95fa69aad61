"""The Spark source and sink, compared with Spark's own ones, with default and with tuned options.

    python -m benchmarks.spark [--quick] [--json] [--rounds N] [--case NAME ...] [--as-it-comes]

One Spark with two cores and one broker run on the same machine. All sources run the same queries on
the same topics in interleaved rounds, and only the name of the format differs. Spark's Python is
set up as README.md recommends, which does not affect Spark's own source. `--as-it-comes` leaves
that out. CPU time is that of the JVM and of all its Python processes. "marginal" is the cost of the
additional records of a longer run. "startup" is the time of the short run without its records. If a
promised ratio is missed, the output says so.
"""

import asyncio
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.spark import kafka_source_jars
from benchmarks._harness import arguments, note, print_lines
from benchmarks._spark_queries import (
    ASYNCCONSUMER,
    OWN,
    SOURCES,
    TUNED,
    Phases,
    Queries,
    Sample,
    session,
    timed,
)
from benchmarks._topics import Load, fill_with_copies, kilobyte, plain

RATE, CPU, STARTUP, MS = "records_per_s", "cpu_us_per_record", "startup_s", "ms_per_batch"
_BATCH: Final = {OWN: {RATE: 2.5, CPU: 0.7}, TUNED: {RATE: 1.7, CPU: 0.95}}
_STREAM: Final = {OWN: {RATE: 1.0}, TUNED: {RATE: 1.0}}
_FEW: Final = {OWN: {MS: 1.0}, TUNED: {MS: 1.0}}
_SMALL: Final = 10_000  # records of a micro-batch
_FIRST: Final = 3  # the first micro-batches, which start processes and do not count
_WHOLE: Final = "triggerExecution"
_PHASES: Final = {
    "plan_offsets_ms": "latestOffset",
    "plan_query_ms": "queryPlanning",
    "run_ms": "addBatch",
    "log_offsets_ms": "walCommit",
    "log_commit_ms": "commitOffsets",
}
"""The metrics of a micro-batch, and Spark's name of each phase."""
_PARTITIONS: Final = 4
_MOST_WARM_UPS, _IN_VAIN = 20, 4  # rounds
_FASTER: Final = 0.97  # of the least CPU time so far; a smaller gain does not count

Run = Callable[[Queries, str, Load], object]
Promises = Mapping[str, Mapping[str, float]]
"""The limit of a ratio, by compared source and metric: a minimum for rates, otherwise a maximum."""


class Case(NamedTuple):
    """A query, which is measured on topics of several sizes, and its promised ratios."""

    run: Run
    promises: Promises


CASES: Final = {
    "batch to noop": Case(Queries.noop, _BATCH),
    "batch, aggregate": Case(Queries.aggregate, _BATCH),
    "batch to parquet": Case(Queries.parquet, _BATCH),
    "stream to noop": Case(Queries.stream_to_noop, _STREAM),
    "stream, aggregate": Case(Queries.stream_to_aggregate, _STREAM),
    "stream to parquet": Case(Queries.stream_to_parquet, _STREAM),
}
WRITE: Final = "write to Kafka"
_WARM_WRITES: Final = 3  # rounds
MICRO: Final = f"micro-batches of {_SMALL:,}"


class Result(NamedTuple):
    """All runs of one source in one case, with the values of each metric."""

    case: str
    contender: str
    figures: Mapping[str, Sequence[float]]
    promises: Promises

    def median(self, metric: str) -> float:
        return statistics.median(self.figures[metric])

    def worst(self, metric: str) -> float:
        return (min if metric == RATE else max)(self.figures[metric])

    def as_json(self) -> dict[str, object]:
        result: dict[str, object] = {
            "bench": "spark",
            "case": self.case,
            "contender": self.contender,
        }
        for metric, values in self.figures.items():
            result[metric] = round(self.median(metric), 3)
            if len(values) > 1:
                result |= {f"worst_{metric}": round(self.worst(metric), 3), "rounds": len(values)}
        return result


class Ratio(NamedTuple):
    """A ratio of asyncconsumer and another source by one metric, with its limit."""

    case: str
    against: str
    metric: str
    ratio: float
    limit: float | None

    @property
    def missed(self) -> bool:
        if self.limit is None:
            return False
        return self.ratio < self.limit if self.metric == RATE else self.ratio > self.limit

    def as_json(self) -> dict[str, object]:
        bound = "least" if self.metric == RATE else "most"
        return {
            "bench": "spark",
            "case": self.case,
            "against": self.against,
            "metric": self.metric,
            "ratio": round(self.ratio, 3),
            bound: self.limit,
            "missed": self.missed,
        }


# --- measuring -----------------------------------------------------------------------------------


def in_turn(number: int) -> list[str]:
    """Return the names of the sources. Each round begins with another source.

    The order matters because a query's garbage is collected during the next query.
    """
    names = list(SOURCES)
    first = number % len(names)
    return names[first:] + names[:first]


def warm_up(name: str, work: Callable[[], object]) -> None:
    """Repeat `work` until its CPU time does not decrease for some rounds.

    A JVM gets faster for dozens of queries.
    """
    least, in_vain = math.inf, 0
    for number in range(1, _MOST_WARM_UPS + 1):
        cpu = timed(work, 1).cpu
        note(f"  {name}, warming up, round {number}: {cpu:.1f} s CPU")
        in_vain = in_vain + 1 if cpu > least * _FASTER else 0
        least = min(least, cpu)
        if in_vain == _IN_VAIN:
            return


def measure(queries: Queries, name: str, loads: Sequence[Load], rounds: int) -> list[Result]:
    """Measure one case with three loads: a short and a long one, and one of other records.

    The difference of the first two is the marginal cost of a record.
    """
    run, promises = CASES[name]
    short, long, other = loads
    warm_up(name, lambda: [run(queries, *pair) for pair in product(SOURCES, (short, other))])
    taken: dict[tuple[Load, str], list[Sample]] = {}
    for load in loads:
        for number in range(1, rounds + 1):
            for contender in in_turn(number):
                sample = timed(partial(run, queries, contender, load), load.records)
                taken.setdefault((load, contender), []).append(sample)
                note(
                    f"  {name}, {load.name}, round {number}: {contender}: {sample.seconds:.2f} s, "
                    f"{load.records / sample.seconds:,.0f} records/s, "
                    f"{sample.cpu / load.records * 1e6:.2f} µs CPU"
                )
    results = [
        Result(f"{name}, {load.name}", contender, _figures(samples), promises)
        for (load, contender), samples in taken.items()
    ]
    return results + [
        Result(
            f"{name}, marginal",
            source,
            _marginal(taken[short, source], taken[long, source]),
            promises,
        )
        for source in SOURCES
    ]


def _figures(samples: Sequence[Sample]) -> dict[str, list[float]]:
    return {
        RATE: [sample.records / sample.seconds for sample in samples],
        CPU: [sample.cpu / sample.records * 1e6 for sample in samples],
    }


def _marginal(short: Sequence[Sample], long: Sequence[Sample]) -> dict[str, list[float]]:
    less, more = (Sample(*map(statistics.median, zip(*of, strict=True))) for of in (short, long))
    records = more.records - less.records
    seconds, cpu = max(more.seconds - less.seconds, 1e-3), max(more.cpu - less.cpu, 1e-6)
    return {
        RATE: [records / seconds],
        CPU: [cpu / records * 1e6],
        STARTUP: [max(less.seconds - seconds / records * less.records, 0.0)],
    }


def measure_micro(queries: Queries, load: Load, rounds: int) -> list[Result]:
    """Measure the milliseconds of micro-batches and of their phases, without the first ones."""
    taken: dict[str, list[Phases]] = {source: [] for source in SOURCES}
    for number in range(rounds + 1):
        for contender in in_turn(number):
            batches = queries.stream_to_noop(
                contender, load, maxOffsetsPerTrigger=str(_SMALL), recordsPerTask="20000"
            )
            if number:
                taken[contender] += batches[_FIRST:]
                median = statistics.median(each[_WHOLE] for each in taken[contender])
                note(f"  {MICRO}, round {number}: {contender}: {median:.0f} ms")
    return [
        Result(MICRO, contender, _phases(batches), _FEW) for contender, batches in taken.items()
    ]


def _phases(batches: Sequence[Phases]) -> dict[str, list[float]]:
    return {
        metric: [float(each.get(phase, 0)) for each in batches]
        for metric, phase in {MS: _WHOLE, **_PHASES}.items()
    }


def measure_writes(queries: Queries, load: Load, rounds: int) -> list[Result]:
    """Measure both sinks, which write to one topic in turns.

    The tuned options are those of consumers, so there is no tuned sink.
    """
    taken: dict[str, list[Sample]] = {ASYNCCONSUMER: [], OWN: []}
    for number in range(rounds + _WARM_WRITES):
        for contender in sorted(taken, reverse=number % 2 == 1):
            sample = timed(partial(queries.write, contender, load), load.records)
            if number >= _WARM_WRITES:
                taken[contender].append(sample)
                note(
                    f"  {WRITE}, round {number}: {contender}: "
                    f"{load.records / sample.seconds:,.0f} records/s, "
                    f"{sample.cpu / load.records * 1e6:.2f} µs CPU"
                )
    promises = {OWN: {RATE: 1.0}}
    name = f"{WRITE}, {load.name}"
    return [Result(name, each, _figures(samples), promises) for each, samples in taken.items()]


def ratios(results: Sequence[Result]) -> list[Ratio]:
    own = {result.case: result for result in results if result.contender == ASYNCCONSUMER}
    return [
        Ratio(
            other.case,
            other.contender,
            metric,
            own[other.case].median(metric) / other.median(metric),
            other.promises[other.contender].get(metric),
        )
        for other in results
        if other.contender != ASYNCCONSUMER
        for metric in other.figures
        if metric != STARTUP and metric not in _PHASES
    ]


# --- running and printing ------------------------------------------------------------------------


def show(results: Sequence[Result], actual: Sequence[Ratio]) -> None:
    for case in dict.fromkeys(result.case for result in results):
        of = [result for result in results if result.case == case]
        print(f"\n{case}: the median, and the worst")
        print(f"  {'':20}" + "".join(f"{metric:>26}" for metric in of[0].figures))
        for run in of:
            cells = (f"{run.median(m):,.5g} ({run.worst(m):,.5g})" for m in run.figures)
            print(f"  {run.contender:20}" + "".join(f"{cell:>26}" for cell in cells))
        for ratio in actual:
            if ratio.case == case:
                bound = "at least" if ratio.metric == RATE else "at most"
                requested = "" if ratio.limit is None else f" ({bound} {ratio.limit})"
                missed = ": MISSED" if ratio.missed else ""
                print(f"  {ratio.metric} {ratio.ratio:.2f} of {ratio.against}{requested}{missed}")


async def run(
    rounds: int, scale: float, chosen: Sequence[str], *, as_it_comes: bool
) -> list[Result]:
    loads = [
        Load("2 million x 100 B", int(2_000_000 * scale), plain, partitions=_PARTITIONS),
        Load("10 million x 100 B", int(10_000_000 * scale), plain, partitions=_PARTITIONS),
        Load("500,000 x 1 KB", int(500_000 * scale), kilobyte, partitions=_PARTITIONS),
    ]
    written = Load("1 million x 100 B", int(1_000_000 * scale), plain, partitions=_PARTITIONS)
    small = Load("300,000 x 100 B", 300_000, plain, partitions=_PARTITIONS)
    names = [name for name in CASES if name.startswith(tuple(chosen))]
    jars = await kafka_source_jars()
    async with Kafka() as kafka:
        micro, write = (case.startswith(tuple(chosen)) for case in (MICRO, WRITE))
        await kafka.admin.create_topic(written.topic, partitions=_PARTITIONS)
        for load in [*loads * bool(names), *[small] * micro]:
            note(f"filling {load.name} ...")
            await fill_with_copies(kafka, load)

        def work() -> list[Result]:
            with (
                tempfile.TemporaryDirectory() as folder,
                session(jars, as_it_comes=as_it_comes) as spark,
            ):
                queries = Queries(spark, kafka.bootstrap_servers, Path(folder))
                results = [
                    result for name in names for result in measure(queries, name, loads, rounds)
                ]
                if write:
                    results += measure_writes(queries, written, rounds)
                return results + (measure_micro(queries, small, rounds) if micro else [])

        return await asyncio.to_thread(work)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help="factor of all numbers of records")
    names = ", ".join([*CASES, WRITE, MICRO])
    parser.add_argument("--case", action="append", help=f"beginning of the names of cases: {names}")
    parser.add_argument(
        "--as-it-comes", action="store_true", help="without the settings that the README recommends"
    )
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    scale = options.scale or (0.1 if options.quick else 1.0)
    chosen = options.case or [""]
    results = asyncio.run(run(rounds, scale, chosen, as_it_comes=options.as_it_comes))
    result = ratios(results)
    if not options.json:
        show(results, result)
        return
    python = "as it comes" if options.as_it_comes else "as recommended"
    lines = [each.as_json() for each in results] + [ratio.as_json() for ratio in result]
    print_lines(line | {"python": python} for line in lines)


if __name__ == "__main__":
    main()

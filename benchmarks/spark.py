"""Spark reading Kafka: our source against Spark's own, as it comes and tuned, in the same run.

    python -m benchmarks.spark [--quick] [--json] [--rounds N] [--case NAME ...]

One Spark on two cores, one broker on the same machine, the same topics and the same queries in
interleaved rounds; only the format's name differs. CPU is that of the JVM and of all its Python
processes. "marginal" is what the further records of a longer run cost: start-up is apart.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.spark import THOROUGH, kafka_source_jars, spark_session
from benchmarks._harness import arguments, note
from benchmarks._topics import Load, fill, kilobyte, plain

OURS: Final = "asyncconsumer"
OWN: Final = "Spark's own"
TUNED: Final = "Spark's own, tuned"

_TUNED: Final = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    "kafka.receive.buffer.bytes": str(2**20),
}
SOURCES: Final = {OURS: ("asyncconsumer", {}), OWN: ("kafka", {}), TUNED: ("kafka", _TUNED)}
_SMALL: Final = 10_000  # records of a micro-batch
_PARTITIONS: Final = 4
_WARM_UPS: Final = 2  # rounds: a JVM compiles what it has run for a while


class Sample(NamedTuple):
    """One run of one query."""

    records: int
    seconds: float
    cpu: float


class Result(NamedTuple):
    """All runs of one source in one case."""

    case: str
    who: str
    samples: Sequence[Sample]

    @property
    def rate(self) -> float:
        """Records a second, the median."""
        return statistics.median(s.records / s.seconds for s in self.samples)

    @property
    def cpu(self) -> float:
        """CPU microseconds a record, the median."""
        return statistics.median(s.cpu / s.records * 1e6 for s in self.samples)

    def as_json(self) -> dict[str, object]:
        return {
            "bench": "spark",
            "case": self.case,
            "who": self.who,
            "records_per_s": round(self.rate),
            "worst_records_per_s": round(min(s.records / s.seconds for s in self.samples)),
            "cpu_us_per_record": round(self.cpu, 3),
            "rounds": len(self.samples),
        }


class Queries:
    """One Spark, and the queries that are measured on it."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder
        self._runs = 0

    def options(self, who: str, load: Load) -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self._servers, "subscribe": load.topic}
        return {**named, "startingOffsets": "earliest", **SOURCES[who][1]}

    def batch(self, who: str, load: Load) -> DataFrame:
        source = self._spark.read.format(SOURCES[who][0])
        return source.options(**self.options(who, load)).load()

    def noop(self, who: str, load: Load) -> None:
        self.batch(who, load).write.format("noop").mode("overwrite").save()

    def aggregate(self, who: str, load: Load) -> None:
        (row,) = self.batch(who, load).selectExpr("count(*)", "sum(length(value))").collect()
        assert row[0] == load.records

    def parquet(self, who: str, load: Load) -> None:
        self.batch(who, load).write.mode("overwrite").parquet(str(self._folder / "table"))

    def available_now(self, who: str, load: Load, **options: str) -> list[float]:
        """The seconds that each micro-batch took."""
        self._runs += 1
        source = self._spark.readStream.format(SOURCES[who][0])
        query = (
            source.options(**self.options(who, load), **options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._runs}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        query.stop()
        return [one["durationMs"]["triggerExecution"] / 1000 for one in progress]

    def micro_batches(self, who: str, load: Load) -> list[float]:
        taken = self.available_now(who, load, maxOffsetsPerTrigger=str(_SMALL))
        return taken[3:]  # the first ones start what the others find running


def cpu_seconds() -> float:
    """Of this process, the JVM and its Python workers, those that ended included."""
    found = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            if "kafka.Kafka" in process.cmdline() or "guard" in " ".join(process.cmdline()):
                continue
            found += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return found


def timed(work: Callable[[], object], records: int) -> Sample:
    cpu, began = cpu_seconds(), time.perf_counter()
    work()
    return Sample(records, time.perf_counter() - began, cpu_seconds() - cpu)


@contextmanager
def session(jars: Sequence[Path]) -> Iterator[SparkSession]:
    kept = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    config = {**THOROUGH, **kept, "spark.driver.memory": "2g"}
    with spark_session(config=config, jars=jars) as spark:
        from asyncconsumer.spark import KafkaSource

        spark.dataSource.register(KafkaSource)
        yield spark


def runs_of(queries: Queries) -> dict[str, Callable[[str, Load], object]]:
    return {
        "batch to noop": queries.noop,
        "batch, aggregate": queries.aggregate,
        "batch to parquet": queries.parquet,
        "available-now to noop": queries.available_now,
    }


def measure(
    queries: Queries, loads: Sequence[Load], rounds: int, chosen: Sequence[str]
) -> list[Result]:
    results: list[Result] = []
    for name, run in runs_of(queries).items():
        if not name.startswith(tuple(chosen)):
            continue
        for load in loads:
            samples: dict[str, list[Sample]] = {who: [] for who in SOURCES}
            for number in range(1 - _WARM_UPS, rounds + 1):
                for who in SOURCES:
                    sample = timed(lambda who=who, load=load, run=run: run(who, load), load.records)  # type: ignore[misc]
                    if number > 0:
                        samples[who].append(sample)
                        note(
                            f"  {name}, {load.name}, round {number}: {who}: "
                            f"{load.records / sample.seconds:,.0f} records/s, "
                            f"{sample.cpu / load.records * 1e6:.2f} us CPU"
                        )
            results += [Result(f"{name}, {load.name}", who, of) for who, of in samples.items()]
    return results


def measure_small(queries: Queries, load: Load, rounds: int) -> dict[str, float]:
    """Milliseconds of a micro-batch, the median of all."""
    taken: dict[str, list[float]] = {OURS: [], OWN: []}
    for _ in range(rounds):
        for who, seconds in taken.items():
            seconds += queries.micro_batches(who, load)
    return {who: statistics.median(seconds) * 1000 for who, seconds in taken.items()}


def marginal(results: Sequence[Result], short: Load, long: Load) -> list[Result]:
    """What the records cost that the longer run has more."""
    found = []
    by_case = {(result.case, result.who): result for result in results}
    for (case, who), result in by_case.items():
        if not case.endswith(f", {short.name}"):
            continue
        name = case.removesuffix(f", {short.name}")
        further = by_case[f"{name}, {long.name}", who]
        less, more = (_middle(one.samples) for one in (result, further))
        seconds, cpu = max(more.seconds - less.seconds, 1e-3), max(more.cpu - less.cpu, 1e-6)
        sample = Sample(long.records - short.records, seconds, cpu)
        found.append(Result(f"{name}, marginal", who, [sample]))
        start = less.seconds - seconds / sample.records * short.records
        note(f"  {name}: {who}: start-up {start:.2f} s")
    return found


def _middle(samples: Sequence[Sample]) -> Sample:
    return Sample(
        samples[0].records,
        statistics.median(s.seconds for s in samples),
        statistics.median(s.cpu for s in samples),
    )


def ratios(results: Sequence[Result]) -> list[dict[str, object]]:
    ours = {result.case: result for result in results if result.who == OURS}
    found: list[dict[str, object]] = []
    for other in results:
        mine = ours[other.case]
        if other is mine:
            continue
        line = {"bench": "spark", "case": other.case, "against": other.who}
        faster, cheaper = mine.rate / other.rate, mine.cpu / other.cpu
        found.append({**line, "metric": "records_per_s", "ratio": round(faster, 2)})
        found.append({**line, "metric": "cpu_per_record", "ratio": round(cheaper, 2)})
    return found


def small_lines(taken: Mapping[str, float]) -> list[dict[str, object]]:
    case = {"bench": "spark", "case": f"micro-batches of {_SMALL}"}
    lines: list[dict[str, object]] = [
        {**case, "who": who, "ms_per_batch": round(median, 1)} for who, median in taken.items()
    ]
    ratio = round(taken[OURS] / taken[OWN], 2)
    return [*lines, {**case, "against": OWN, "metric": "ms_per_batch", "ratio": ratio}]


def show(results: Sequence[Result], lines: Sequence[Mapping[str, object]]) -> None:
    for case in dict.fromkeys(result.case for result in results):
        print(f"\n{case}")
        print(f"  {'':24}{'records/s':>13}{'CPU us':>9}")
        for r in (result for result in results if result.case == case):
            print(f"  {r.who:24}{r.rate:>13,.0f}{r.cpu:>9.2f}")
    for line in lines:
        if "ms_per_batch" in line:
            print(f"\n{line['case']}: {line['who']}: {line['ms_per_batch']} ms each")


async def run(
    rounds: int, scale: float, chosen: Sequence[str]
) -> tuple[list[Result], list[dict[str, object]]]:
    short = Load("2 million x 100 B", int(2_000_000 * scale), plain, partitions=_PARTITIONS)
    long = Load("10 million x 100 B", int(10_000_000 * scale), plain, partitions=_PARTITIONS)
    large = Load("200,000 x 1 KB", int(200_000 * scale), kilobyte, partitions=_PARTITIONS)
    small = Load("300,000 x 100 B", int(300_000 * scale), plain, partitions=_PARTITIONS)
    jars = await kafka_source_jars()
    async with Kafka() as kafka:
        for load in (short, long, large, small):
            note(f"filling {load.name} ...")
            await fill(kafka, load)
        with tempfile.TemporaryDirectory() as folder:

            def work() -> tuple[list[Result], list[dict[str, object]]]:
                with session(jars) as spark:
                    queries = Queries(spark, kafka.bootstrap_servers, Path(folder))
                    found = measure(queries, [short, long], rounds, chosen)
                    found += marginal(found, short, long)
                    found += measure(queries, [large], rounds, [c for c in chosen if "batch" in c])
                    few = small_lines(measure_small(queries, small, rounds))
                    return found, ratios(found) + few

            return await asyncio.to_thread(work)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help="of all numbers of records")
    parser.add_argument("--case", action="append", help="only cases whose name begins so")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    scale = options.scale or (0.1 if options.quick else 1.0)
    chosen = options.case or (["batch to noop"] if options.quick else ["batch", "available-now"])
    results, lines = asyncio.run(run(rounds, scale, chosen))
    if not options.json:
        show(results, lines)
        return
    for line in [result.as_json() for result in results] + lines:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

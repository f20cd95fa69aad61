"""The common parts of benchmarks: interleaved rounds, tables and JSON lines."""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

Run = Callable[[], None]
"""A function that does the measured work once."""

CLIENTS: Final = (
    "aiokafka", "confluent-kafka", "faststream", "kafka-python", "pyarrow", "pyspark", "uvloop"
)  # fmt: skip
LEAST_SECONDS: Final = 0.01  # of a round, because a shorter one would be inexact


class Row(NamedTuple):
    """The CPU time of one contender in one case, in nanoseconds per record.

    CPU time does not include other processes.
    """

    case: str
    contender: str
    median: float
    worst: float
    rounds: int

    def as_json(self, bench: str) -> dict[str, object]:
        return {
            "bench": bench,
            "case": self.case,
            "contender": self.contender,
            "metric": "cpu_ns_per_record",
            "median": round(self.median, 1),
            "worst": round(self.worst, 1),
            "records_per_s": round(1e9 / self.median),
            "rounds": self.rounds,
        }


class Ratio(NamedTuple):
    """A ratio of CPU times: how many times less `contender` needs than `against`."""

    case: str
    contender: str
    against: str
    ratio: float

    def as_json(self, bench: str) -> dict[str, object]:
        return {
            "bench": bench,
            "case": f"{self.case}: {self.contender}",
            "against": self.against,
            "metric": "cpu_ns_per_record",
            "ratio": round(self.ratio, 2),
        }


def measure(case: str, contenders: Mapping[str, Run], *, records: int, rounds: int) -> list[Row]:
    """Return a row for each contender. Each runs once in each round.

    So other load on the machine affects all of them alike.
    """
    repeats = {contender: _repeats(run) for contender, run in contenders.items()}
    taken: dict[str, list[float]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender, run in contenders.items():
            taken[contender].append(_nanoseconds(run, repeats[contender]) / records)
    return [
        Row(case, contender, statistics.median(times), max(times), rounds)
        for contender, times in taken.items()
    ]


def _repeats(run: Run) -> int:
    run()  # the first run is slower
    began = time.process_time()
    run()
    return max(1, int(LEAST_SECONDS / max(time.process_time() - began, 1e-6)))


def _nanoseconds(run: Run, repeats: int) -> float:
    began = time.process_time_ns()
    for _ in range(repeats):
        run()
    return (time.process_time_ns() - began) / repeats


def ratios(rows: Iterable[Row], pairs: Iterable[tuple[str, str]]) -> list[Ratio]:
    """Return the ratio of each pair of contenders in each case in which both ran."""
    medians: dict[str, dict[str, float]] = {}
    for row in rows:
        medians.setdefault(row.case, {})[row.contender] = row.median
    return [
        Ratio(case, contender, against, result[against] / result[contender])
        for case, result in medians.items()
        for contender, against in pairs
        if contender in result and against in result
    ]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the command line options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument("--quick", action="store_true", help="run for less than 60 seconds")
    return parser


def note(text: str) -> None:
    """Print progress to standard error, because standard output has only results."""
    print(text, file=sys.stderr)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed clients."""
    installed = {"python": platform.python_version()}
    for client in CLIENTS:
        try:
            installed[client] = version(client)
        except PackageNotFoundError:
            continue
    return installed


def heading() -> str:
    """Return the line above a table."""
    return ", ".join(f"{name} {number}" for name, number in versions().items())


def print_lines(lines: Iterable[Mapping[str, object]]) -> None:
    """Print results as JSON lines, each with the versions of the measured clients."""
    measured_with = versions()
    for line in lines:
        print(json.dumps({**line, "versions": measured_with}))


def show(bench: str, rows: list[Row], results: list[Ratio], *, as_json: bool) -> None:
    """Print the results as JSON lines, or as a table for each case."""
    if as_json:
        print_lines(
            [row.as_json(bench) for row in rows] + [ratio.as_json(bench) for ratio in results]
        )
        return
    print(heading())
    for case in dict.fromkeys(row.case for row in rows):
        print(f"\n{case}")
        print(f"  {'':24}{'ns a record':>12}{'worst':>10}{'records/s':>14}")
        for row in rows:
            if row.case == case:
                rate = f"{1e9 / row.median:,.0f}"
                print(f"  {row.contender:24}{row.median:>12.1f}{row.worst:>10.1f}{rate:>14}")
        for ratio in results:
            if ratio.case == case:
                print(
                    f"  {ratio.contender} needs {ratio.ratio:.1f} times less than {ratio.against}"
                )

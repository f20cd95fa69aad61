"""The measurement of one `bench` run, and its output as a table or as JSON."""

import math
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from asyncconsumer.cli import text

_PERCENTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
# macOS reports bytes, all others report KiB
_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class Stopwatch:
    """A stopwatch for the elapsed time and the CPU time of this process since its creation."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def seconds(self) -> float:
        """Return the elapsed seconds."""
        return time.perf_counter() - self._began

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU time that this process has used."""
        return time.process_time() - self._cpu_began


class BenchReport(NamedTuple):
    """The result of one benchmark. `latencies` are in seconds, and empty if none was measured."""

    records: int
    size: int
    seconds: float
    cpu_seconds: float
    first_record_seconds: float | None = None
    latencies: Sequence[float] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name. The names contain the units.

        A rate of no records is None.
        """
        figures: dict[str, Any] = {
            "records": self.records,
            "mb": self.size / 1e6,
            "seconds": self.seconds,
            "records_per_second": _ratio(self.records, self.seconds),
            "mb_per_second": _ratio(self.size / 1e6, self.seconds),
            "cpu_seconds_per_million": _ratio(self.cpu_seconds, self.records / 1e6),
            "peak_memory_mb": peak_memory() / 1e6,
        }
        if self.first_record_seconds is not None:
            figures["first_record_seconds"] = self.first_record_seconds
        if self.latencies:
            ordered = sorted(self.latencies)
            figures |= {
                f"latency_{name}_ms": percentile(ordered, part) * 1000
                for name, part in _PERCENTILES
            }
        return figures

    def print(self, *, json: bool) -> None:
        """Print the report to standard output."""
        figures = self.as_json()
        if json:
            text.print_json(figures)
            return
        table = text.table("figure", "value", right=("value",))
        for name, value in figures.items():
            table.add_row(text.cell(_LABELS[name]), text.cell(_shown(value)))
        text.console().print(table)


_LABELS: Final = {
    "records": "records",
    "mb": "values, MB",
    "seconds": "seconds",
    "records_per_second": "records/s",
    "mb_per_second": "MB/s",
    "cpu_seconds_per_million": "CPU seconds per million records",
    "peak_memory_mb": "peak memory of this process, MB",
    "first_record_seconds": "seconds until the first record, with connecting",
    **{f"latency_{name}_ms": f"latency {name}, ms" for name, _ in _PERCENTILES},
}


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that is at least as large as the fraction `part` of all values.

    `ordered` has the values in ascending order.
    """
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def _ratio(amount: float, per: float) -> float | None:
    return amount / per if per and amount else None


def _shown(value: float | None) -> str | None:
    if value is None or isinstance(value, int):
        return None if value is None else f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

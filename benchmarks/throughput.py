"""Consuming a topic from its beginning: ours against the peers, all in the same run.

    python -m benchmarks.throughput [--quick] [--json] [--records N] [--rounds N]
                                    [--case NAME ...] [--who NAME ...]

One consumer process at a time, against a real broker on this machine, in interleaved rounds.
CPU counts from after the imports; the Java client's start-up is measured by a run of one record and
taken off. "touched" reads key, value, offset, timestamp and partition of each record.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from asyncconsumer.testing.servers import DEFAULT_KAFKA, Kafka, java, maven
from benchmarks import _ours, _peers
from benchmarks._harness import arguments, note
from benchmarks._topics import Load, fill, json_like, kilobyte, plain

OURS: Final = "async for"
LONG: Final = "10 million"
CASES: Final = {
    "100 B": Load("100 B", 2_000_000, plain),
    LONG: Load(LONG, 10_000_000, plain),
    "zstd": Load("zstd", 2_000_000, json_like, "zstd"),
    "1 KB lz4": Load("1 KB lz4", 400_000, kilobyte, "lz4"),
    "100 partitions": Load("100 partitions", 2_000_000, plain, partitions=100),
    "1000 partitions": Load("1000 partitions", 2_000_000, plain, partitions=1000),
}
MANY: Final = "stream of all partitions"
OF_MANY_PARTITIONS: Final = (MANY, "aiokafka getmany", "confluent consume")
RAW: Final = "raw socket"
JAVA: Final = "Java ConsumerPerformance"
KCAT: Final = "kcat"
FAST: Final = (OURS, RAW, JAVA, KCAT)  # Java's compiler takes millions of records to warm up


class Sample(NamedTuple):
    """One run of one consumer."""

    records: int
    seconds: float
    cpu: float
    rss_mb: float


class Result(NamedTuple):
    """All runs of one consumer in one case."""

    case: str
    who: str
    samples: Sequence[Sample]
    bytes_a_record: float

    @property
    def rate(self) -> float:
        """Records a second, the median."""
        return statistics.median(s.records / s.seconds for s in self.samples)

    @property
    def worst_rate(self) -> float:
        """Records a second, the worst round."""
        return min(s.records / s.seconds for s in self.samples)

    @property
    def cpu(self) -> float:
        """CPU seconds per million records, the median."""
        return statistics.median(s.cpu / s.records * 1e6 for s in self.samples)

    @property
    def rss(self) -> float:
        """Peak memory in MB, the highest."""
        return max(s.rss_mb for s in self.samples)

    def as_json(self) -> dict[str, object]:
        return {
            "bench": "throughput",
            "case": self.case,
            "who": self.who,
            "records_per_s": round(self.rate),
            "worst_records_per_s": round(self.worst_rate),
            "mb_per_s": round(self.rate * self.bytes_a_record / 1e6, 1),
            "cpu_s_per_million": round(self.cpu, 4),
            "peak_rss_mb": round(self.rss, 1),
            "rounds": len(self.samples),
        }


def python_run(module: str, name: str, servers: str, load: Load) -> Sample:
    command = [sys.executable, "-m", module, name, servers, load.topic, str(load.records)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if ran.returncode:
        raise SystemExit(f"{name} failed:\n{ran.stderr}")
    return Sample(**json.loads(ran.stdout.splitlines()[-1]))


def child_run(command: Sequence[str], records: int) -> Sample:
    """Run a program that is not ours to instrument; CPU and memory as the system counted them."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ended, peak = 0, 0.0
    while not ended:
        peak = _peak_mb(process.pid) or peak
        time.sleep(0.01)
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    return Sample(records, seconds, used.ru_utime + used.ru_stime, peak)


def _peak_mb(pid: int) -> float:
    """Not ru_maxrss, which begins with what we had when we forked; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.split("VmHWM:")[1].split()[0]) / 1024 if "VmHWM:" in status else 0.0


class JavaClient:
    """ConsumerPerformance from Kafka's own tools, its start-up taken off."""

    def __init__(self, jars: Sequence[object], servers: str) -> None:
        path = os.pathsep.join(map(str, jars))
        self._command = [str(java.find_java()), "-Xmx1g", "-cp", path]
        self._command.append("org.apache.kafka.tools.ConsumerPerformance")
        self._command += ["--bootstrap-server", servers, "--timeout", "60000"]

    def run(self, load: Load) -> Sample:
        start = self._once(load, 1)
        whole = self._once(load, load.records)
        return whole._replace(
            seconds=max(whole.seconds - start.seconds, 1e-3), cpu=max(whole.cpu - start.cpu, 1e-6)
        )

    def _once(self, load: Load, records: int) -> Sample:
        wanted = ["--topic", load.topic, "--num-records", str(records)]
        return child_run([*self._command, *wanted], records)


def contenders(java_client: JavaClient, servers: str, load: Load) -> dict[str, object]:
    runs: dict[str, object] = {}
    for name in _ours.OURS:
        runs[name] = lambda name=name: python_run("benchmarks._ours", name, servers, load)
    for name in _peers.PEERS:
        runs[name] = lambda name=name: python_run("benchmarks._peers", name, servers, load)
    if load.partitions > 1:  # what reads a single partition has nothing to say here
        return {name: run for name, run in runs.items() if name in OF_MANY_PARTITIONS}
    runs[JAVA] = lambda: java_client.run(load)
    if shutil.which("kcat"):
        command = ["kcat", "-C", "-q", "-b", servers, "-t", load.topic, "-o", "beginning"]
        command += ["-c", str(load.records)]
        runs[KCAT] = lambda: child_run(command, load.records)
    else:
        note("kcat is not installed (Debian: apt-get install kcat): it is left out")
    return {name: run for name, run in runs.items() if load.name != LONG or name.startswith(FAST)}


async def measure(cases: Iterable[Load], rounds: int, who: Sequence[str]) -> list[Result]:
    jars = await maven.class_path(
        f"Kafka tools {DEFAULT_KAFKA}",
        [java.LOGGING, f"org.apache.kafka:kafka-tools:{DEFAULT_KAFKA}"],
    )
    results = []
    async with Kafka() as kafka:
        for load in cases:
            note(f"{load.name}: filling {load.records:,} records ...")
            size = await fill(kafka, load)
            runs = contenders(
                JavaClient(jars, kafka.bootstrap_servers), kafka.bootstrap_servers, load
            )
            runs = {name: run for name, run in runs.items() if name.startswith(tuple(who))}
            samples: dict[str, list[Sample]] = {name: [] for name in runs}
            for number in range(1, rounds + 1):
                for name, run in runs.items():
                    assert callable(run)
                    samples[name].append(await asyncio.to_thread(run))
                    last = samples[name][-1]
                    note(f"  round {number}: {name}: {last.records / last.seconds:,.0f} records/s")
            results += [
                Result(load.name, name, found, size / load.records)
                for name, found in samples.items()
            ]
    return results


def ratios(results: Sequence[Result]) -> list[dict[str, object]]:
    """How many times better ours are than each other, by CPU and by records a second.

    `async for`, or a stream of many partitions, goes by the name of the case, and is compared with
    all. What else is ours is named, and compared with those who are not.
    """
    ours = _ours.OURS.keys() - {RAW}
    found = []
    for mine in results:
        if mine.who not in ours:
            continue
        others = [one for one in results if one.case == mine.case and one is not mine]
        first = mine.who == OURS or (mine.who == MANY and all(one.who != OURS for one in others))
        case = mine.case if first else f"{mine.case}: {mine.who}"
        for other in others:
            if not first and other.who in ours:
                continue
            for metric, ratio in (
                ("cpu_per_record", other.cpu / mine.cpu),
                ("records_per_s", mine.rate / other.rate),
            ):
                line = {"bench": "throughput", "case": case, "against": other.who}
                found.append({**line, "metric": metric, "ratio": round(ratio, 2)})
    return found


def show(results: Sequence[Result]) -> None:
    for case in dict.fromkeys(result.case for result in results):
        print(f"\n{case}")
        print(f"  {'':30}{'records/s':>13}{'worst':>13}{'MB/s':>9}{'CPU s/M':>10}{'RSS MB':>8}")
        for r in (result for result in results if result.case == case):
            print(
                f"  {r.who:30}{r.rate:>13,.0f}{r.worst_rate:>13,.0f}"
                f"{r.rate * r.bytes_a_record / 1e6:>9.1f}{r.cpu:>10.3f}{r.rss:>8.0f}"
            )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--records", type=int, help="for each case, instead of its own number")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--who", action="append", help="only consumers whose name begins so")
    options = parser.parse_args()
    chosen = options.case or (["100 B"] if options.quick else list(CASES))
    records = options.records or (200_000 if options.quick else None)
    loads = [CASES[name] for name in chosen]
    if records:
        loads = [load._replace(records=records) for load in loads]
    rounds = options.rounds or (1 if options.quick else 3)
    results = asyncio.run(measure(loads, rounds, options.who or [""]))
    if not options.json:
        show(results)
        return
    for line in [result.as_json() for result in results] + ratios(results):
        print(json.dumps(line))


if __name__ == "__main__":
    main()

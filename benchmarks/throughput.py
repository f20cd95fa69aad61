"""The cost of consuming a topic from its beginning, for asyncconsumer and other clients.

    python -m benchmarks.throughput [--quick] [--json] [--records N] [--rounds N]
                                    [--case NAME ...] [--contender NAME ...]

One consumer process runs at a time, on a real broker on this machine, in interleaved rounds. CPU
time counts from the end of the imports. From the Java client's figures, those of a run with one
record are subtracted. The Java client and Arrow batches are judged by ten million records, because
a JVM gets faster with time, and because memory is slower when it is first used. "touched" reads the
key, value, offset, timestamp and partition of each record. A ratio says how many times better
asyncconsumer is. If a promised ratio is not reached, the output says so.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from asyncconsumer.testing.servers import DEFAULT_KAFKA, Kafka, java, maven
from benchmarks import _asyncconsumer, _peers, _tls
from benchmarks._child import Figures
from benchmarks._harness import arguments, note
from benchmarks._promises import CPU, MB, RATE, RSS, Case, Found, Promise, measure, only, tell
from benchmarks._topics import Load, fill, fill_with_copies, json_like, kilobyte, plain

ASYNC_FOR, TOUCHED, COPIED, VIEWS = (
    "async for",
    "async for, touched",
    "Arrow, copied",
    "Arrow, views",
)
PURE, RAW, MANY = "async for, pure", "raw socket", "stream of all partitions"
AIOKAFKA, GETMANY = "aiokafka async for", "aiokafka getmany"
CONFLUENT, CONFLUENT_AIO = "confluent consume", "confluent AIO consume"
KAFKA_PYTHON, JAVA, KCAT = "kafka-python", "Java ConsumerPerformance", "kcat"
PLAIN, LONG, ZSTD, LZ4 = "100 B", "10 million x 100 B", "zstd", "1 KB lz4"
PARTITIONS: Final = "partitions"

LOADS: Final = {
    PLAIN: Load(PLAIN, 2_000_000, plain),
    LONG: Load(LONG, 10_000_000, plain),
    ZSTD: Load(ZSTD, 2_000_000, json_like, "zstd"),
    LZ4: Load(LZ4, 400_000, kilobyte, "lz4"),
}
CASES: Final = [*LOADS, PARTITIONS, *_tls.LOADS]
OF_LONG: Final = (ASYNC_FOR, TOUCHED, COPIED, VIEWS, RAW, JAVA)
OF_MANY: Final = (MANY, GETMANY, CONFLUENT)
NUMBERS: Final = (1, 100, 1000)
OF_EACH_NUMBER: Final = 4_000_000
MOST_MB: Final = 60.0


def _times(
    contender: str, against: str, cpu: float | None, rate: float | None = None
) -> list[Promise]:
    return [Promise(contender, against, CPU, cpu), Promise(contender, against, RATE, rate)]


PROMISES: Final[dict[str, list[Promise]]] = {
    PLAIN: [
        *_times(ASYNC_FOR, AIOKAFKA, 25, 15),
        *_times(ASYNC_FOR, GETMANY, 8, 4),
        *_times(ASYNC_FOR, CONFLUENT, 4, 2.5),
        *_times(ASYNC_FOR, CONFLUENT_AIO, 4, 2.5),
        *_times(ASYNC_FOR, KCAT, 1.5, 1.2),
        *_times(ASYNC_FOR, JAVA, None),
        *_times(TOUCHED, f"{AIOKAFKA}, touched", 20, 12),
        *_times(TOUCHED, f"{GETMANY}, touched", 6.4, 3.2),
        *_times(TOUCHED, f"{CONFLUENT}, touched", 3.2, 2),
        *_times(TOUCHED, KCAT, 1.2, 0.96),
        Promise(VIEWS, RAW, CPU),
        Promise(COPIED, RAW, CPU),
        *_times(PURE, KAFKA_PYTHON, 1, 1),
        Promise(ASYNC_FOR, MOST_MB, RSS, 1),
    ],
    LONG: [
        *_times(ASYNC_FOR, JAVA, 1.7, 1.5),
        *_times(TOUCHED, JAVA, 1.36, 1.2),
        Promise(VIEWS, RAW, CPU, 1 / 3),
        Promise(COPIED, RAW, CPU, 1 / 4),
    ],
    ZSTD: [
        *_times(ASYNC_FOR, AIOKAFKA, 18),
        *_times(ASYNC_FOR, CONFLUENT, 3),
        *_times(ASYNC_FOR, CONFLUENT_AIO, 3),
        Promise(ASYNC_FOR, MOST_MB, RSS, 1),
    ],
    LZ4: [
        *_times(ASYNC_FOR, AIOKAFKA, 6),
        *_times(ASYNC_FOR, CONFLUENT, 2),
        *_times(ASYNC_FOR, CONFLUENT_AIO, 2),
        *_times(COPIED, KCAT, 1),
        Promise(ASYNC_FOR, MOST_MB, RSS, 1),
    ],
}


class Sample(NamedTuple):
    """The figures of one run of one consumer. Times are in seconds."""

    records: int
    seconds: float
    cpu: float
    rss_mb: float

    def less(self, start: Self) -> Self:
        """Return the figures minus the time and CPU time of `start`, a run that only starts."""
        seconds, cpu = self.seconds - start.seconds, self.cpu - start.cpu
        return self._replace(seconds=max(seconds, 1e-3), cpu=max(cpu, 1e-6))

    def figures(self, bytes_a_record: float) -> Figures:
        rate = self.records / self.seconds
        return {
            RATE: rate,
            MB: rate * bytes_a_record / 1e6,
            CPU: self.cpu / self.records * 1e6,
            RSS: self.rss_mb,
        }


# --- the consumers -------------------------------------------------------------------------------


def python_run(module: str, name: str, servers: str, load: Load) -> Sample:
    command = [sys.executable, "-m", module, name, servers, load.topic, str(load.records)]
    decoder = {"ASYNCCONSUMER_DECODER": "pure" if name == PURE else "compiled"}
    ran = subprocess.run(
        command, env=os.environ | decoder, capture_output=True, text=True, check=False, timeout=900
    )
    if ran.returncode:
        raise SystemExit(f"{name} failed:\n{ran.stderr}")
    return Sample(**json.loads(ran.stdout.splitlines()[-1]))


def child_run(command: Sequence[str], records: int) -> Sample:
    """Run an external program, and measure its CPU and memory as the system counts them."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ended, peak = 0, 0.0
    while not ended:
        peak = _peak_mb(process.pid) or peak
        time.sleep(0.01)
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {' '.join(command)}")
    return Sample(records, seconds, used.ru_utime + used.ru_stime, peak)


def _peak_mb(pid: int) -> float:
    """Return the peak memory of a process in MB, or 0 if it has ended.

    `ru_maxrss` would include the memory that the parent process had when it forked.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.split("VmHWM:")[1].split()[0]) / 1024 if "VmHWM:" in status else 0.0


class JavaClient:
    """ConsumerPerformance, a tool of Kafka. Its figures do not include the start of Java."""

    def __init__(self, jars: Sequence[object], servers: str) -> None:
        path = os.pathsep.join(map(str, jars))
        self._command = [str(java.find_java()), "-Xmx1g", "-cp", path]
        self._command.append("org.apache.kafka.tools.ConsumerPerformance")
        self._command += ["--bootstrap-server", servers, "--timeout", "60000"]

    def run(self, load: Load) -> Sample:
        start = self._once(load, 1)
        return self._once(load, load.records).less(start)

    def _once(self, load: Load, records: int) -> Sample:
        requested = ["--topic", load.topic, "--num-records", str(records)]
        return child_run([*self._command, *requested], records)


class Consumers:
    """The consumers to compare, all on one broker."""

    def __init__(self, java_client: JavaClient, servers: str) -> None:
        self._java = java_client
        self._servers = servers

    def of(self, load: Load) -> dict[str, Callable[[], Sample]]:
        """Return a function for each consumer, by name, which reads the topic of `load`."""
        runs: dict[str, Callable[[], Sample]] = {}
        for module, names in (
            ("_asyncconsumer", _asyncconsumer.CONSUMERS),
            ("_peers", _peers.PEERS),
        ):
            for name in names:
                runs[name] = partial(python_run, f"benchmarks.{module}", name, self._servers, load)
        runs[JAVA] = partial(self._java.run, load)
        if shutil.which("kcat"):
            command = ["kcat", "-C", "-q", "-b", self._servers, "-t", load.topic]
            command += ["-o", "beginning", "-c", str(load.records)]
            runs[KCAT] = partial(child_run, command, load.records)
        else:
            note("kcat is not installed (Debian: apt-get install kcat): it is left out")
        return runs


# --- the cases -----------------------------------------------------------------------------------


def case_of(
    runs: Iterable[tuple[str, Callable[[], Sample]]],
    bytes_a_record: float,
    promises: Sequence[Promise],
    rounds: int,
) -> Case:
    async def figures(run: Callable[[], Sample]) -> Figures:
        return (await asyncio.to_thread(run)).figures(bytes_a_record)

    return Case({name: partial(figures, run) for name, run in runs}, promises, rounds)


async def by_load(kafka: Kafka, consumers: Consumers, load: Load, rounds: int) -> Case:
    """Compare all consumers on a topic with one partition."""
    note(f"{load.name}: filling {load.records:,} records ...")
    if load.name == LONG:  # not compressed, so copies of a batch are as good
        await fill_with_copies(kafka, load)
        size = load.records * len(load.value(0))
    else:
        size = await fill(kafka, load)
    runs = consumers.of(load)
    runs.pop(MANY)
    if load.name == LONG:
        runs = {name: runs[name] for name in OF_LONG}
    elif load.name != PLAIN:  # slow consumers are measured only with the plain load
        runs = {name: run for name, run in runs.items() if name not in (PURE, KAFKA_PYTHON)}
    return case_of(runs.items(), size / load.records, PROMISES[load.name], rounds)


async def by_partitions(kafka: Kafka, consumers: Consumers, records: int, rounds: int) -> Case:
    """Compare the cost of a record with 1, 100 and 1,000 partitions of the same batches."""
    runs: dict[str, Callable[[], Sample]] = {}
    for number in NUMBERS:
        load = Load(f"{number} partitions", records, plain, partitions=number)
        note(f"{load.name}: filling {load.records:,} records ...")
        await fill_with_copies(kafka, load)
        existing = consumers.of(load)
        runs |= {f"{name}, {number}": existing[name] for name in OF_MANY}
    promises = []
    for number in NUMBERS[1:]:
        many = f"{MANY}, {number}"
        promises.append(Promise(many, f"{MANY}, 1", CPU, 0.9))
        for peer in OF_MANY[1:]:
            promises += _times(many, f"{peer}, {number}", None)
    return case_of(runs.items(), len(plain(0)), promises, rounds)


async def on_one_broker(
    names: Sequence[str], records: int | None, rounds: int, selected: Sequence[str]
) -> Found:
    """Measure the cases without TLS, all on one broker."""
    jars = await maven.class_path(
        f"Kafka tools {DEFAULT_KAFKA}",
        [java.LOGGING, f"org.apache.kafka:kafka-tools:{DEFAULT_KAFKA}"],
    )
    results: Found = []
    async with Kafka() as kafka:
        servers = kafka.bootstrap_servers
        consumers = Consumers(JavaClient(jars, servers), servers)
        for name in names:
            if name == PARTITIONS:
                count = records or OF_EACH_NUMBER
                case = await by_partitions(kafka, consumers, count, rounds)
            else:
                load = LOADS[name]._replace(records=records or LOADS[name].records)
                case = await by_load(kafka, consumers, load, rounds)
            results += await measure(name, only(case, selected))
    return results


async def measure_all(
    names: Sequence[str], records: int | None, rounds: int, selected: Sequence[str]
) -> Found:
    results: Found = []
    if others := [name for name in names if name not in _tls.LOADS]:
        results += await on_one_broker(others, records, rounds, selected)
    for name in _tls.LOADS:
        if name in names:
            results += await _tls.compare(name, records, rounds)
    return results


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--records", type=int, help="for each case, instead of its own number")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--contender", action="append", help="beginning of consumers' names")
    options = parser.parse_args()
    names = options.case or ([PLAIN] if options.quick else CASES)
    records = options.records or (200_000 if options.quick else None)
    rounds = options.rounds or (1 if options.quick else 3)
    results = asyncio.run(measure_all(names, records, rounds, options.contender or [""]))
    tell("throughput", results, as_json=options.json)


if __name__ == "__main__":
    main()

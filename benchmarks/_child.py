"""The run of a measured consumer in a process of its own, which prints its figures as JSON.

`python -m MODULE NAME SERVERS TOPIC OPTIONS` runs the consumer NAME of a module. OPTIONS is a JSON
object with the keyword arguments of the consumer.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

Figures: TypeAlias = dict[str, float]
Consumer: TypeAlias = Callable[..., Awaitable[Figures]]

_WARM_UP_NS: Final = 1_000_000_000
_MOST_SECONDS: Final = 900.0


class Watch:
    """A stopwatch for the wall time and the CPU time of this process since its creation."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self._cpu = time.process_time()

    def figures(self, records: int) -> Figures:
        seconds = time.perf_counter() - self.started
        return {
            "records_per_s": records / seconds,
            "cpu_s_per_million": (time.process_time() - self._cpu) / records * 1e6,
            "peak_rss_mb": memory("VmHWM"),
        }


def memory(which: str) -> float:
    """Return a memory figure of this process in MB: VmHWM is the peak, VmRSS the current size.

    `ru_maxrss` would include the memory that the parent process had when it forked.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{which}:")[1].split()[0]) / 1024


class Delays:
    """The delays of records whose values are the times at which they were sent.

    Records that were sent in the first second after the first arrival do not count, because
    clients are slower at the start.
    """

    def __init__(self) -> None:
        self._from = 0
        self._taken: list[int] = []

    def arrived(self, value: bytes) -> bool:
        """Add the record with this value, which arrives now.

        Return False for the value 0, which marks the last record.
        """
        sent, now = int(value), time.perf_counter_ns()
        if not sent:
            return False
        self._from = self._from or now + _WARM_UP_NS
        if sent >= self._from:
            self._taken.append(now - sent)
        return True

    def figures(self) -> Figures:
        percentiles = statistics.quantiles(self._taken, n=100)
        return {"p50_us": percentiles[49] / 1e3, "p99_us": percentiles[98] / 1e3}


def run_one(consumers: Mapping[str, Consumer]) -> None:
    """Run the consumer that the command line names."""
    name, servers, topic, options = sys.argv[1:]

    async def run() -> None:
        print(json.dumps(await consumers[name](servers, topic, **json.loads(options))))

    if name.endswith("uvloop"):
        import uvloop

        uvloop.run(run())
    else:
        asyncio.run(run())


async def output(arguments: Sequence[str]) -> str:
    """Return the output of a Python program, which must exit with 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            printed, trouble = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{trouble.decode()}")
    return printed.decode()


async def figures(
    module: str, name: str, servers: str, topic: str, **options: float | str
) -> Figures:
    """Run a consumer in a new process, and return its figures. `options` are its arguments."""
    printed = await output(["-m", module, name, servers, topic, json.dumps(options)])
    reported: Figures = json.loads(printed.splitlines()[-1])
    return reported

"""The costs of options that users set, compared with the same work by hand and with peers.

    python -m benchmarks.options [--quick] [--json] [--records N] [--rounds N]
                                 [--contender NAME ...]

There are a real broker, 12 partitions and records of 100 bytes of JSON. Each consumer runs in a
process of its own, in interleaved rounds, as the only member of a group. The figure to compare is
CPU seconds per million records. The limits are those of a machine on which confluent's raw
`consume` loop takes 0.93. They are scaled by the CPU time of this loop in the same run.
"""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import figures
from benchmarks._deserializers import order
from benchmarks._harness import arguments, note
from benchmarks._promises import CPU, Case, Found, Promise, Ratio, Result, measure, tell
from benchmarks._topics import Load, fill_with_copies

LOAD: Final = Load("options", 2_000_000, order, partitions=12)
BASELINE: Final = "confluent consume"
BASELINE_CPU: Final = 0.93
OVERHEAD: Final = 0.25  # allowed above the same work by hand
RAW: Final = "async for"
FAST, MEDIUM, SLOW, SLOWEST = 2_000_000, 1_000_000, 500_000, 20_000
QUICK_SCALE: Final = 0.25


class Contender(NamedTuple):
    """A consumer of a child module, its options and its number of records."""

    module: str
    kind: str
    records: int
    options: dict[str, str | bool]


def _asyncconsumer(kind: str, records: int, **options: str | bool) -> Contender:
    return Contender("benchmarks._options_asyncconsumer", kind, records, options)


def _peer(kind: str, records: int, **options: str | bool) -> Contender:
    return Contender("benchmarks._options_peers", kind, records, options)


def contenders() -> dict[str, Contender]:
    """Return all consumers, by name."""
    result = {RAW: _asyncconsumer(RAW, FAST)}
    for work in ("bytes.decode", "json.loads", "msgspec", "pydantic"):
        result[f"{RAW}, {work}"] = _asyncconsumer(RAW, SLOW, deserializer=work)
        result[f"{RAW}, {work} by hand"] = _asyncconsumer("by hand", MEDIUM, work=work)
    result |= {
        "generator": _asyncconsumer("generator", MEDIUM),
        f"{RAW}, manual commits": _asyncconsumer(RAW, MEDIUM, commit_policy="manual"),
        f"{RAW}, interceptor": _asyncconsumer(RAW, MEDIUM, intercepted=True),
        f"{RAW}, max_records": _asyncconsumer(RAW, MEDIUM, limited=True),
        f"{RAW}, on_poison": _asyncconsumer(RAW, MEDIUM, on_poison="skip"),
        "batches": _asyncconsumer("batches", MEDIUM),
        "batches, bytes.decode": _asyncconsumer("batches", MEDIUM, deserializer="bytes.decode"),
        "batches, json.loads": _asyncconsumer("batches", SLOW, deserializer="json.loads"),
        "getmany": _asyncconsumer("getmany", MEDIUM),
        "chunks": _asyncconsumer("chunks", FAST),
        "handler, key order": _asyncconsumer("handler", SLOW, ordering="key"),
        "handler, partition order": _asyncconsumer("handler", SLOW, ordering="partition"),
        "handler, dict": _asyncconsumer("handler", SLOW, ordering="key", parsed=True),
        BASELINE: _peer(BASELINE, FAST),
    }
    for work in ("json.loads", "msgspec"):
        result[f"{BASELINE}, {work}"] = _peer(BASELINE, MEDIUM, work=work)
    for kind in ("aiokafka async for", "aiokafka getmany"):
        result[kind] = _peer(kind, SLOW)
        for work in ("bytes.decode", "json.loads", "msgspec", "pydantic"):
            result[f"{kind}, {work}"] = _peer(kind, SLOW, deserializer=work)
    result["faststream handler"] = _peer("faststream handler", SLOWEST)
    return result


RATIOS: Final = [
    Promise(RAW, BASELINE, CPU, 3),
    Promise(f"{RAW}, json.loads", f"{BASELINE}, json.loads", CPU, 1.05),
    Promise(f"{RAW}, msgspec", f"{BASELINE}, msgspec", CPU, 1.7),
    Promise("handler, key order", "faststream handler", CPU, 50),
    Promise("handler, partition order", "faststream handler", CPU, 50),
]
LIMITS: Final = {
    RAW: 0.30,
    f"{RAW}, bytes.decode": 0.55,
    f"{RAW}, json.loads": 3.5,
    f"{RAW}, msgspec": 0.8,
    f"{RAW}, manual commits": 0.6,
    f"{RAW}, interceptor": 0.6,
    f"{RAW}, max_records": 0.6,
    f"{RAW}, on_poison": 0.6,
    "batches": 0.25,
    "batches, bytes.decode": 0.45,
    "handler, key order": 1.5,
    "handler, partition order": 0.8,
}


def scaled(results: Sequence[Result]) -> list[Ratio]:
    """Return the ratios of the results to their limits, which are scaled to this machine."""
    cpu = {result.contender: result.median(CPU) for result in results}
    case, scale = results[0].case, cpu[BASELINE] / BASELINE_CPU
    limits = [(contender, limit * scale) for contender, limit in LIMITS.items()]
    limits += [
        (contender, cpu[hand] + OVERHEAD * scale)
        for contender in cpu
        if (hand := f"{contender} by hand") in cpu
    ]
    return [
        Ratio(case, Promise(contender, limit, CPU, 1), limit / cpu[contender])
        for contender, limit in limits
        if contender in cpu
    ]


async def measure_all(records: int, rounds: int, selected: Sequence[str]) -> Found:
    """Measure the baseline, and the consumers whose names begin with one of `selected`."""
    known = contenders()
    names = {BASELINE, *selected}
    beginnings = tuple(text for text in selected if text not in known)
    chosen = {
        name: contender
        for name, contender in known.items()
        if name in names or name.startswith(beginnings)
    }
    scale = records / LOAD.records
    async with Kafka() as kafka:
        note(f"filling {records:,} records ...")
        await fill_with_copies(kafka, LOAD._replace(records=records))
        runs = {}
        for name, contender in chosen.items():
            options: dict[str, str | float] = {"count": int(contender.records * scale)}
            runs[name] = partial(
                figures,
                contender.module,
                contender.kind,
                kafka.bootstrap_servers,
                LOAD.topic,
                **options | contender.options,
            )
        promises = [
            promise for promise in RATIOS if promise.contender in runs and promise.against in runs
        ]
        python = "{}.{}".format(*sys.version_info)
        results = await measure(f"options, Python {python}", Case(runs, promises, rounds))
    return [*results, *scaled([result for result in results if isinstance(result, Result)])]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--records", type=int, help="in the topic; slow consumers read a part")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--contender", action="append", help="a name, or how names begin; repeatable"
    )
    options = parser.parse_args()
    records = options.records or int(LOAD.records * (QUICK_SCALE if options.quick else 1))
    rounds = options.rounds or (1 if options.quick else 3)
    results = asyncio.run(measure_all(records, rounds, options.contender or [""]))
    tell("options", results, as_json=options.json)


if __name__ == "__main__":
    main()

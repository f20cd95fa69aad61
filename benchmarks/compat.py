"""The gain of a service that changes its import from aiokafka to `asyncconsumer.compat.aiokafka`.

    python -m benchmarks.compat [--quick] [--json] [--records N] [--rounds N]

There are a real broker, 3 partitions and records of 100 bytes. Each consumer runs in a process of
its own, in interleaved rounds, as the only member of a group. The figure to compare is CPU seconds
per million records. If a promised factor is not reached, the output says so.
"""

import asyncio
import sys
from functools import partial
from typing import Final

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import figures
from benchmarks._harness import arguments, note
from benchmarks._promises import CPU, Case, Found, Promise, measure, tell
from benchmarks._topics import Load, fill_with_copies, plain

LOAD: Final = Load("compat", 2_000_000, plain, partitions=3)
PROMISED: Final = {"async for": 10.0, "getmany": 5.0, "getone": 1.0}
SHARE: Final = {"asyncconsumer": 0.9, "aiokafka": 0.2}  # part of the records that each reads
QUICK_SCALE: Final = 0.25


async def measure_all(records: int, rounds: int) -> Found:
    """Measure both libraries with each way of reading."""
    async with Kafka() as kafka:
        note(f"filling {records:,} records ...")
        await fill_with_copies(kafka, LOAD._replace(records=records))
        runs = {
            f"{library} {way}": partial(
                figures,
                "benchmarks._compat",
                way,
                kafka.bootstrap_servers,
                LOAD.topic,
                count=int(records * share),
                library=library,
            )
            for way in PROMISED
            for library, share in SHARE.items()
        }
        promises = [
            Promise(f"asyncconsumer {way}", f"aiokafka {way}", CPU, least)
            for way, least in PROMISED.items()
        ]
        python = "{}.{}".format(*sys.version_info)
        return await measure(f"compat, Python {python}", Case(runs, promises, rounds))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--records", type=int, help="in the topic")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    records = options.records or int(LOAD.records * (QUICK_SCALE if options.quick else 1))
    rounds = options.rounds or (1 if options.quick else 5)
    results = asyncio.run(measure_all(records, rounds))
    tell("compat", results, as_json=options.json)


if __name__ == "__main__":
    main()

"""A feeder that writes orders as Parquet files, each order once.

Spark reads the folder as a table or as a file stream. Variables set the options of the consumer.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=lake
python -m examples.spark_feeder
"""

import asyncio
import os
import signal
from contextlib import suppress

from asyncconsumer import Consumer
from asyncconsumer.spark import LandingFolder, SparkFeeder

FOLDER = os.environ.get("FOLDER", "landing/orders")
TOPIC = os.environ.get("TOPIC", "orders")


async def main() -> None:
    """Feed the folder until SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    consumer = Consumer.from_env(TOPIC, auto_offset_reset="earliest", commit_policy="manual")
    async with SparkFeeder(consumer, LandingFolder(FOLDER), max_wait_ms=1000) as feeder:
        await feeder.run()


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        asyncio.run(main())

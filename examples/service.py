"""A service that reads orders in a loop, and ends on SIGTERM.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=orders
python -m examples.service
"""

import asyncio
import os
import signal
import sqlite3
from contextlib import closing

from pydantic import BaseModel

from asyncconsumer import Consumer

STORE = os.environ.get("STORE", "orders.sqlite")
TOPIC = os.environ.get("TOPIC", "orders")


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    customer: str


async def main() -> None:
    """Store orders until SIGTERM."""
    consumer = Consumer.from_env(TOPIC, value_deserializer=Order, auto_offset_reset="earliest")
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        store.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")
        async with consumer:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
            async for record in consumer:  # acknowledges the one before
                order = record.value
                if order is None:  # a record without a value
                    continue
                row = (order.number, order.customer)
                with store:
                    store.execute("INSERT INTO orders VALUES (?, ?)", row)


if __name__ == "__main__":
    asyncio.run(main())

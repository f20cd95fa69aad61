"""Worker processes that store orders, without a web server.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=orders
asyncconsumer run examples.worker:app --workers 2 --port 8080
"""

import os
import sqlite3
from contextlib import closing

from pydantic import BaseModel

from asyncconsumer import ConsumerApp

STORE = os.environ.get("STORE", "orders.sqlite")
TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp.from_env(auto_offset_reset="earliest")

with closing(sqlite3.connect(STORE, timeout=30)) as store:
    store.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    customer: str


@app.handler(TOPIC, concurrency=4)
def store_order(order: Order) -> None:
    """Store an order. A plain function runs in a thread, by default in the order of keys."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store, store:
        store.execute("INSERT INTO orders VALUES (?, ?)", (order.number, order.customer))

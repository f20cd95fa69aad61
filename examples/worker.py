"""Orders kept by worker processes, without a web server.

BROKERS=localhost:9092 asyncconsumer run examples.worker:app --workers 2 --port 8080
"""

import os
import sqlite3
from contextlib import closing

from pydantic import BaseModel

from asyncconsumer import ConsumerApp

STORE = os.environ.get("STORE", "orders.sqlite")
TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp(
    bootstrap_servers=os.environ.get("BROKERS", "localhost:9092"),
    group_id=os.environ.get("GROUP", "orders"),
    auto_offset_reset="earliest",
)

with closing(sqlite3.connect(STORE, timeout=30)) as at_start:
    at_start.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")


class Order(BaseModel):
    """What the topic holds, as JSON."""

    number: int
    customer: str


@app.handler(TOPIC, concurrency=4)
def keep(order: Order) -> None:
    """Called in a thread, as SQLite blocks; by default in the order of the records' keys."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store, store:
        store.execute("INSERT INTO orders VALUES (?, ?)", (order.number, order.customer))

"""A FastAPI service that stores orders and serves them.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=orders
uvicorn examples.fastapi_service:api --workers 2
"""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from asyncconsumer import ConsumerApp

STORE = os.environ.get("STORE", "orders.sqlite")
TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp.from_env(auto_offset_reset="earliest")


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    customer: str


@app.handler(TOPIC, concurrency=4)
def store_order(order: Order) -> None:
    """Store an order. A plain function runs in a thread, by default in the order of keys."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store, store:
        store.execute("INSERT INTO orders VALUES (?, ?)", (order.number, order.customer))


@asynccontextmanager
async def open_store(api: FastAPI) -> AsyncIterator[None]:
    """Create the table before the first record is handled."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        store.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")
    yield


api = FastAPI(lifespan=app.lifespan_with(open_store))
api.mount("/kafka", app.asgi())  # /kafka/live, /ready, /lag, /status and /metrics

Running = Annotated[ConsumerApp, Depends(app.current)]


@api.get("/orders/count")
def count() -> int:
    """Return the number of stored orders."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        return int(store.execute("SELECT COUNT(*) FROM orders").fetchone()[0])


@api.get("/partitions")
async def partitions(running: Running) -> list[int]:
    """Return the partitions that this process reads."""
    return sorted(tp.partition for tp in running.consumer.assignment)

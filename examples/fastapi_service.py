"""A FastAPI service that keeps orders, and answers for them.

BROKERS=localhost:9092 uvicorn examples.fastapi_service:api --workers 2
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

app = ConsumerApp(
    bootstrap_servers=os.environ.get("BROKERS", "localhost:9092"),
    group_id=os.environ.get("GROUP", "orders"),
    auto_offset_reset="earliest",
)


class Order(BaseModel):
    """What the topic holds, as JSON."""

    number: int
    customer: str


@app.handler(TOPIC, concurrency=4)
def keep(order: Order) -> None:
    """Called in a thread, as SQLite blocks; by default in the order of the records' keys."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store, store:
        store.execute("INSERT INTO orders VALUES (?, ?)", (order.number, order.customer))


@asynccontextmanager
async def store_is_there(api: FastAPI) -> AsyncIterator[None]:
    """Opened before the first order comes, and closed after the last one is kept."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        store.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")
    yield


api = FastAPI(lifespan=app.lifespan_with(store_is_there))
api.mount("/kafka", app.asgi())  # /kafka/live, /ready, /lag, /status and /metrics

Running = Annotated[ConsumerApp, Depends(app.current)]


@api.get("/orders/count")
def count() -> int:
    """How many there are."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        return int(store.execute("SELECT COUNT(*) FROM orders").fetchone()[0])


@api.get("/partitions")
async def partitions(running: Running) -> list[int]:
    """Those that this process reads."""
    return sorted(one.partition for one in running.consumer.assignment)

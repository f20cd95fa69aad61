"""An aiohttp service that stores orders and serves health pages.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=orders
python -m examples.aiohttp_service 8080
"""

import os
import sqlite3
import sys
from contextlib import closing

from aiohttp import web
from pydantic import BaseModel

from asyncconsumer import Batch, ConsumerApp
from asyncconsumer.web.aiohttp import health_pages

STORE = os.environ.get("STORE", "orders.sqlite")
TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp.from_env(auto_offset_reset="earliest")


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    customer: str


@app.handler(TOPIC, ordering="partition", batch=Batch(max_records=50, max_wait_ms=20))
def store_orders(orders: list[Order]) -> None:
    """Store a batch of orders in one transaction. A plain function runs in a thread."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store, store:
        rows = [(order.number, order.customer) for order in orders]
        store.executemany("INSERT INTO orders VALUES (?, ?)", rows)


async def partitions(request: web.Request) -> web.Response:
    """Return the partitions that this process reads."""
    running = await app.current()
    return web.json_response(sorted(tp.partition for tp in running.consumer.assignment))


def service() -> web.Application:
    """Create the web app."""
    with closing(sqlite3.connect(STORE, timeout=30)) as store:
        store.execute("CREATE TABLE IF NOT EXISTS orders (number INT, customer TEXT)")
    api = web.Application()
    api.cleanup_ctx.append(app.cleanup_ctx)
    api.add_subapp("/kafka", health_pages(app))  # /kafka/live, /ready, /lag, /status and /metrics
    api.router.add_get("/partitions", partitions)
    return api


if __name__ == "__main__":
    web.run_app(service(), host="127.0.0.1", port=int(sys.argv[1]))

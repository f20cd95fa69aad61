"""A pipeline from one topic to another, in which each order has exactly one bill.

Readers of the bills need `isolation_level="read_committed"`. A worker process is named by
`transactional_id` and its number. Variables set the other options.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=billing
asyncconsumer run examples.exactly_once:app --workers 2 --create-topics
"""

import os

from pydantic import BaseModel

from asyncconsumer import ConsumerApp

TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp.from_env(
    auto_offset_reset="earliest", exactly_once=True, transactional_id=f"{TOPIC}-billing"
)


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    amount: int


class Bill(BaseModel):
    """The JSON value of a result."""

    order: int
    total: int


@app.handler(TOPIC, publish=f"{TOPIC}.billed", concurrency=100)
async def bill(order: Order) -> Bill:
    """Return the bill of an order. It is committed together with the order's offset."""
    return Bill(order=order.number, total=order.amount * 119 // 100)

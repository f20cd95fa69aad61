"""A worker that retries failed orders, and writes those that fail again to a dead letter topic.

Variables set the options of the consumer. docs/configuration.md describes them.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=billing
asyncconsumer run examples.dead_letters:app --workers 2 --create-topics
asyncconsumer dlq list orders.dead
asyncconsumer replay examples.dead_letters:app --yes
"""

import os

from pydantic import BaseModel

from asyncconsumer import ConsumerApp, Retry

TOPIC = os.environ.get("TOPIC", "orders")

app = ConsumerApp.from_env(auto_offset_reset="earliest")


class Order(BaseModel):
    """The JSON value of a record."""

    number: int
    amount: int


@app.handler(TOPIC, retry=Retry(3, backoff_ms=100), dead_letter_topic=f"{TOPIC}.dead")
async def bill(order: Order) -> None:
    """Bill an order. A value that is not an order becomes a dead letter without a retry."""
    if order.amount <= 0:
        raise ValueError("an order must have a positive amount")
    print(f"billed {order.number}", flush=True)

"""The values of `benchmarks.options`, and the deserializers that all consumers use for them."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
import pydantic

Work: TypeAlias = Callable[[Any], object]

_BYTES: Final = 100
_CUSTOMERS: Final = 1000


class OrderStruct(msgspec.Struct):
    """An order as a msgspec struct."""

    order: int
    customer: str
    amount: int
    open: bool
    note: str


class OrderModel(pydantic.BaseModel):
    """An order as a pydantic model."""

    order: int
    customer: str
    amount: int
    open: bool
    note: str


def order(number: int) -> bytes:
    """Return an order as 100 bytes of JSON."""
    amount = number * 2654435761 % 2**32
    head = b'{"order": %d, "customer": "customer-%d", "amount": %d, "open": true, "note": "' % (
        number,
        number % _CUSTOMERS,
        amount,
    )
    return head + b"x" * (_BYTES - len(head) - 2) + b'"}'


OPTIONS: Final[dict[str, Any]] = {
    "bytes.decode": bytes.decode,
    "json.loads": json.loads,
    "msgspec": OrderStruct,
    "pydantic": OrderModel,
}
"""Values of `value_deserializer`, by name."""

WORK: Final[dict[str, Work]] = {
    "bytes.decode": bytes.decode,
    "json.loads": json.loads,
    "msgspec": msgspec.json.Decoder(OrderStruct).decode,
    "pydantic": OrderModel.model_validate_json,
}
"""The same work as a plain function, by name."""

"""One order, as several types of classes."""

from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic

from asyncconsumer import Record

JSON = b'{"id": 7, "item": "tea"}'
PLAIN = {"id": 7, "item": "tea"}


class PydanticOrder(pydantic.BaseModel):
    id: int
    item: str


class MsgspecOrder(msgspec.Struct):
    id: int
    item: str


@dataclass
class DataclassOrder:
    id: int
    item: str


class TypedOrder(TypedDict):
    id: int
    item: str


def record(value: bytes | None = JSON, key: bytes | None = b"k") -> Record:
    return Record("orders", 3, 14, key=key, value=value, headers=[("version", b"1")])

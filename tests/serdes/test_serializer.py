"""Serializers: every form, and errors that do not quote values."""

import dataclasses
import json
from collections.abc import Awaitable
from typing import Any

import msgspec
import pydantic
import pytest

from asyncconsumer.errors import ConfigError, SerializationFailed
from asyncconsumer.serdes import RecordContext, make_serializer

pytestmark = pytest.mark.fast

PLACE = RecordContext("orders", "value", ())


@dataclasses.dataclass
class Order:
    id: int
    note: str | None = None


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="Id")


class Struct(msgspec.Struct):
    id: int


CASES: list[tuple[Any, Any, bytes | None]] = [
    (None, b"raw", b"raw"),
    (None, bytearray(b"raw"), b"raw"),
    (None, "ä", "ä".encode()),
    (None, {"a": "ä"}, '{"a":"ä"}'.encode()),
    (None, [1, 2], b"[1,2]"),
    (None, Order(1), b'{"id":1,"note":null}'),
    (None, Model(Id=2), b'{"Id":2}'),
    (None, Struct(3), b'{"id":3}'),
    (None, None, None),
    (bytes, b"raw", b"raw"),
    (bytes, memoryview(b"raw"), b"raw"),
    (str, "x", b"x"),
    (str | None, "x", b"x"),
    (str, None, None),
    ("json", 7, b"7"),
    (Any, "x", b'"x"'),
    (dict, {}, b"{}"),
    (json, {"a": 1}, b'{"a": 1}'),
    (Order, Order(1, "x"), b'{"id":1,"note":"x"}'),
    (list[Order], [Order(1)], b'[{"id":1,"note":null}]'),
    (Order | None, Order(1), b'{"id":1,"note":null}'),
    (Model, Model(Id=2), b'{"Id":2}'),
    (Struct, Struct(3), b'{"id":3}'),
    (list[Struct], [Struct(3)], b'[{"id":3}]'),
    (lambda value: str(value).encode(), 7, b"7"),
    (lambda value: None, 7, None),
]


@pytest.mark.parametrize(("form", "value", "expected"), CASES)
def test_a_value_is_serialized(form: Any, value: Any, expected: bytes | None) -> None:
    data = make_serializer(form)(value, PLACE)
    assert data == expected
    assert data is None or type(data) is bytes


async def test_a_function_may_be_async() -> None:
    async def write(value: int) -> bytes:
        return b"%d" % value

    data = make_serializer(write)(7, PLACE)
    assert isinstance(data, Awaitable)
    assert await data == b"7"


async def test_a_serializer_object_gets_the_record_context() -> None:
    class Named:
        async def serialize(self, value: str, place: RecordContext) -> bytes:
            return f"{place.topic} {place.part} {value}".encode()

    data = make_serializer(Named())("x", PLACE)
    assert isinstance(data, Awaitable)
    assert await data == b"orders value x"


@pytest.mark.parametrize(
    ("form", "value", "reason"),
    [
        (None, 7, "its type has no obvious encoding"),
        (None, True, "its type has no obvious encoding"),
        (bytes, "secret", "it is not bytes"),
        (str, b"secret", "it is not a str"),
        ("json", {"secret": object()}, "TypeError"),
        (lambda value: value + 1, "secret", "TypeError"),
        (lambda value: "text", "secret", "the serializer returned str, not bytes"),
    ],
)
def test_an_error_names_the_topic_and_not_the_value(form: Any, value: Any, reason: str) -> None:
    with pytest.raises(SerializationFailed) as info:
        make_serializer(form)(value, PLACE)
    assert reason in str(info.value)
    assert f"the value of a record for orders, of type {type(value).__name__}" in str(info.value)
    assert "secret" not in str(info.value)
    assert not info.value.retriable


async def test_an_error_of_an_async_function_is_reported() -> None:
    async def write(value: int) -> Any:
        return value

    async def fail(value: int) -> bytes:
        raise ValueError(value)

    for function, reason in ((write, "returned int"), (fail, "ValueError")):
        data = make_serializer(function)(7, PLACE)
        assert isinstance(data, Awaitable)
        with pytest.raises(SerializationFailed, match=reason):
            await data


@pytest.mark.parametrize("form", [int, float, bool, "text", 7, pytest])
def test_a_form_that_is_no_serializer_is_refused(form: Any) -> None:
    with pytest.raises(ConfigError):
        make_serializer(form)

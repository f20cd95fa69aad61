"""What handlers are called with, and what is refused because it would be something else."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from asyncconsumer import ConfigError, Key, Record, Value
from asyncconsumer.wire.record import Headers
from asyncconsumer.work.arguments import arguments_of

pytestmark = pytest.mark.fast

RECORD = Record("t", 0, 5, key=b"k", value=b'{"id": 7}', headers=[("a", b"1"), ("a", b"2")])


class Order(BaseModel):
    id: int


ORDER = Order(id=7)


def given(function: Callable[..., Any]) -> list[object]:
    return [one.read(RECORD) for one in arguments_of("h", function, batch=False)]


async def stored(store: str, order: Order) -> None: ...


class Shop:
    async def sell(self, order: Order) -> None: ...

    async def __call__(self, order: Order) -> None: ...


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*arguments: Any) -> Any:
        return function(*arguments)

    return inner


@pytest.mark.parametrize(
    "function",
    [functools.partial(stored, "store"), Shop().sell, Shop(), decorated(Shop().sell)],
    ids=["partial", "method", "object", "decorated"],
)
def test_whatever_can_be_called_is_given_what_it_is_annotated_with(
    function: Callable[..., Any],
) -> None:
    assert given(function) == [ORDER]


def test_headers_are_pairs_or_a_dict() -> None:
    def pairs(headers: Headers) -> None: ...
    def by_name(headers: dict[str, bytes], order: Order) -> None: ...

    assert given(pairs) == given(lambda headers: None) == [RECORD.headers]
    assert given(by_name) == [{"a": b"2"}, ORDER]


def test_names_of_a_record_are_not_given_its_value() -> None:
    def topic(order: Order, topic: str) -> None: ...
    def meant(topic: Annotated[Order, Value], offset: Annotated[str, Key]) -> None: ...
    def odd(order: Order, headers: Order) -> None: ...

    for function in (topic, lambda timestamp: None):
        with pytest.raises(ConfigError, match="Take the Record"):
            given(function)
    with pytest.raises(ConfigError, match="headers are pairs"):
        given(odd)
    assert given(meant) == [ORDER, "k"]


def test_a_method_of_no_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="of which object"):
        given(Shop.sell)

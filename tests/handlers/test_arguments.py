"""Arguments of handlers, and declarations that are refused."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from asyncconsumer import ConfigError, ConsumerApp, Depends, Key, Record, Value
from asyncconsumer.handlers.arguments import arguments_of
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import make_deserializer

pytestmark = pytest.mark.fast

RECORD = Record("t", 0, 5, key=b"k", value=b'{"id": 7}', headers=[("a", b"1"), ("a", b"2")])


class Order(BaseModel):
    id: int


ORDER = Order(id=7)


def given(function: Callable[..., Any]) -> list[object]:
    return [argument.read(RECORD) for argument in arguments_of("h", function, batch=False)]


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
def test_any_callable_gets_its_annotated_arguments(
    function: Callable[..., Any],
) -> None:
    assert given(function) == [ORDER]


def test_headers_are_pairs_or_a_dict() -> None:
    def pairs(headers: Headers) -> None: ...
    def by_name(headers: dict[str, bytes], order: Order) -> None: ...

    assert given(pairs) == given(lambda headers: None) == [RECORD.headers]
    assert given(by_name) == [{"a": b"2"}, ORDER]


def test_parameters_named_like_record_fields_do_not_get_the_value() -> None:
    def topic(order: Order, topic: str) -> None: ...
    def meant(topic: Annotated[Order, Value], offset: Annotated[str, Key]) -> None: ...
    def odd(order: Order, headers: Order) -> None: ...

    for function in (topic, lambda timestamp: None):
        with pytest.raises(ConfigError, match="take the Record"):
            given(function)
    with pytest.raises(ConfigError, match="headers are a tuple of pairs"):
        given(odd)
    assert given(meant) == [ORDER, "k"]


def test_an_unbound_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="not bound to an object"):
        given(Shop.sell)


class Inject:
    """A marker of another framework."""

    def __init__(self, dependency: Callable[[], object]) -> None:
        self.dependency = dependency


def get_db() -> str:
    return "db"


Db = Annotated[str, Inject(get_db)]
INJECTED = Inject(get_db)
AVRO = make_deserializer(Order)


def annotated(db: Annotated[str, Inject(get_db)]) -> None: ...
def second(order: Order, db: Db) -> None: ...
def optional(order: Order, db: Db | None) -> None: ...
def doubly(db: Annotated[Db, "of the shop"]) -> None: ...
def with_default(order: Order, db: Db = "") -> None: ...
def by_default(order: Order, db: Any = INJECTED) -> None: ...
def constrained(order: Annotated[Order, Field(description="sold")]) -> None: ...


@pytest.mark.parametrize(
    "function", [annotated, second, optional, doubly, with_default, by_default, constrained]
)
def test_markers_of_other_frameworks_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"parameter '(db|order)'.*is not supported. Use Depends"):
        given(function)


def test_markers_of_other_frameworks_are_refused_in_batches() -> None:
    def inside(orders: list[Order], dbs: list[Db]) -> None: ...
    def environment(dbs: Annotated[list[str], Inject(get_db)]) -> None: ...
    def meant(numbers: list[Annotated[list[int], Value]]) -> None: ...

    for function in (inside, environment):
        with pytest.raises(ConfigError, match="is not supported"):
            arguments_of("h", function, batch=True)
    assert len(arguments_of("h", meant, batch=True)) == 1


def test_annotations_within_the_type_of_the_value_are_kept() -> None:
    def numbers(values: list[Annotated[int, Field(gt=0)]], record: Record) -> None: ...
    def meant(order: Annotated[Order, Inject(get_db), Value]) -> None: ...

    assert len(arguments_of("h", numbers, batch=False)) == 2
    assert given(meant) == [ORDER]


def test_two_parameters_for_the_value_are_refused() -> None:
    def same(order: dict[str, Any], other: dict[str, Any]) -> None: ...
    def bare(order: Order, db) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001
    def beside(order: Annotated[Order, Value], db: str) -> None: ...
    def deserialized(db: str, order: Annotated[Order, AVRO]) -> None: ...
    def three(record: Record, key: str, order: Order, db: str) -> None: ...

    for function in (same, bare, beside, deserialized, three):
        with pytest.raises(ConfigError, match=r"'(other|db)' and '.*' would both get the value"):
            given(function)


async def variadic(order: Order, *others: Order) -> None: ...
async def named(order: Order, **others: Order) -> None: ...
async def keyword_only(*, order: Order) -> None: ...
async def second_keyword_only(order: Order, *, other: Order) -> None: ...
async def quoted_twice(order: "'Order'") -> None: ...  # type: ignore[valid-type]
async def unknown(order: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821
async def ambiguous_number(order: int) -> None: ...
async def nested(order: Order, db: Annotated[str, Depends(get_db)] | None) -> None: ...
async def stored_twice(store: str, order: Order, other: Order) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variadic, "handler variadic, parameter 'others': only positional parameters"),
        (named, "handler named, parameter 'others': only positional parameters"),
        (keyword_only, "parameter 'order': only positional parameters"),
        (second_keyword_only, "parameter 'other': only positional parameters"),
        (quoted_twice, "parameter 'order': 'Order' is not a deserializer"),
        (unknown, "handler unknown: its annotations cannot be read: name 'Missing'"),
        (ambiguous_number, "parameter 'order': int has more than one encoding"),
        (nested, r"parameter 'db': Depends\(get_db\) is inside of another type"),
        (functools.partial(stored_twice, "s"), "handler stored_twice: 'other' and 'order' would"),
        (functools.partial(stored, store="s", order=ORDER), "stored: it has no parameter without"),
        (lambda order=None: order, "<lambda>: it has no parameter without a default"),
        (Shop.sell, "handler Shop.sell, parameter 'self': the method is not bound"),
    ],
)
def test_unsupported_signatures_are_refused(function: Callable[..., Any], reason: str) -> None:
    app = ConsumerApp(bootstrap_servers="k:9092", group_id="g")
    with pytest.raises(ConfigError, match=reason):
        app.handler("orders")(function)


def test_marked_parameters_may_get_the_value_twice() -> None:
    def twice(order: Annotated[Order, Value], text: Annotated[str, Value]) -> None: ...
    def others(key: str, again: Annotated[str, Key], record: Record, headers: Headers) -> None: ...

    assert given(twice) == [ORDER, '{"id": 7}']
    assert given(others) == ["k", "k", RECORD, RECORD.headers]


def test_an_invalid_signature_is_reported_at_the_registration() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="handler second, parameter 'db'"):
        app.handler("t")(second)

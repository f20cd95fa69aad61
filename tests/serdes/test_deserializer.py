"""Deserializers: the accepted kinds and their results."""

import asyncio
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from asyncconsumer import serdes
from asyncconsumer.errors import ConfigError, ConnectFailed, DeserializationFailed
from asyncconsumer.records.decoding import Record
from asyncconsumer.serdes import Deserializer, RecordContext, make_deserializer
from tests.support.orders import (
    JSON,
    PLAIN,
    DataclassOrder,
    MsgspecOrder,
    PydanticOrder,
    TypedOrder,
    record,
)

pytestmark = pytest.mark.fast


class WithPlace:
    def deserialize(self, data: bytes, place: RecordContext) -> tuple[bytes, RecordContext]:
        return data, place


class WithPlaceLater:
    async def deserialize(self, data: bytes, place: RecordContext) -> tuple[bytes, RecordContext]:
        return data, place


async def later(data: bytes) -> str:
    return data.decode()


class CalledLater:
    async def __call__(self, data: bytes) -> str:
        return data.decode()


def make(requested: Any, value: bytes | None) -> Any:
    return make_deserializer(requested).reader("value")(record(value))


async def make_waiting(requested: Any, value: bytes | None) -> Any:
    made = make(requested, value)
    assert isinstance(made, CoroutineType)
    return await made


@pytest.mark.parametrize(
    ("requested", "data", "made"),
    [
        (None, b"x", b"x"),
        (bytes, b"x", b"x"),
        (bytes | None, b"x", b"x"),
        (str, "ä".encode(), "ä"),
        (str | None, "ä".encode(), "ä"),
        ("json", JSON, PLAIN),
        (json, JSON, PLAIN),
        (json.loads, JSON, PLAIN),
        (PydanticOrder, JSON, PydanticOrder(id=7, item="tea")),
        (PydanticOrder | None, JSON, PydanticOrder(id=7, item="tea")),
        (list[PydanticOrder], b"[" + JSON + b"]", [PydanticOrder(id=7, item="tea")]),
        (MsgspecOrder, JSON, MsgspecOrder(7, "tea")),
        (list[MsgspecOrder], b"[" + JSON + b"]", [MsgspecOrder(7, "tea")]),
        (DataclassOrder, JSON, DataclassOrder(7, "tea")),
        (TypedOrder, JSON, PLAIN),
        (dict[str, Any], JSON, PLAIN),
        (dict, JSON, PLAIN),
        (list, b"[1]", [1]),
        (Any, JSON, PLAIN),
        (serdes.msgpack(MsgspecOrder), msgspec.msgpack.encode(PLAIN), MsgspecOrder(7, "tea")),
        (serdes.int16, b"\xff\xfe", -2),
        (serdes.int32, b"\0\0\1\0", 256),
        (serdes.int64, b"\0\0\0\0\0\0\1\0", 256),
        (serdes.float32, b"\x3f\x80\0\0", 1.0),
        (serdes.float64, b"\x3f\xf0\0\0\0\0\0\0", 1.0),
        (serdes.boolean, b"\1", True),
        (serdes.uuid, str(UUID(int=5)).encode(), UUID(int=5)),
        (bytes.upper, b"x", b"X"),
        (partial(int, base=16), b"1f", 31),
        (lambda data: len(data), b"four", 4),
        (WithPlace(), b"x", (b"x", RecordContext("orders", "value", (("version", b"1"),)))),
    ],
)
def test_bytes_are_converted_to_the_requested_type(requested: Any, data: bytes, made: Any) -> None:
    result = make(requested, data)
    assert result == made
    assert type(result) is type(made)
    assert make(requested, None) is None  # a tombstone is unchanged


@pytest.mark.parametrize(
    "requested",
    [later, CalledLater(), partial(later), lambda data: later(data)],
)
async def test_a_deserializer_may_be_asynchronous(requested: Any) -> None:
    assert make_deserializer(requested).waits
    assert await make_waiting(requested, b"x") == "x"
    assert make(requested, None) is None


async def test_a_method_with_a_record_context_may_be_asynchronous() -> None:
    data, place = await make_waiting(WithPlaceLater(), b"x")
    assert (data, place.topic, place.part) == (b"x", "orders", "value")


@pytest.mark.parametrize("requested", [None, bytes, str, "json", PydanticOrder, MsgspecOrder])
def test_built_in_deserializers_are_synchronous(requested: Any) -> None:
    assert not make_deserializer(requested).waits


def test_only_bytes_are_passed_unchanged() -> None:
    assert make_deserializer(bytes).as_it_is
    assert make_deserializer(None).as_it_is
    assert not make_deserializer(str).as_it_is
    assert not make_deserializer(bytes.upper).as_it_is


def test_a_deserializer_is_kept_and_reads_keys_and_values() -> None:
    once = make_deserializer(str)
    assert make_deserializer(once) is once
    assert once.reader("key")(record(key=b"mine")) == "mine"
    assert make_deserializer(WithPlace()).reader("key")(record())[1].part == "key"  # type: ignore[index]
    assert repr(make_deserializer(PydanticOrder)) == "<Deserializer PydanticOrder by pydantic>"


# --- refused values and errors -------------------------------------------------------------------


class Unknown:
    pass


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (5, "5 is not a deserializer. Pass a type"),
        ("jsn", "'jsn' is not a deserializer"),
        (PydanticOrder(id=1, item="x"), "is not a deserializer. Pass a type"),
        (pickle, "the module pickle is not a deserializer. Pass one of its functions"),
        (int, "int has more than one encoding.*int64.*json.loads"),
        (UUID, "UUID has more than one encoding.*serdes.uuid"),
        (Unknown, "pydantic and msgspec cannot create Unknown. Pass a function"),
        (lambda: 5, "cannot be called with bytes alone"),
        (lambda data, place: 5, r"cannot be called with bytes alone.*deserialize\(data, place\)"),
    ],
)
def test_an_invalid_deserializer_is_refused(requested: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_deserializer(requested)


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


def test_optional_packages_are_not_imported_early() -> None:
    program = (
        "import sys, asyncconsumer.serdes as s; "
        "s.make_deserializer(str); s.make_deserializer('json');"
        "print(sorted({'pydantic', 'msgspec', 'confluent_kafka', 'fastavro'} & sys.modules.keys()))"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert completed.stdout.strip() == b"[]"


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "msgspec")
    with pytest.raises(ConfigError, match=r"msgpack\(dict\) needs .* pip install msgspec"):
        serdes.msgpack(dict)
    assert make(DataclassOrder, JSON) == DataclassOrder(7, "tea")  # pydantic is still installed
    without(monkeypatch, "pydantic")
    with pytest.raises(ConfigError, match=r"DataclassOrder needs .* pip install pydantic"):
        make_deserializer(DataclassOrder)
    assert make(str, b"x") == "x"  # built-in types need no package
    assert make("json", JSON) == make(dict, JSON) == PLAIN


def test_msgspec_creates_dataclasses_if_pydantic_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "pydantic")
    assert make(DataclassOrder, JSON) == DataclassOrder(7, "tea")
    with pytest.raises(ConfigError, match="msgspec cannot create Unknown"):
        make_deserializer(Unknown)


def raising(error: BaseException) -> Callable[[bytes], object]:
    def deserialize(data: bytes) -> object:
        raise error

    return deserialize


def raising_later(error: BaseException) -> Callable[[bytes], object]:
    async def deserialize(data: bytes) -> object:
        raise error

    return deserialize


class RaisingWithPlace:
    def deserialize(self, data: bytes, place: RecordContext) -> object:
        raise ValueError("no")


async def failure(requested: Any, bad: Record) -> DeserializationFailed:
    with pytest.raises(DeserializationFailed) as excinfo:  # noqa: PT012 - raised by either call
        made = make_deserializer(requested).reader("value")(bad)
        if isinstance(made, CoroutineType):
            await made
    return excinfo.value


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (raising(ValueError("no")), "deserialized: ValueError\\."),
        (raising_later(ValueError("no")), "deserialized: ValueError\\."),
        (RaisingWithPlace(), "deserialized: ValueError\\."),
        (PydanticOrder, "ValidationError"),
        (MsgspecOrder, "ValidationError|DecodeError"),
        (str, "UnicodeDecodeError"),
        (
            lambda data: make_deserializer(list).reader("value")(record(b"{}")),
            "expected JSON of type list, got dict",
        ),
        (serdes.int64, "int64 has 8 bytes, got 2"),
    ],
)
async def test_an_error_has_the_place_and_the_record(requested: Any, reason: str) -> None:
    bad = record(b"\xff{")
    error = await failure(requested, bad)
    assert error.record is bad
    assert (error.part, error.place, error.retriable) == ("value", "orders[3]@14", False)
    assert isinstance(error.__cause__, Exception)
    assert re.search(reason, str(error))


async def test_json_of_another_kind_is_refused() -> None:
    assert "expected JSON of type list, got dict" in str(await failure(list, record(b"{}")))


class Panic(BaseException):
    """An exception like the panics of packages written in Rust."""


@pytest.mark.parametrize("how", [raising, raising_later])
async def test_a_panic_is_a_failure_and_a_cancellation_is_not(
    how: Callable[[BaseException], Any],
) -> None:
    assert "Panic" in str(await failure(how(Panic("no")), record()))
    with pytest.raises(asyncio.CancelledError):
        await failure(how(asyncio.CancelledError()), record())


@pytest.mark.parametrize("how", [raising, raising_later])
async def test_an_error_is_retriable_if_its_cause_is(how: Callable[[Exception], Any]) -> None:
    error = await failure(how(ConnectFailed("r:1", "refused")), record())
    assert error.retriable
    assert "refused" in str(error)
    twin = pickle.loads(pickle.dumps(error))  # noqa: TID251 - the package's own
    assert (twin.retriable, str(twin)) == (True, str(error))


def test_int64_is_a_deserializer() -> None:
    assert isinstance(serdes.int64, Deserializer)

"""Protobuf values as columns, without a Spark, as documented for Spark's `from_protobuf`."""

import base64
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.protobuf_options import ProtobufOptions
from asyncconsumer.spark.options.source import parse, parse_protobuf
from asyncconsumer.spark.values.columns import ddl
from asyncconsumer.spark.values.decoder import Undecodable
from asyncconsumer.spark.values.protobuf import ProtobufDecoder
from asyncconsumer.spark.values.protobuf_schema import struct_ddl
from tests.support.protobuf_messages import Line, Node, Old, Order, descriptor_set

pytestmark = pytest.mark.fast

LEAST = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "valueFormat": "protobuf"}
LINE = pa.struct([("sku", pa.string()), ("count", pa.int32())])
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("weight", pa.float32()),
        ("paid", pa.bool_()),
        ("data", pa.binary()),
        ("color", pa.string()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("fixed", pa.int32()),
        ("zigzag", pa.int64()),
        ("note", pa.string()),
        ("many", pa.int32()),
        ("line", LINE),
        ("lines", pa.list_(LINE)),
        ("numbers", pa.list_(pa.int32())),
        ("colors", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")),
        ("times", pa.list_(pa.timestamp("us", "UTC"))),
        ("maybe", pa.struct([("value", pa.int32())])),
        ("text", pa.struct([("value", pa.string())])),
        ("huge", pa.struct([("value", pa.int64())])),
        ("stock", pa.map_(pa.string(), pa.int32())),
        ("byid", pa.map_(pa.int32(), LINE)),
    ]
)


def options(name: str = "shop.Order", **reported: Any) -> ProtobufOptions:
    return ProtobufOptions(message_name=name, descriptor_set=descriptor_set(), **reported)


def decoded(kind: Any, *messages: Any, name: str = "shop.Order", **reported: Any) -> list[Any]:
    values = [m if isinstance(m, bytes) else m.SerializeToString() for m in messages]
    column = ProtobufDecoder(kind, options(name, **reported)).decode(pa.array(values, pa.binary()))
    assert column.type == kind
    column.validate(full=True)
    results: list[Any] = column.to_pylist()
    return results


def whole() -> Any:
    order = Order(
        id=-5,
        name="näme",
        price=1.5,
        weight=0.5,
        paid=True,
        data=b"\xff\x00",
        color="GREEN",
        small=2**32 - 1,
        large=2**64 - 2,
        fixed=2**31,
        zigzag=-3,
        note="",
        many=0,
        line=Line(sku="a", count=1),
        lines=[Line(sku="b"), Line(), Line(count=3)],
        numbers=[0, 1, -2],
        colors=["NONE", "RED"],
        stock={"x": 0, "y": 2},
        byid={0: Line(), 7: Line(sku="z")},
    )
    order.at.FromDatetime(datetime(2024, 2, 29, 12, 30, 0, 123456))  # noqa: DTZ001
    order.took.FromTimedelta(timedelta(days=1, microseconds=7))
    order.times.add(seconds=-1, nanos=999_999_999)
    order.maybe.value = 0
    order.text.value = "t"
    order.huge.value = 2**64 - 1
    return order


def test_every_kind_of_field_becomes_a_column() -> None:
    empty, full = decoded(ORDER, Order(), whole())
    full |= {name: sorted(full[name]) for name in ("stock", "byid")}
    assert full == {
        "id": -5,
        "name": "näme",
        "price": 1.5,
        "weight": 0.5,
        "paid": True,
        "data": b"\xff\x00",
        "color": "GREEN",
        "small": -1,  # Java has no unsigned numbers
        "large": -2,
        "fixed": -(2**31),
        "zigzag": -3,
        "note": "",
        "many": 0,
        "line": {"sku": "a", "count": 1},
        "lines": [
            {"sku": "b", "count": None},
            {"sku": None, "count": None},
            {"sku": None, "count": 3},
        ],
        "numbers": [0, 1, -2],
        "colors": ["NONE", "RED"],
        "at": datetime(2024, 2, 29, 12, 30, 0, 123456, UTC),
        "took": timedelta(days=1, microseconds=7),
        "times": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)],
        "maybe": {"value": None},
        "text": {"value": "t"},
        "huge": {"value": -1},
        "stock": [("x", 0), ("y", 2)],
        "byid": [(0, {"sku": None, "count": None}), (7, {"sku": "z", "count": None})],
    }
    lists = ("lines", "numbers", "colors", "times", "stock", "byid")
    assert empty == {field.name: [] if field.name in lists else None for field in ORDER}


def test_emit_defaults_sets_default_values() -> None:
    (empty,) = decoded(ORDER, Order(), emit_defaults=True)
    expected = {
        "id": 0,
        "name": "",
        "price": 0.0,
        "weight": 0.0,
        "paid": False,
        "data": b"",
        "color": "NONE",
        "small": 0,
        "large": 0,
        "fixed": 0,
        "zigzag": 0,
    }
    assert {name: empty[name] for name in expected} == expected
    unset = ("note", "many", "line", "at", "took", "maybe", "text", "huge")
    assert all(empty[name] is None for name in unset)  # null, not a default
    (line,) = decoded(pa.struct([("maybe", pa.int32())]), whole(), emit_defaults=True)
    assert line == {"maybe": 0}


def test_a_query_can_declare_other_types_of_columns() -> None:
    kind = pa.struct(
        [
            ("large", pa.decimal128(20, 0)),
            ("small", pa.int64()),
            ("color", pa.int32()),
            ("maybe", pa.int32()),
            ("text", pa.string()),
            ("huge", pa.decimal128(20, 0)),
            ("at", pa.struct([("nanos", pa.int32())])),
            ("line", pa.struct([("count", pa.int32())])),
        ]
    )
    other = Order(line=Line(sku="only"))
    other.maybe.value = 4
    result, rest, nothing = decoded(kind, whole(), other, Order())
    assert result == {
        "large": Decimal(2**64 - 2),
        "small": 2**32 - 1,
        "color": 2,
        "maybe": None,  # as from_protobuf: zero is the default of the wrapped type
        "text": "t",
        "huge": Decimal(2**64 - 1),
        "at": {"nanos": 123456000},
        "line": {"count": 1},
    }
    assert (rest["maybe"], rest["line"]) == (4, {"count": None})
    assert set(nothing.values()) == {None}


def test_a_negative_zero_is_a_value() -> None:
    kind = pa.struct([("price", pa.float64())])
    minus, zero = decoded(kind, Order(price=-0.0), Order(price=0.0))
    assert math.copysign(1, minus["price"]) == -1
    assert zero["price"] is None


def test_an_unknown_enum_number_becomes_a_name_with_the_number() -> None:
    kind = pa.struct([("color", pa.string())])
    (result,) = decoded(kind, Order(color=9))
    assert result == {"color": "UNKNOWN_ENUM_VALUE_Color_9"}


def test_recursive_messages_become_columns_of_limited_depth() -> None:
    inner = pa.struct([("name", pa.string())])
    kind = pa.struct([("next", pa.struct([("next", inner)])), ("all", pa.list_(inner))])
    node = Node(next=Node(name="b", next=Node(name="c")), all=[Node(name="d")])
    results = decoded(kind, node, Node(), name="shop.Node")
    assert results == [
        {"next": {"next": {"name": "c"}}, "all": [{"name": "d"}]},
        {"next": None, "all": []},
    ]


OLD = pa.struct([("id", pa.int32()), ("size", pa.int32()), ("name", pa.string())])


def test_messages_of_proto2_have_defaults_and_required_fields() -> None:
    results = decoded(OLD, Old(id=0), Old(id=3, size=0, name=""), name="Old")
    assert results == [{"id": 0, "size": 7, "name": None}, {"id": 3, "size": 0, "name": ""}]
    with pytest.raises(Undecodable, match="required fields are missing: id"):
        decoded(OLD, b"\x10\x03", name="Old")
    with pytest.raises(Undecodable, match="another type"):  # as Spark sees an unknown enum here
        decoded(OLD, b"\x08\x01\x20\x09", name="Old")


@pytest.mark.parametrize(
    "bad",
    [
        b"\x08",  # a missing number
        b"\x12\x05abc",  # a truncated string
        b"\x12\x01\xff",  # a string that is not UTF-8
        b"\x0a\x01a",  # a string in a number field
        b"\xff\xff",
        whole().SerializeToString()[:-1],
        Order(name="x").SerializeToString() + b"\x00",
    ],
    ids=["no number", "cut text", "not UTF-8", "text for number", "garbage", "cut", "zero tag"],
)
def test_malformed_messages_are_undecodable(bad: bytes) -> None:
    with pytest.raises(Undecodable):
        decoded(ORDER, Order(id=1), bad)
    assert decoded(pa.struct([("id", pa.int64())]), b"\xc0\x3e\x01\x08\x05") == [{"id": 5}]


def test_a_time_outside_of_sparks_range_is_undecodable() -> None:
    order = Order()
    order.at.seconds = 2**62
    with pytest.raises(Undecodable, match="overflow"):
        decoded(ORDER, order)


def test_the_type_equals_that_of_from_protobuf() -> None:
    assert struct_ddl(options()).replace("`", "") == (
        "struct<id: bigint, name: string, price: double, weight: float, paid: boolean, "
        "data: binary, color: string, small: int, large: bigint, fixed: int, zigzag: bigint, "
        "note: string, many: int, line: struct<sku: string, count: int>, "
        "lines: array<struct<sku: string, count: int>>, numbers: array<int>, "
        "colors: array<string>, at: timestamp_ltz, took: interval day to second, "
        "times: array<timestamp_ltz>, maybe: struct<value: int>, text: struct<value: string>, "
        "huge: struct<value: bigint>, stock: map<string, int>, "
        "byid: map<int, struct<sku: string, count: int>>>"
    )
    other = struct_ddl(options(enums_as_ints=True, upcast_unsigned=True, unwrap=True))
    for part in ("`color`: int", "`colors`: array<int>", "`small`: bigint", "`fixed`: int"):
        assert part in other
    for part in ("`large`: decimal(20, 0)", "`maybe`: int", "`huge`: decimal(20, 0)"):
        assert part in other
    assert ddl(headers=False, value="int").startswith("key binary, value int, topic string")


def test_the_type_of_recursive_messages_needs_a_maximum_depth() -> None:
    with pytest.raises(ConfigError, match=r"shop\.Node\.next is recursive"):
        struct_ddl(options("shop.Node"))
    assert struct_ddl(options("Node", max_depth=1)) == "struct<`name`: string>"
    inner = "struct<`name`: string>"
    assert struct_ddl(options("Node", max_depth=2)) == (
        f"struct<`name`: string, `next`: {inner}, `all`: array<{inner}>>"
    )
    with pytest.raises(ConfigError, match="Nothing has no fields"):
        struct_ddl(options("Nothing"))


def observed(**options: str) -> ProtobufOptions:
    protobuf_options = parse_protobuf({"valueFormat": "Protobuf", **options})
    assert protobuf_options is not None
    return protobuf_options


def test_descriptors_are_read_from_files_options_and_modules(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptor_set())
    text = base64.b64encode(descriptor_set(imports=False)).decode()
    for settings in (
        {"messageName": "Order", "descFilePath": str(file)},
        {"messageName": "shop.Order", "binaryDescriptorSet": text},
        {"messageName": "tests.support.protobuf_messages.Order"},
    ):
        protobuf = parse({**LEAST, **settings}, streaming=True).protobuf
        assert protobuf is not None
        assert struct_ddl(protobuf) == struct_ddl(options())
        decoder = ProtobufDecoder(ORDER, protobuf)
        data = pa.array([whole().SerializeToString()], pa.binary())
        assert decoder.decode(data).to_pylist()[0]["id"] == -5
        assert len(repr(protobuf)) < 300
    inner = observed(messageName="old.Old.Inner", descFilePath=str(file))
    assert struct_ddl(inner) == "struct<`a`: int>"
    assert parse_protobuf({"valueFormat": "json"}) is None


def test_options_have_the_names_of_from_protobuf() -> None:
    settings = {
        "messageName": "Order",
        "binaryDescriptorSet": "",
        "descFilePath": "",
        "Emit.Default.Values": "TRUE",
        "enums.as.ints": "true",
        "upcast.unsigned.ints": "true",
        "unwrap.primitive.wrapper.types": "true",
        "recursive.fields.max.depth": "3",
    }
    settings |= {"binaryDescriptorSet": base64.b64encode(descriptor_set()).decode()}
    assert parse({**LEAST, **settings}, streaming=False).protobuf == options(
        "Order",
        emit_defaults=True,
        enums_as_ints=True,
        upcast_unsigned=True,
        unwrap=True,
        max_depth=3,
    )


NO_SET = base64.b64encode(b"\x0a\xff").decode()
SHOP_SET = base64.b64encode(descriptor_set()).decode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs `messageName`"),
        ({"messageName": "no.such_pb2.Order"}, "cannot be imported"),
        ({"messageName": "Order"}, "cannot be imported"),
        ({"messageName": "pathlib.Path"}, "cannot be imported"),
        (
            {"messageName": "Order", "descFilePath": "/no/such.desc"},
            "`descFilePath` cannot be read",
        ),
        ({"messageName": "Order", "binaryDescriptorSet": "*"}, "must be base64"),
        (
            {"messageName": "Order", "binaryDescriptorSet": NO_SET},
            "descriptor set cannot be parsed",
        ),
        (
            {"messageName": "Odrer", "binaryDescriptorSet": SHOP_SET},
            "is not in the descriptor set, .*shop.Order",
        ),
        ({"messageName": "O", "descFilePath": "/f", "binaryDescriptorSet": "eA=="}, "not both"),
        (
            {
                "messageName": "Node",
                "binaryDescriptorSet": SHOP_SET,
                "recursive.fields.max.depth": "11",
            },
            "at most 10",
        ),
    ],
)
def test_invalid_descriptors_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        struct_ddl(observed(**options))


def test_the_error_for_a_missing_import_names_it() -> None:
    from google.protobuf import descriptor_pb2

    result = descriptor_pb2.FileDescriptorSet()
    result.file.add(name="a.proto", syntax="proto3", dependency=["b.proto"])
    text = base64.b64encode(result.SerializeToString()).decode()
    with pytest.raises(ConfigError, match=r"does not contain b\.proto\. .*--include_imports"):
        struct_ddl(observed(messageName="A", binaryDescriptorSet=text))


@pytest.mark.parametrize(
    ("field", "kind", "message"),
    [
        ("id", pa.string(), r"value\.id is int64 in shop\.Order and cannot become string"),
        ("ident", pa.int64(), r"shop\.Order does not have: ident"),
        ("numbers", pa.int32(), "is repeated int32"),
        ("numbers", pa.list_(pa.string()), r"value\.numbers\[\] is repeated int32"),
        ("stock", pa.list_(pa.int32()), r"value\.stock is repeated shop\.Order\.StockEntry"),
        ("line", pa.string(), r"value\.line is shop\.Line"),
        (
            "line",
            pa.struct([("size", pa.int32())]),
            r"value\.line has fields that shop\.Line does not have: size",
        ),
        ("maybe", pa.string(), r"value\.maybe is int32 in google\.protobuf\.Int32Value"),
        ("took", pa.timestamp("us", "UTC"), r"google\.protobuf\.Duration"),
    ],
)
def test_a_type_that_a_field_cannot_have_is_refused(field: str, kind: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProtobufDecoder(pa.struct([(field, kind)]), options())

"""The decoding of valid and invalid responses."""

import struct
from contextlib import suppress

import pytest
from aiozk import protocol
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.errors import BadVersion, TransactionFailed
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.requests import Check, Create, Stat, ZnodeOperation, read_children

pytestmark = pytest.mark.fast


def children(*names: str) -> bytes:
    texts = [name.encode() for name in names]
    return struct.pack(">i", len(texts)) + b"".join(
        struct.pack(">i", len(text)) + text for text in texts
    )


@given(st.lists(st.text()))
def test_children_are_decoded_as_by_aiozk(names: list[str]) -> None:
    data = children(*names)
    assert read_children(memoryview(data)) == names
    assert protocol.GetChildrenResponse.deserialize(data).children == names


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 1, 5) + b"four",
        struct.pack(">ii", 1, -1),
        struct.pack(">ii", 1, -(2**31)),
        struct.pack(">ii", 1, 1) + b"\xff",
        children("a", "b")[:-1],
    ],
    ids=range(8),
)
def test_invalid_children_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        read_children(memoryview(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_raise_a_typed_error(data: bytes) -> None:
    both = requests.transaction([requests.check("/a", 1), requests.set_data("/b", None)])
    for call in (
        requests.get("/"),
        requests.exists("/"),
        requests.children("/"),
        requests.sync("/"),
        both,
    ):
        with suppress(ValueError, struct.error, TransactionFailed):
            call.read(memoryview(data))


def test_a_stat_is_decoded_as_by_aiozk() -> None:
    data = struct.pack(">qqqqiiiqiiq", *range(1, 12))
    theirs = protocol.ExistsResponse.deserialize(data).stat
    tested = requests.exists("/").read(memoryview(data))
    assert tested == Stat(*range(1, 12))
    assert tested.ephemeral_owner == theirs.ephemeral_owner
    assert tested.children_count == theirs.num_children


def test_the_failed_operation_is_reported() -> None:
    operations: list[ZnodeOperation] = [Create("/a"), Check("/b", 3), Create("/c")]
    parts = [
        requests.operation(operation, operation.path, requests.WORLD) for operation in operations
    ]
    data = b"".join(struct.pack(">i?ii", -1, False, code, code) for code in (0, -103, -2))
    with pytest.raises(TransactionFailed, match="operation 1 on /b") as caught:
        requests.transaction(parts).read(memoryview(data))
    assert isinstance(caught.value.__cause__, BadVersion)
    assert requests.transaction([]).path == "/"

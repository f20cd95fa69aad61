"""Tagged fields and flexible headers, with each way in which aiokafka declares its own."""

import struct
import subprocess
import sys
from io import BytesIO

import pytest

from asyncconsumer.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from asyncconsumer.protocol.flexible import TaggedFields, is_flexible

pytestmark = pytest.mark.fast

# removes the names that aiokafka 0.15 no longer has
LATER_AIOKAFKA = """
import aiokafka.protocol.admin, aiokafka.protocol.coordination, aiokafka.protocol.metadata
from aiokafka.protocol import api, types
if hasattr(types, "TaggedFields"):
    del types.TaggedFields
    del api.RequestStruct.FLEXIBLE_VERSION
    types.Schema.has_tagged_fields = False
"""
PROGRAM = """
import asyncconsumer
import asyncconsumer.testing.servers
from aiokafka.protocol.metadata import MetadataRequest_v1
from asyncconsumer.testing.servers.messages import AlterUserScramCredentialsRequest
from asyncconsumer.protocol.flexible import is_flexible
from asyncconsumer.protocol.consumer_group import ConsumerGroupHeartbeatRequest

request = ConsumerGroupHeartbeatRequest("g", "m", 0).prepare({68: (0, 0)})
header = request.build_request_header(correlation_id=5, client_id="me").encode()
print((header + request.encode()).hex())
print(request.parse_response_header(b"\\0\\0\\0\\5\\0").correlation_id)
print(is_flexible(request), is_flexible(MetadataRequest_v1([])))
print(is_flexible(AlterUserScramCredentialsRequest("u", "p").prepare({51: (0, 0)})))
"""


def printed(program: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return ran.stdout.splitlines()


def test_requests_do_not_depend_on_names_that_aiokafka_removed() -> None:
    lines = printed(LATER_AIOKAFKA + PROGRAM)
    assert lines == printed(PROGRAM)
    request = bytes.fromhex(lines[0])
    assert request.startswith(b"\0\x44\0\0\0\0\0\5\0\2me\0\2g\2m")
    assert lines[1:] == ["5", "True False", "True"]


def test_a_request_without_a_declaration_is_flexible_by_its_schema() -> None:
    class Schema:
        has_tagged_fields = True

    class Later:
        SCHEMA = Schema()

    assert is_flexible(Later())
    assert is_flexible(ConsumerGroupHeartbeatRequest("g", "m", 0).prepare({68: (0, 0)}))


@pytest.mark.parametrize(
    ("fields", "encoded"),
    [({}, b"\0"), ({0: b"ab"}, b"\1\0\2ab"), ({7: b"", 1: b"x"}, b"\2\1\1x\7\0")],
)
def test_tagged_fields_are_in_the_order_of_their_tags(
    fields: dict[int, bytes], encoded: bytes
) -> None:
    assert TaggedFields.encode(fields) == encoded
    assert TaggedFields.decode(BytesIO(encoded)) == fields


@pytest.mark.parametrize("encoded", [b"\2\1\1x\1\0", b"\2\5\0\4\0", b"\1\1\5abc", b"\3\1\1x"])
def test_unordered_or_truncated_tagged_fields_are_refused(encoded: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        TaggedFields.decode(BytesIO(encoded))

"""Administrative requests that aiokafka lacks, in its own style."""

import hashlib
import secrets
from typing import Any, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

_TIMEOUT_MS: Final = 30_000
_SCRAM_ITERATIONS: Final = 4096
_SCRAM_SHA_512: Final = 2


class ElectLeadersResponse_v1(Response):  # noqa: N801 - aiokafka's way to name versions
    """Answer to ElectLeadersRequest_v1."""

    API_KEY = 43
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "results",
            Array(
                ("topic", String("utf-8")),
                ("partitions", Array(("id", Int32), ("code", Int16), ("message", String("utf-8")))),
            ),
        ),
    )


class ElectLeadersRequest_v1(RequestStruct):  # noqa: N801
    """Make the first of a partition's replicas its leader."""

    API_KEY = 43
    API_VERSION = 1
    RESPONSE_TYPE = ElectLeadersResponse_v1
    SCHEMA = Schema(
        ("election_type", Int8),
        ("partitions", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )


class ElectLeadersRequest(Request[ElectLeadersRequest_v1]):
    """Elect the preferred leader of one partition."""

    API_KEY = 43

    def __init__(self, topic: str, partition: int) -> None:
        self._wanted = [(topic, [partition])]

    def build(self, request_struct_class: type[ElectLeadersRequest_v1]) -> ElectLeadersRequest_v1:
        """The request in the version agreed on."""
        return request_struct_class(0, self._wanted, _TIMEOUT_MS)


class AlterUserScramCredentialsResponse_v0(Response):  # noqa: N801
    """Answer to AlterUserScramCredentialsRequest_v0."""

    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class AlterUserScramCredentialsRequest_v0(RequestStruct):  # noqa: N801
    """Set the salted passwords of users."""

    FLEXIBLE_VERSION = True
    API_KEY = 51
    API_VERSION = 0
    RESPONSE_TYPE = AlterUserScramCredentialsResponse_v0
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(
                ("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)
            ),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsRequest_v0]):
    """Set one user's password for SCRAM-SHA-512."""

    API_KEY = 51

    def __init__(self, user: str, password: str) -> None:
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _SCRAM_ITERATIONS)
        self._upsertion: tuple[Any, ...] = (
            user,
            _SCRAM_SHA_512,
            _SCRAM_ITERATIONS,
            salt,
            salted,
            {},
        )

    def build(
        self, request_struct_class: type[AlterUserScramCredentialsRequest_v0]
    ) -> AlterUserScramCredentialsRequest_v0:
        """The request in the version agreed on."""
        return request_struct_class([], [self._upsertion], {})

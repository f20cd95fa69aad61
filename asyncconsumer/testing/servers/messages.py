"""Administrative requests that aiokafka lacks or declares differently between versions."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final

from asyncconsumer.aiokafka_parts import Int8, Int16, Int32
from asyncconsumer.protocol.schema import Api, ArrayOf, BytesField, Field, TableRequest, Text

_TIMEOUT_MS: Final = 30_000
_SCRAM_ITERATIONS: Final = 4096
_SCRAM_SHA_512: Final = 2

_ELECT_LEADERS: Final = Api(
    name="ElectLeaders",
    key=43,
    versions=range(1, 2),
    flexible_since=2,
    request=(
        Field("election_type", Int8),
        Field("partitions", ArrayOf(Field("topic", Text), Field("partitions", ArrayOf(Int32)))),
        Field("timeout_ms", Int32),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field(
            "results",
            ArrayOf(
                Field("topic", Text),
                Field(
                    "partitions",
                    ArrayOf(Field("id", Int32), Field("code", Int16), Field("message", Text)),
                ),
            ),
        ),
    ),
)

_ALTER_PARTITION_REASSIGNMENTS: Final = Api(
    name="AlterPartitionReassignments",
    key=45,
    versions=range(1),
    flexible_since=0,
    request=(
        Field("timeout_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(Field("partition_index", Int32), Field("replicas", ArrayOf(Int32))),
                ),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("error_message", Text),
        Field(
            "responses",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition_index", Int32),
                        Field("error_code", Int16),
                        Field("error_message", Text),
                    ),
                ),
            ),
        ),
    ),
)

_ALTER_USER_SCRAM_CREDENTIALS: Final = Api(
    name="AlterUserScramCredentials",
    key=51,
    versions=range(1),
    flexible_since=0,
    request=(
        Field("deletions", ArrayOf(Field("name", Text), Field("mechanism", Int8))),
        Field(
            "upsertions",
            ArrayOf(
                Field("name", Text),
                Field("mechanism", Int8),
                Field("iterations", Int32),
                Field("salt", BytesField),
                Field("salted_password", BytesField),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "results",
            ArrayOf(Field("user", Text), Field("error_code", Int16), Field("error_message", Text)),
        ),
    ),
)


class ElectLeadersRequest(TableRequest, api=_ELECT_LEADERS):
    """A request that makes the first replica of a partition its leader."""

    def __init__(self, topic: str, partition: int) -> None:
        rows = [{"topic": topic, "partitions": [partition]}]
        super().__init__({"election_type": 0, "partitions": rows, "timeout_ms": _TIMEOUT_MS})


class AlterPartitionReassignmentsRequest(TableRequest, api=_ALTER_PARTITION_REASSIGNMENTS):
    """A request that sets the replicas of a partition. The first one is the preferred leader."""

    def __init__(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        rows = [{"partition_index": partition, "replicas": list(replicas)}]
        topics = [{"name": topic, "partitions": rows}]
        super().__init__({"timeout_ms": _TIMEOUT_MS, "topics": topics})


class AlterUserScramCredentialsRequest(TableRequest, api=_ALTER_USER_SCRAM_CREDENTIALS):
    """A request that sets the SCRAM-SHA-512 password of a user."""

    def __init__(self, user: str, password: str) -> None:
        salt = secrets.token_bytes(16)
        upsertion = {
            "name": user,
            "mechanism": _SCRAM_SHA_512,
            "iterations": _SCRAM_ITERATIONS,
            "salt": salt,
            "salted_password": hashlib.pbkdf2_hmac(
                "sha512", password.encode(), salt, _SCRAM_ITERATIONS
            ),
        }
        super().__init__({"deletions": [], "upsertions": [upsertion]})

"""The names of aiokafka that this package uses."""

from aiokafka import TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, ScramAuthenticator, create_conn
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.admin import (
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.struct import Struct
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    UnsignedVarInt32,
)
from aiokafka.record.util import calc_crc32c
from aiokafka.util import commit_structure_validate

__all__ = [
    "AIOKafkaConnection",
    "AbstractTokenProvider",
    "AbstractType",
    "Array",
    "Boolean",
    "Bytes",
    "CompactArray",
    "CompactBytes",
    "CompactString",
    "CreateAclsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteAclsRequest",
    "DeleteTopicsRequest",
    "DescribeConfigsRequest",
    "FindCoordinatorRequest",
    "IncompatibleBrokerVersion",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "KafkaError",
    "MetadataRequest",
    "OAuthAuthenticator",
    "OffsetRequest",
    "Request",
    "RequestStruct",
    "Response",
    "SaslAuthenticateRequest",
    "SaslHandShakeRequest",
    "Schema",
    "ScramAuthenticator",
    "String",
    "Struct",
    "TopicPartition",
    "UnsignedVarInt32",
    "calc_crc32c",
    "commit_structure_validate",
    "create_conn",
    "for_code",
]

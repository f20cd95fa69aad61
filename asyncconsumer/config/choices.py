"""The allowed values of enumerated options, as types for type checkers."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal[
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
]
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
AutoOffsetReset: TypeAlias = Literal["earliest", "latest", "none"]
ClassicOffsetReset: TypeAlias = Literal["smallest", "largest", "earliest", "latest"]
GroupProtocol: TypeAlias = Literal["classic", "consumer", "zookeeper"]
CommitPolicy: TypeAlias = Literal["auto", "manual", "at_most_once"]
PoisonAction: TypeAlias = Literal["raise", "skip", "dead_letter"]
OffsetsStorage: TypeAlias = Literal["zookeeper", "kafka"]
CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
AssignorName: TypeAlias = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
ZooKeeperAssignorName: TypeAlias = Literal[
    "range", "roundrobin", "roundrobin-0.10", "roundrobin-0.8", "sticky"
]

SECURITY_PROTOCOLS: Final[tuple[str, ...]] = get_args(SecurityProtocol)
SASL_MECHANISMS: Final[tuple[str, ...]] = get_args(SaslMechanism)
ISOLATION_LEVELS: Final[tuple[str, ...]] = get_args(IsolationLevel)
OFFSET_RESETS: Final[tuple[str, ...]] = get_args(AutoOffsetReset)
CLASSIC_OFFSET_RESETS: Final[tuple[str, ...]] = get_args(ClassicOffsetReset)
GROUP_PROTOCOLS: Final[tuple[str, ...]] = get_args(GroupProtocol)
COMMIT_POLICIES: Final[tuple[str, ...]] = get_args(CommitPolicy)
POISON_ACTIONS: Final[tuple[str, ...]] = get_args(PoisonAction)
COMPRESSION_TYPES: Final[tuple[str, ...]] = get_args(CompressionType)
OFFSETS_STORAGES: Final[tuple[str, ...]] = get_args(OffsetsStorage)
ASSIGNOR_NAMES: Final[tuple[str, ...]] = get_args(AssignorName)
ZOOKEEPER_ASSIGNOR_NAMES: Final[tuple[str, ...]] = get_args(ZooKeeperAssignorName)


class CustomAssignor(Protocol):
    """The interface of an assignor that the application passes.

    Its base class is `asyncconsumer.group.assignors.Assignor`.
    """

    name: str

    @property
    def assign(self) -> Callable[..., Any]:
        """The method that computes the assignment of a group."""


AssignmentStrategy: TypeAlias = (
    AssignorName | ZooKeeperAssignorName | CustomAssignor | type[CustomAssignor]
)
AssignmentStrategies: TypeAlias = AssignmentStrategy | Sequence[AssignmentStrategy]
"""An assignor or several in order of preference, each by name, class or instance."""

"""The error codes of brokers, each as an error class that says what it means for a consumer."""

from __future__ import annotations

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class BrokerError(ConsumerError):
    """A broker answered a request with an error code. ``about`` is the subject of the request."""

    code: int = -1
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False) -> None:
        if code is not None:
            cls.code, cls.retriable = code, retriable
            BrokerError.by_code[code] = cls

    def __init__(self, about: str) -> None:
        super().__init__(about)
        self.about = about

    def __str__(self) -> str:
        meaning = (type(self).__doc__ or type(self).__name__).splitlines()[0]
        return f"{self.about}: {meaning} (broker error {self.code})"

    @classmethod
    def from_code(cls, code: int, about: str) -> BrokerError:
        """Return the error for an error code. The error for an unknown code is not retriable."""
        if known := cls.by_code.get(code):
            return known(about)
        error = BrokerError(about)
        error.code = code
        return error


class AccessDenied(BrokerError):
    """The cluster's ACLs forbid the request. Grant access to the user of this client."""


class UnknownServerError(BrokerError, code=-1):
    """The broker failed unexpectedly. See its log for the cause."""


class OffsetOutOfRange(BrokerError, code=1):
    """The partition's log does not have the offset, or no longer has it."""


class CorruptMessage(BrokerError, code=2, retriable=True):
    """The broker found corrupt records, on its disk or in a request."""


class UnknownTopicOrPartition(BrokerError, code=3, retriable=True):
    """The broker does not know the topic or partition, which may be deleted or very new."""


class LeaderNotAvailable(BrokerError, code=5, retriable=True):
    """The partition has no leader at the moment."""


class NotLeader(BrokerError, code=6, retriable=True):
    """The broker no longer leads the partition. Refresh the metadata."""


class BrokerTimedOut(BrokerError, code=7, retriable=True):
    """The request timed out on the broker."""


class BrokerNotAvailable(BrokerError, code=8, retriable=True):
    """A broker that the request needs is down."""


class ReplicaNotAvailable(BrokerError, code=9, retriable=True):
    """The replica does not have the partition yet."""


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The metadata of a committed offset is longer than offset.metadata.max.bytes allows."""


class NetworkException(BrokerError, code=13, retriable=True):
    """The broker lost its connection to another broker during the request."""


class CoordinatorLoading(BrokerError, code=14, retriable=True):
    """The group's coordinator is still loading the state of the group."""


class CoordinatorNotAvailable(BrokerError, code=15, retriable=True):
    """The group has no coordinator at the moment."""


class NotCoordinator(BrokerError, code=16, retriable=True):
    """The group's coordinator has moved to another broker. Find it again."""


class InvalidTopic(BrokerError, code=17):
    """The topic name is not valid.

    A name may have up to 249 letters, digits, dots, dashes and underscores.
    """


class IllegalGeneration(BrokerError, code=22):
    """The generation of this member is over, so its partitions may have other owners (fenced)."""


class InconsistentGroupProtocol(BrokerError, code=23):
    """The members share no `partition_assignment_strategy`. Add one that the other members have."""


class InvalidGroupId(BrokerError, code=24):
    """The `group_id` is not valid."""


class UnknownMemberId(BrokerError, code=25):
    """The coordinator does not know this member (fenced). Join again without a member id."""


class InvalidSessionTimeout(BrokerError, code=26):
    """`session_timeout_ms` is outside the broker's limits (group.*.session.timeout.ms)."""


class RebalanceInProgress(BrokerError, code=27, retriable=True):
    """The group is rebalancing. Join again."""


class InvalidCommitOffsetSize(BrokerError, code=28):
    """The commit is larger than the broker allows."""


class TopicAccessDenied(AccessDenied, code=29):
    """The cluster's ACLs forbid the request. Grant READ and DESCRIBE on the topic."""


class GroupAccessDenied(AccessDenied, code=30):
    """The cluster's ACLs forbid the request. Grant READ on the group."""


class ClusterAccessDenied(AccessDenied, code=31):
    """The cluster's ACLs forbid the request. Grant the operation on the cluster."""


class UnsupportedVersion(BrokerError, code=35):
    """The broker does not support this version of the request."""


class InvalidRequest(BrokerError, code=42):
    """The broker could not interpret the request, which is a bug of this client."""


class UnsupportedForMessageFormat(BrokerError, code=43):
    """The partition's records are in a format without timestamps, which the request needs."""


class TransactionalIdAccessDenied(AccessDenied, code=53):
    """The cluster's ACLs forbid the request. Grant WRITE on the transactional id."""


class SecurityDisabled(BrokerError, code=54):
    """The cluster has no authorizer, so there are no ACLs to read or change."""


class KafkaStorageError(BrokerError, code=56, retriable=True):
    """A disk of the broker failed. Another replica will become the leader."""


class GroupIdNotFound(BrokerError, code=69):
    """The group does not exist."""


class FetchSessionNotFound(BrokerError, code=70, retriable=True):
    """The broker has dropped the fetch session. Start a new one with a full fetch."""


class InvalidFetchSessionEpoch(BrokerError, code=71, retriable=True):
    """The epoch of the fetch session is wrong. Start a new session with a full fetch."""


class FencedLeaderEpoch(BrokerError, code=74, retriable=True):
    """The leader epoch in the request is older than the broker's. Refresh the metadata."""


class UnknownLeaderEpoch(BrokerError, code=75, retriable=True):
    """The leader epoch in the request is newer than the broker's.

    Retry until the broker catches up.
    """


class UnsupportedCompression(BrokerError, code=76):
    """The broker does not support the records' compression type in this version of the request."""


class OffsetNotAvailable(BrokerError, code=78, retriable=True):
    """The new leader does not know its high watermark yet."""


class MemberIdRequired(BrokerError, code=79, retriable=True):
    """The member must join again with the member id in the response."""


class GroupMaxSizeReached(BrokerError, code=81):
    """The group has as many members as group.max.size allows."""


class FencedInstanceId(BrokerError, code=82):
    """Another member has joined with the same `group_instance_id` (fenced)."""


class UnstableOffsetCommit(BrokerError, code=88, retriable=True):
    """A transaction that commits offsets of this partition is still open. Load them again later."""


class UnknownTopicId(BrokerError, code=100, retriable=True):
    """The broker does not know the topic id: the topic was deleted or re-created."""


class InconsistentTopicId(BrokerError, code=103, retriable=True):
    """The topic was re-created with the same name. Refresh the metadata."""


class FetchSessionTopicIdError(BrokerError, code=106, retriable=True):
    """The fetch session mixes topic names and ids. Start a new one with a full fetch."""


class OffsetMovedToTieredStorage(BrokerError, code=109, retriable=True):
    """The offset is only in tiered storage."""


class FencedMemberEpoch(BrokerError, code=110):
    """The coordinator has reassigned the partitions of this member (fenced). Join again."""


class UnreleasedInstanceId(BrokerError, code=111):
    """Another live member still has the same `group_instance_id`."""


class UnsupportedAssignor(BrokerError, code=112):
    """The coordinator does not support the assignor in `group_remote_assignor`."""


class StaleMemberEpoch(BrokerError, code=113, retriable=True):
    """The member epoch is older than the coordinator's. Send a heartbeat first, then try again."""


class UnknownSubscriptionId(BrokerError, code=117):
    """The coordinator does not know the subscription id in the request."""


class InvalidRegularExpression(BrokerError, code=128):
    """The coordinator cannot parse the regular expression of the subscription."""

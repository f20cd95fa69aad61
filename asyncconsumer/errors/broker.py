"""The broker's own words: its error codes, each with what it means for a consumer."""

from __future__ import annotations

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class BrokerError(ConsumerError):
    """The broker answered, and the answer was no. ``about`` says what it was asked about."""

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
    def of(cls, code: int, about: str) -> BrokerError:
        """The error for a code; one that this client does not know is not retriable."""
        if known := cls.by_code.get(code):
            return known(about)
        error = BrokerError(about)
        error.code = code
        return error


class AccessDenied(BrokerError):
    """The cluster's access rules forbid it. Have access granted to the user that logs in."""


class UnknownServerError(BrokerError, code=-1):
    """The broker failed in a way it did not expect; its own log says more."""


class OffsetOutOfRange(BrokerError, code=1):
    """The offset is not, or no longer, in the partition's log."""


class CorruptMessage(BrokerError, code=2, retriable=True):
    """The broker read damaged records from its own disk."""


class UnknownTopicOrPartition(BrokerError, code=3, retriable=True):
    """This broker does not know the topic or partition: deleted, or not heard of yet."""


class LeaderNotAvailable(BrokerError, code=5, retriable=True):
    """The partition has no leader at the moment."""


class NotLeader(BrokerError, code=6, retriable=True):
    """The partition moved; refresh the metadata to learn where to."""


class BrokerTimedOut(BrokerError, code=7, retriable=True):
    """The broker gave up on the request in the time it was allowed."""


class BrokerNotAvailable(BrokerError, code=8, retriable=True):
    """The broker that was asked about is down."""


class ReplicaNotAvailable(BrokerError, code=9, retriable=True):
    """The replica that was asked does not hold the partition yet."""


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The text committed with an offset is longer than the broker allows."""


class NetworkException(BrokerError, code=13, retriable=True):
    """The broker lost its connection to another one on the way."""


class CoordinatorLoading(BrokerError, code=14, retriable=True):
    """The group's coordinator is still reading the group's state."""


class CoordinatorNotAvailable(BrokerError, code=15, retriable=True):
    """The group has no coordinator at the moment."""


class NotCoordinator(BrokerError, code=16, retriable=True):
    """The group's coordinator moved; find it again."""


class InvalidTopic(BrokerError, code=17):
    """No topic can have that name: 249 letters, digits, dots, dashes and underscores at most."""


class IllegalGeneration(BrokerError, code=22):
    """Fenced: the group moved on without us; nothing we hold is ours any more."""


class InconsistentGroupProtocol(BrokerError, code=23):
    """The group's other members use another protocol or none of our assignment strategies."""


class InvalidGroupId(BrokerError, code=24):
    """No group can have that name."""


class UnknownMemberId(BrokerError, code=25):
    """Fenced: the group does not know us any more; join again under a new identity."""


class InvalidSessionTimeout(BrokerError, code=26):
    """session_timeout_ms is outside of what the broker allows (group.*.session.timeout.ms)."""


class RebalanceInProgress(BrokerError, code=27, retriable=True):
    """The group is changing its generation; join it."""


class InvalidCommitOffsetSize(BrokerError, code=28):
    """The commit is larger than the broker allows."""


class TopicAccessDenied(AccessDenied, code=29):
    """The cluster's access rules forbid it; have READ and DESCRIBE granted on the topic."""


class GroupAccessDenied(AccessDenied, code=30):
    """The cluster's access rules forbid it; have READ granted on the group."""


class ClusterAccessDenied(AccessDenied, code=31):
    """The cluster's access rules forbid it; have it granted on the cluster."""


class UnsupportedVersion(BrokerError, code=35):
    """The broker does not speak this version of the request."""


class InvalidRequest(BrokerError, code=42):
    """The broker cannot make sense of the request: a mistake of this client."""


class UnsupportedForMessageFormat(BrokerError, code=43):
    """The partition's records are too old for this, e.g. have no timestamps to search by."""


class TransactionalIdAccessDenied(AccessDenied, code=53):
    """The cluster's access rules forbid it; have it granted on the transactional id."""


class SecurityDisabled(BrokerError, code=54):
    """The cluster has no authorizer, so there are no access rules to read or change."""


class KafkaStorageError(BrokerError, code=56, retriable=True):
    """A disk of the broker failed; another replica will take over."""


class GroupIdNotFound(BrokerError, code=69):
    """There is no such group."""


class FetchSessionNotFound(BrokerError, code=70, retriable=True):
    """The broker dropped the fetch session; start a new one with a full fetch."""


class InvalidFetchSessionEpoch(BrokerError, code=71, retriable=True):
    """The fetch session is out of step; start a new one with a full fetch."""


class FencedLeaderEpoch(BrokerError, code=74, retriable=True):
    """Our leader epoch is older than the broker's; refresh the metadata."""


class UnknownLeaderEpoch(BrokerError, code=75, retriable=True):
    """Our leader epoch is newer than the broker's; it will catch up."""


class UnsupportedCompression(BrokerError, code=76):
    """The broker will not send the records' compression to a client of our version."""


class OffsetNotAvailable(BrokerError, code=78, retriable=True):
    """The new leader does not know its high watermark yet."""


class MemberIdRequired(BrokerError, code=79, retriable=True):
    """Join again with the member id that the coordinator just gave."""


class GroupMaxSizeReached(BrokerError, code=81):
    """The group has as many members as the broker allows."""


class FencedInstanceId(BrokerError, code=82):
    """Fenced: another member has joined with our group_instance_id."""


class UnstableOffsetCommit(BrokerError, code=88, retriable=True):
    """A transaction that commits offsets of this partition is still open."""


class UnknownTopicId(BrokerError, code=100, retriable=True):
    """This broker does not know the topic id: deleted, or re-created under the same name."""


class InconsistentTopicId(BrokerError, code=103, retriable=True):
    """The topic was re-created under its name; refresh the metadata."""


class FetchSessionTopicIdError(BrokerError, code=106, retriable=True):
    """The fetch session mixes topic names and ids; start a new one with a full fetch."""


class OffsetMovedToTieredStorage(BrokerError, code=109, retriable=True):
    """The leader keeps the offset in tiered storage."""


class FencedMemberEpoch(BrokerError, code=110):
    """Fenced: the coordinator gave our partitions away; join again."""


class UnreleasedInstanceId(BrokerError, code=111):
    """Another live member still holds our group_instance_id."""


class UnsupportedAssignor(BrokerError, code=112):
    """The coordinator does not know the assignor that was asked for."""


class StaleMemberEpoch(BrokerError, code=113, retriable=True):
    """The member epoch is older than the coordinator's; heartbeat first, then try again."""


class UnknownSubscriptionId(BrokerError, code=117):
    """The coordinator does not know the subscription."""


class InvalidRegularExpression(BrokerError, code=128):
    """The coordinator cannot read the regular expression of the subscription."""

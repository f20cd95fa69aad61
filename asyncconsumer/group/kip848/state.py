"""The protocol state of a KIP-848 member, without I/O.

It provides heartbeat fields, applies responses and computes deadlines. `kip848.membership` sends
the requests and passes in the time.
"""

import enum
from collections.abc import Mapping
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import (
    ConsumerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAccessDenied,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    NotCoordinator,
    TopicAccessDenied,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from asyncconsumer.group.kip848.topic_watch import PartitionsById, ResolvedSubscription
from asyncconsumer.protocol.consumer_group import JOIN_EPOCH

_MIN_INTERVAL: Final = 0.1  # seconds; a coordinator may ask for an interval of 0
_HEARTBEATS_PER_SESSION: Final = 3  # minimum, even if the coordinator asks for fewer


class HeartbeatReaction(enum.Enum):
    """The reaction of a KIP-848 member to an error response."""

    REJOIN = "all partitions are lost; rejoin"
    REJOIN_OR_END = "all partitions are lost; rejoin, or raise the error if none was owned"
    RETRY = "send all fields again to the current coordinator"
    END = "raise the error, because a retry would fail too"
    UNSUPPORTED = "the group does not support KIP-848"


REACTIONS: Final[Mapping[type[ConsumerError], HeartbeatReaction]] = {
    FencedMemberEpoch: HeartbeatReaction.REJOIN,
    UnknownMemberId: HeartbeatReaction.REJOIN,
    GroupIdNotFound: HeartbeatReaction.REJOIN_OR_END,  # a group is deleted with its last member
    CoordinatorLoading: HeartbeatReaction.RETRY,
    CoordinatorNotAvailable: HeartbeatReaction.RETRY,
    NotCoordinator: HeartbeatReaction.RETRY,
    # retried until the previous member has left or expired
    UnreleasedInstanceId: HeartbeatReaction.RETRY,
    FencedInstanceId: HeartbeatReaction.END,
    GroupAccessDenied: HeartbeatReaction.END,
    GroupMaxSizeReached: HeartbeatReaction.END,
    InconsistentGroupProtocol: HeartbeatReaction.END,
    InvalidGroupId: HeartbeatReaction.END,
    InvalidRegularExpression: HeartbeatReaction.END,
    InvalidRequest: HeartbeatReaction.END,
    TopicAccessDenied: HeartbeatReaction.END,
    UnsupportedAssignor: HeartbeatReaction.END,
    UnsupportedVersion: HeartbeatReaction.UNSUPPORTED,
}


def reaction_to(error: ConsumerError) -> HeartbeatReaction:
    """Return the reaction of a member to an error of its heartbeat.

    Errors that are not in `REACTIONS` are retried if they are retriable.
    """
    otherwise = HeartbeatReaction.RETRY if error.retriable else HeartbeatReaction.END
    return REACTIONS.get(type(error), otherwise)


class Phase(enum.Enum):
    """The phase of a KIP-848 membership."""

    JOINING = "the member owns nothing yet"
    MEMBER = "the member owns its assigned partitions"
    FENCED = "all partitions are lost; reading stops before the member rejoins"
    OUT = "the member has left for good"


class Timeouts(NamedTuple):
    """The session and rebalance timeouts of a member, in seconds."""

    session: float
    rebalance: float
    suspensions: Suspensions

    def end(self, start: float, timeout: float) -> float:
        """Return the earliest loop time at which a timeout can end on the coordinator.

        The coordinator measures `timeout` seconds from the loop time `start`.
        """
        return self.suspensions.certain_end(start, timeout)


class HeartbeatFields(NamedTuple):
    """The optional fields of a heartbeat request. A field is None if its value has not changed."""

    everything: bool = False
    subscribed: ResolvedSubscription | None = None
    topics: list[str] | None = None
    topic_regex: str | None = None
    owned: PartitionsById | None = None


class _Acknowledged(NamedTuple):
    """The subscription and the owned partitions that the coordinator has from this member.

    A value is None if the coordinator may not have received the latest value.
    """

    subscribed: ResolvedSubscription | None = None
    owned: PartitionsById | None = None


class MemberState848:
    """The protocol state of one KIP-848 member: its epoch, its partitions and its deadlines."""

    def __init__(self, member_id: str, timeouts: Timeouts) -> None:
        self.member_id: Final = member_id
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self.interval = 1.0  # seconds; the coordinator sets it
        self.target: PartitionsById = {}
        self.owned: PartitionsById = {}  # assigned to the reader and not yet confirmed as revoked
        self.handed_over = False  # the target was handed to the reader
        self._acknowledged = _Acknowledged()
        self._confirmed_at = -inf  # send time of the last successful heartbeat
        self._unanswered_since = inf  # send time of the first unanswered heartbeat
        self._revoking_since = inf  # earliest time of the pending revocation
        self._timeouts = timeouts

    def set_session_timeout(self, seconds: float) -> None:
        """Set the session timeout to the one that the coordinator uses."""
        self._timeouts = self._timeouts._replace(session=seconds)

    @property
    def last_heartbeat(self) -> float:
        """The loop time at which the last successful heartbeat was sent."""
        return self._confirmed_at

    @property
    def certain_until(self) -> float:
        """The loop time until which this member certainly owns its partitions.

        The coordinator removes a member after the session timeout without heartbeats. It also
        removes a member that does not revoke partitions within the rebalance timeout. That timeout
        may have begun with a response that this member did not receive.
        """
        if self.phase is not Phase.MEMBER:
            return -inf
        timeouts, rebalance = self._timeouts, self._timeouts.rebalance
        return min(
            timeouts.end(self._confirmed_at, timeouts.session),
            timeouts.end(self._unanswered_since, rebalance),
            timeouts.end(self._revoking_since, rebalance),
        )

    @property
    def request_timeout(self) -> float:
        """The timeout of a heartbeat request in seconds, a third of the session timeout."""
        return self._timeouts.session / 3

    @property
    def unacknowledged(self) -> bool:
        """Whether the coordinator does not know yet which partitions this member owns now."""
        return self.phase is Phase.MEMBER and self._acknowledged.owned != self.owned

    def has_acknowledged(self, subscribed: ResolvedSubscription | None) -> bool:
        """Return whether the coordinator has this subscription. Return False for None."""
        return subscribed is not None and self._acknowledged.subscribed == subscribed

    # --- requests --------------------------------------------------------------------------------

    def next_fields(self, subscribed: ResolvedSubscription, regex: str | None) -> HeartbeatFields:
        """Return the fields of the next heartbeat.

        `regex` is the pattern that the coordinator matches. It is empty if the subscription is sent
        as topic names, which clears the previous pattern. It is None if the coordinator is too old
        for patterns.
        """
        everything = self.phase is Phase.JOINING or self._acknowledged.subscribed is None
        topics = None
        if everything or subscribed != self._acknowledged.subscribed:
            topics = [] if regex else sorted(subscribed.names)
        else:
            regex = None
        owned = self.owned if everything or self.unacknowledged else None
        changed = subscribed if topics is not None else None
        return HeartbeatFields(everything, changed, topics, regex, owned)

    def on_send(self, now: float) -> None:
        """Record that a heartbeat is sent at the loop time `now`."""
        self._timeouts.suspensions.check()
        self._unanswered_since = min(self._unanswered_since, now)

    def resend_everything(self) -> None:
        """Include all fields in the next heartbeat.

        Call this when the coordinator may not have applied the fields of an earlier heartbeat.
        """
        self._acknowledged = _Acknowledged()

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record a heartbeat that another thread sent at `sent_at`. Its response was discarded."""
        self._confirmed_at = max(self._confirmed_at, sent_at)
        self.resend_everything()
        self._unanswered_since = min(self._unanswered_since, sent_at)

    # --- responses -------------------------------------------------------------------------------

    def on_response(
        self, answer: Mapping[str, Any], fields: HeartbeatFields, sent_at: float
    ) -> bool:
        """Apply a successful response.

        Return whether this member joined or its target assignment changed.
        """
        since, self._unanswered_since = self._unanswered_since, inf
        superseded = self._confirmed_at > sent_at  # by a response that another thread discarded
        if superseded:
            self._unanswered_since = since
        joined = self.phase is Phase.JOINING
        self.phase = Phase.MEMBER
        self.epoch = answer["member_epoch"]
        longest = self._timeouts.session / _HEARTBEATS_PER_SESSION
        requested = answer["heartbeat_interval_ms"] / 1000
        self.interval = max(min(requested, longest), _MIN_INTERVAL)
        self._confirmed_at = max(self._confirmed_at, sent_at)
        if fields.subscribed is not None:
            self._acknowledged = self._acknowledged._replace(subscribed=fields.subscribed)
        if fields.owned is not None:
            self._acknowledged = self._acknowledged._replace(owned=fields.owned)
            if _is_within(fields.owned, self.target):
                self._revoking_since = inf
        if superseded:
            self.resend_everything()
        assignment = answer["assignment"]
        target = self.target if assignment is None else _partitions(assignment[0])
        if target == self.target:
            return joined
        if not (_is_within(self.target, target) and _is_within(self.owned, target)):
            self._revoking_since = min(self._revoking_since, since)
        self.target = target
        # the coordinator waits for a confirmation even if nothing was revoked
        self._acknowledged = self._acknowledged._replace(owned=None)
        return True

    def mark_fenced(self) -> None:
        """Mark this member as fenced.

        `owned` still has the lost partitions, so that they can be reported. `rejoin` clears it.
        """
        owned = self.owned
        self._forget(Phase.FENCED)
        self.owned = owned

    def rejoin(self) -> None:
        """Begin to join again after fencing.

        Call this after reading of the lost partitions has stopped.
        """
        if self.phase is Phase.FENCED:
            self._forget(Phase.JOINING)

    def end(self) -> None:
        """Mark the membership as ended. The member owns nothing from then on."""
        self._forget(Phase.OUT)

    def _forget(self, phase: Phase) -> None:
        self.phase, self.epoch = phase, JOIN_EPOCH
        self.target, self.owned, self.handed_over = {}, {}, False
        self._confirmed_at, self._unanswered_since, self._revoking_since = -inf, inf, inf
        self.resend_everything()

    # --- owned partitions ------------------------------------------------------------------------

    def hand_over(self, partitions: PartitionsById) -> None:
        """Add `partitions` to the owned partitions, because the member is about to read them.

        Revoked partitions stay owned until `confirm`, because they may still be read.
        """
        self.handed_over = True
        self.owned = {
            topic: self.owned.get(topic, frozenset()) | partitions.get(topic, frozenset())
            for topic in {**self.owned, **partitions}
        }

    def hand_over_again(self) -> None:
        """Make the membership yield the target assignment again, even if it is unchanged.

        The caller may not have started to read all partitions of the last one.
        """
        self.handed_over = False

    def confirm(self, partitions: PartitionsById) -> None:
        """Set the owned partitions to those that are still read. All others are revoked."""
        if self.phase is Phase.MEMBER:
            self.owned = partitions


def _is_within(partitions: PartitionsById, others: PartitionsById) -> bool:
    return all(numbers <= others.get(topic, frozenset()) for topic, numbers in partitions.items())


def _partitions(rows: Any) -> dict[UUID, frozenset[int]]:  # noqa: ANN401 - decoded rows
    return {topic_id: frozenset(numbers) for topic_id, numbers, *_ in rows if numbers}

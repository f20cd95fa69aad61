"""The reactions of a classic member to error responses, as one table for all requests."""

import enum
from collections.abc import Mapping
from typing import Final

from asyncconsumer.errors import (
    BrokerError,
    ConsumerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)


class GroupRequest(enum.Enum):
    """A kind of request that a member sends to the group coordinator."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"


class Reaction(enum.Enum):
    """The reaction of a member to an error or to a heartbeat result."""

    RETRY = "send the same request again after a delay"
    FIND_COORDINATOR = "find the coordinator, then send the request again"
    REJOIN = "rejoin with the same member id and the owned partitions"
    REJOIN_WITH_ID = "rejoin with the member id in the response"
    REJOIN_EMPTY = "all partitions are lost; rejoin with the same member id"
    REJOIN_AS_NEW = "all partitions and the member id are lost; rejoin as a new member"
    FENCED = "fail, because another member has this group_instance_id"
    DONE = "nothing, because the request has had its effect"
    FATAL = "fail, because a retry would fail too"


_R = Reaction
_EVERYWHERE: Final = {
    CoordinatorLoading: _R.RETRY,
    CoordinatorNotAvailable: _R.FIND_COORDINATOR,
    NotCoordinator: _R.FIND_COORDINATOR,
    FencedInstanceId: _R.FENCED,
}
REACTIONS: Final[Mapping[tuple[GroupRequest, type[BrokerError]], Reaction]] = {
    **{
        (request, error): reaction
        for request in GroupRequest
        for error, reaction in _EVERYWHERE.items()
    },
    (GroupRequest.JOIN, MemberIdRequired): _R.REJOIN_WITH_ID,
    (GroupRequest.JOIN, UnknownMemberId): _R.REJOIN_AS_NEW,
    (GroupRequest.JOIN, RebalanceInProgress): _R.RETRY,
    (GroupRequest.SYNC, RebalanceInProgress): _R.REJOIN,
    (GroupRequest.SYNC, IllegalGeneration): _R.REJOIN_EMPTY,
    (GroupRequest.SYNC, UnknownMemberId): _R.REJOIN_AS_NEW,
    (GroupRequest.HEARTBEAT, RebalanceInProgress): _R.REJOIN,
    (GroupRequest.HEARTBEAT, IllegalGeneration): _R.REJOIN_EMPTY,
    (GroupRequest.HEARTBEAT, UnknownMemberId): _R.REJOIN_AS_NEW,
    (GroupRequest.LEAVE, UnknownMemberId): _R.DONE,
}
"""The reaction to each error of each request. Broker errors not listed are `FATAL`."""


def reaction_to(request: GroupRequest, error: ConsumerError) -> Reaction:
    """Return how a member reacts to `error`, which a request of the kind `request` raised.

    An error that no broker sent, such as a lost connection, is retried if it is retriable.
    """
    if isinstance(error, BrokerError):
        return REACTIONS.get((request, type(error)), Reaction.FATAL)
    return Reaction.RETRY if error.retriable else Reaction.FATAL

"""Reactions of a classic member to error responses, as one table for all requests."""

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
    """A kind of request to the group coordinator."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"


class Reaction(enum.Enum):
    """The reaction to an error or a heartbeat result."""

    RETRY = "ask the same again, after a while"
    FIND_COORDINATOR = "find the coordinator, then ask it"
    REJOIN = "join again with the same id, and with what we own"
    REJOIN_WITH_ID = "join again with the id that came with the answer"
    REJOIN_EMPTY = "everything is lost; the group still knows our id, so join again with it"
    REJOIN_AS_NEW = "everything is lost, our id too; join again as somebody new"
    FENCED = "give up: another has taken our group_instance_id"
    DONE = "nothing: it is as we want it"
    FATAL = "give up: asking again changes nothing"


_R = Reaction
_EVERYWHERE: Final = {
    CoordinatorLoading: _R.RETRY,
    CoordinatorNotAvailable: _R.FIND_COORDINATOR,
    NotCoordinator: _R.FIND_COORDINATOR,
    FencedInstanceId: _R.FENCED,
}
REACTIONS: Final[Mapping[tuple[GroupRequest, type[BrokerError]], Reaction]] = {
    **{(ask, error): reaction for ask in GroupRequest for error, reaction in _EVERYWHERE.items()},
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


def reaction(ask: GroupRequest, error: ConsumerError) -> Reaction:
    """Return the reaction to an error.

    Errors that did not come from the broker are retried if they are retriable.
    """
    if isinstance(error, BrokerError):
        return REACTIONS.get((ask, type(error)), Reaction.FATAL)
    return Reaction.RETRY if error.retriable else Reaction.FATAL

"""The state machine of a member of a classic group."""

import enum
from collections.abc import Mapping
from typing import Final


class MemberState(enum.Enum):
    """The state of a member in its group."""

    OUTSIDE = "owns nothing and is not in a generation"
    JOINING = "sent JoinGroup; a cooperative member still owns its partitions"
    SYNCING = "is in the generation and sent SyncGroup"
    STABLE = "owns its assignment of the generation"
    REVOKING = "still owns its assignment, and commits and revokes partitions"
    GONE = "has left for good"


class MemberEvent(enum.Enum):
    """An event that changes the state of a member."""

    JOIN = "the member begins to join"
    JOINED = "the member is in a generation"
    ASSIGNED = "the member received its assignment"
    REBALANCE = "another generation is due"
    RELEASED = "the revocation is complete"
    LOST = "all partitions are lost and must not be committed"
    LEAVE = "the member leaves"


_S, _E = MemberState, MemberEvent
TRANSITIONS: Final[Mapping[tuple[MemberState, MemberEvent], MemberState]] = {
    (_S.OUTSIDE, _E.JOIN): _S.JOINING,
    (_S.JOINING, _E.JOINED): _S.SYNCING,
    (_S.SYNCING, _E.ASSIGNED): _S.STABLE,
    (_S.SYNCING, _E.REBALANCE): _S.JOINING,
    (_S.STABLE, _E.REBALANCE): _S.REVOKING,
    (_S.REVOKING, _E.RELEASED): _S.JOINING,
    (_S.OUTSIDE, _E.LOST): _S.OUTSIDE,
    (_S.JOINING, _E.LOST): _S.OUTSIDE,
    (_S.SYNCING, _E.LOST): _S.OUTSIDE,
    (_S.STABLE, _E.LOST): _S.OUTSIDE,  # lost, not revoked: no commit
    (_S.REVOKING, _E.LOST): _S.OUTSIDE,
    (_S.GONE, _E.LOST): _S.GONE,
    **{(state, _E.LEAVE): _S.GONE for state in MemberState},
}


class OutOfOrder(AssertionError):
    """An event occurred that the member's state does not allow. This is a bug in this package."""


class MemberStateMachine:
    """The state of one member. Only events change it."""

    def __init__(self) -> None:
        self._state = MemberState.OUTSIDE

    @property
    def state(self) -> MemberState:
        """The current state."""
        return self._state

    def on(self, event: MemberEvent) -> None:
        """Change the state by an event.

        Raise `OutOfOrder` if the state does not allow the event.
        """
        try:
            self._state = TRANSITIONS[self._state, event]
        except KeyError:
            raise OutOfOrder(f"{event.name} is not allowed in state {self._state.name}") from None

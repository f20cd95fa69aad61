"""The state machine of a member of a classic group."""

import enum
from collections.abc import Mapping
from typing import Final


class MemberState(enum.Enum):
    """The state of a member in its group."""

    OUTSIDE = "owns nothing, and is not known to the group or no longer"
    JOINING = "asked to be in the next generation; a cooperative member still owns what it had"
    SYNCING = "is in the generation, and asked what it gets in it"
    STABLE = "owns its share of the generation"
    REVOKING = "still owns its share, and is committing and letting go of what it has to"
    GONE = "left for good"


class MemberEvent(enum.Enum):
    """An event that changes the state of a member."""

    JOIN = "it begins to join"
    JOINED = "it is in a generation"
    ASSIGNED = "it was told its share"
    REBALANCE = "there will be another generation"
    RELEASED = "what it had to let go of is let go of"
    LOST = "nothing is its own any more, and it may not commit"
    LEAVE = "it leaves"


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
    """An event that is not allowed in the member's state, which is a bug in this package."""


class MemberStateMachine:
    """The state of one member, changed by events only."""

    def __init__(self) -> None:
        self._state = MemberState.OUTSIDE

    @property
    def state(self) -> MemberState:
        """The current state."""
        return self._state

    def on(self, event: MemberEvent) -> None:
        """Apply an event. Raise `OutOfOrder` without a change if it is not allowed."""
        try:
            self._state = TRANSITIONS[self._state, event]
        except KeyError:
            raise OutOfOrder(f"{event.name} to a member that is {self._state.name}") from None

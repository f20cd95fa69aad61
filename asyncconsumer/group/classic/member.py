"""The life of a member of a classic group, as a table."""

import enum
from collections.abc import Mapping
from typing import Final


class MemberState(enum.Enum):
    """Where a member stands with its group."""

    OUTSIDE = "owns nothing, and is not known to the group or no longer"
    JOINING = "asked to be in the next generation; a cooperative member still owns what it had"
    SYNCING = "is in the generation, and asked what it gets in it"
    STABLE = "owns its share of the generation"
    REVOKING = "still owns its share, and is committing and letting go of what it has to"
    GONE = "left for good"


class MemberEvent(enum.Enum):
    """What happens to a member."""

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
    """A mistake of ours: this cannot happen to a member in this state."""


class MemberStateMachine:
    """One member's state. It changes by events only."""

    def __init__(self) -> None:
        self._state = MemberState.OUTSIDE

    @property
    def state(self) -> MemberState:
        """Where it stands."""
        return self._state

    def on(self, event: MemberEvent) -> None:
        """Something happened; what cannot happen changes nothing, and raises."""
        try:
            self._state = TRANSITIONS[self._state, event]
        except KeyError:
            raise OutOfOrder(f"{event.name} to a member that is {self._state.name}") from None

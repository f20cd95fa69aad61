"""The state machine of a classic member: each pair of state and event."""

from itertools import product

import pytest

from asyncconsumer.group.classic.member import (
    TRANSITIONS,
    MemberEvent,
    MemberState,
    MemberStateMachine,
    OutOfOrder,
)

pytestmark = pytest.mark.fast

E, S = MemberEvent, MemberState
FIRST = [E.JOIN, E.JOINED, E.ASSIGNED]
NEXT = [E.REBALANCE, E.RELEASED, E.JOINED, E.ASSIGNED]


def after_events(events: list[MemberEvent]) -> MemberStateMachine:
    member = MemberStateMachine()
    for event in events:
        member.on(event)
    return member


PATHS = {
    S.OUTSIDE: [],
    S.JOINING: [E.JOIN],
    S.SYNCING: [E.JOIN, E.JOINED],
    S.STABLE: FIRST,
    S.REVOKING: [*FIRST, E.REBALANCE],
    S.GONE: [E.LEAVE],
}
LEAVERS = PATHS.items()


@pytest.mark.parametrize(
    ("state", "event"), list(product(MemberState, MemberEvent)), ids=lambda member: member.name
)
def test_only_transitions_of_the_table_are_possible(state: MemberState, event: MemberEvent) -> None:
    member = after_events(PATHS[state])
    assert member.state is state
    if (state, event) in TRANSITIONS:
        member.on(event)
        assert member.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(OutOfOrder, match=f"{event.name} is not allowed in state {state.name}"):
            member.on(event)
        assert member.state is state


@pytest.mark.parametrize(
    ("events", "end"),
    [
        pytest.param([*FIRST, *NEXT, *NEXT], S.STABLE, id="through three generations"),
        pytest.param(
            [E.JOIN, E.JOINED, E.REBALANCE, E.JOINED], S.SYNCING, id="rebalance before sync"
        ),
        pytest.param([*FIRST, E.LOST, *FIRST], S.STABLE, id="lost and joined again"),
        pytest.param([*FIRST, E.REBALANCE, E.LOST], S.OUTSIDE, id="lost while revoking"),
        pytest.param([E.JOIN, E.LOST, E.JOIN], S.JOINING, id="refused"),
        pytest.param([E.JOIN, E.JOINED, E.LOST, E.LOST], S.OUTSIDE, id="lost twice"),
        pytest.param([*FIRST, E.LEAVE, E.LOST, E.LEAVE], S.GONE, id="events after leave"),
        *(
            pytest.param([*path, E.LEAVE], S.GONE, id=f"{s.name} leaves")
            for s, path in PATHS.items()
        ),
    ],
)
def test_event_sequences_end_in_the_expected_state(
    events: list[MemberEvent], end: MemberState
) -> None:
    assert after_events(events).state is end

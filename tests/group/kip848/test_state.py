"""The state machine of a KIP-848 member, without a network."""

from math import inf
from typing import Any
from uuid import UUID

import pytest

from asyncconsumer import errors
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import BrokerError
from asyncconsumer.group.kip848.state import (
    REACTIONS,
    HeartbeatReaction,
    MemberState848,
    Phase,
    Timeouts,
    reaction_to,
)
from asyncconsumer.group.kip848.topic_watch import PartitionsById, ResolvedSubscription
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription

pytestmark = pytest.mark.fast

T = UUID(int=1)
NAMED = ResolvedSubscription(TopicSubscription(["t"]), frozenset({"t"}))


def some(*numbers: int) -> PartitionsById:
    return {T: frozenset(numbers)} if numbers else {}


def answer(epoch: int, *numbers: int, changed: bool = True) -> dict[str, Any]:
    reported = [[[T, list(numbers), {}]] if numbers else [], {}] if changed else None
    return {"member_epoch": epoch, "heartbeat_interval_ms": 2000, "assignment": reported}


class Played(MemberState848):
    """A member state whose heartbeats are answered by a test."""

    def __init__(self) -> None:
        super().__init__("me", Timeouts(45, 100, Suspensions()))

    def beat(self, moment: float, reported: dict[str, Any] | None = None) -> Any:
        """Send a heartbeat. Without `reported`, its response is lost."""
        sent = self.next_fields(NAMED, "")
        self.on_send(moment)
        if reported is None:
            self.resend_everything()
        else:
            self.on_response(reported, sent, moment)
        return sent


def joined(*numbers: int) -> Played:
    state = Played()
    state.beat(0, answer(1, *numbers))
    state.hand_over(state.target)
    state.confirm(state.target)
    state.beat(1, answer(1, changed=False))
    return state


# --- errors --------------------------------------------------------------------------------------

ROWS = [
    (errors.FencedMemberEpoch, HeartbeatReaction.REJOIN),
    (errors.UnknownMemberId, HeartbeatReaction.REJOIN),
    (errors.GroupIdNotFound, HeartbeatReaction.REJOIN_OR_END),
    (errors.CoordinatorLoading, HeartbeatReaction.RETRY),
    (errors.CoordinatorNotAvailable, HeartbeatReaction.RETRY),
    (errors.NotCoordinator, HeartbeatReaction.RETRY),
    (errors.UnreleasedInstanceId, HeartbeatReaction.RETRY),
    (errors.FencedInstanceId, HeartbeatReaction.END),
    (errors.GroupAccessDenied, HeartbeatReaction.END),
    (errors.GroupMaxSizeReached, HeartbeatReaction.END),
    (errors.InconsistentGroupProtocol, HeartbeatReaction.END),
    (errors.InvalidGroupId, HeartbeatReaction.END),
    (errors.InvalidRegularExpression, HeartbeatReaction.END),
    (errors.InvalidRequest, HeartbeatReaction.END),
    (errors.TopicAccessDenied, HeartbeatReaction.END),
    (errors.UnsupportedAssignor, HeartbeatReaction.END),
    (errors.UnsupportedVersion, HeartbeatReaction.UNSUPPORTED),
]


@pytest.mark.parametrize(
    ("kind", "expected"), ROWS, ids=lambda member: getattr(member, "__name__", "")
)
def test_each_error_of_the_table_has_its_reaction(
    kind: type[BrokerError], expected: HeartbeatReaction
) -> None:
    assert reaction_to(BrokerError.from_code(kind.code, "g")) is expected


def test_the_table_has_no_other_rows() -> None:
    assert {kind for kind, _ in ROWS} == REACTIONS.keys()


def test_other_errors_are_retried_if_they_are_retriable() -> None:
    assert reaction_to(errors.BrokerTimedOut("g")) is HeartbeatReaction.RETRY
    assert reaction_to(errors.ConnectionLost("k:9092", "gone")) is HeartbeatReaction.RETRY
    assert reaction_to(BrokerError.from_code(999, "g")) is HeartbeatReaction.END
    assert reaction_to(errors.WrongCredentials("k:9092", "no")) is HeartbeatReaction.END


# --- fields of heartbeats ------------------------------------------------------------------------


def test_all_fields_are_sent_once_and_then_only_changes() -> None:
    state = Played()
    sent = state.beat(0, answer(1, 0, 1))
    assert (sent.everything, sent.topics, sent.topic_regex) == (True, ["t"], "")
    assert sent.owned == {}
    state.hand_over(state.target)
    state.confirm(state.target)
    sent = state.beat(1, answer(1, changed=False))
    assert (sent.everything, sent.topics, sent.topic_regex) == (False, None, None)
    assert sent.owned == some(0, 1)
    assert state.beat(2, answer(1, changed=False))[1:] == (None, None, None, None)


def test_all_fields_are_sent_again_after_a_lost_response() -> None:
    state = joined(0, 1)
    state.beat(2)
    sent = state.beat(3, answer(2, 0))
    assert sent.everything
    assert (sent.topics, sent.owned) == (["t"], some(0, 1))
    assert state.epoch == 2


def test_all_fields_are_sent_again_after_a_heartbeat_of_a_thread() -> None:
    state = joined(0)
    state.heartbeat_from_thread(5)
    assert state.beat(6, answer(1, 0)).everything


def test_a_pattern_is_sent_as_a_regex_or_as_matching_names() -> None:
    state, pattern = (
        Played(),
        ResolvedSubscription(PatternSubscription("t.*"), frozenset({"t1", "t2"})),
    )
    sent = state.next_fields(pattern, "t.*")
    assert (sent.topics, sent.topic_regex) == ([], "t.*")
    sent = state.next_fields(pattern, None)
    assert (sent.topics, sent.topic_regex) == (["t1", "t2"], None)


def test_revoked_and_delivered_partitions_are_owned_until_confirmed() -> None:
    state = joined(0, 1)
    state.beat(2, answer(1, 0))
    state.hand_over(some(0))
    assert state.beat(3, answer(1, changed=False)).owned == some(0, 1)
    state.confirm(some(0))
    assert state.unacknowledged
    assert state.beat(4, answer(2, 0, 2)).owned == some(0)
    state.hand_over(some(0, 2))  # partition 2 is assigned and then revoked
    state.resend_everything()
    assert state.beat(5, answer(2, 0)).owned == some(0, 2)


def test_a_withdrawn_assignment_is_reported_to_the_coordinator() -> None:
    state = joined(0)
    state.beat(2, answer(2, 0, 1))
    state.beat(3, answer(2, changed=False))
    state.beat(4, answer(2, 0))  # before the assignment was delivered
    assert state.unacknowledged
    assert state.beat(5, answer(3, changed=False)).owned == some(0)


# --- the deadline --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested_ms", "seconds"), [(-1, 0.1), (0, 0.1), (1, 0.1), (5_000, 5.0), (2**31 - 1, 15.0)]
)
def test_the_heartbeat_interval_of_a_coordinator_is_limited(
    requested_ms: int, seconds: float
) -> None:
    state = Played()
    state.beat(0, answer(1) | {"heartbeat_interval_ms": requested_ms})
    assert state.interval == seconds


def test_partitions_are_owned_for_a_session_after_the_last_heartbeat_was_sent() -> None:
    state = Played()
    assert state.certain_until == -inf
    state.beat(10, answer(1, 0))
    assert state.certain_until == pytest.approx(10 + 40.5)
    state.beat(12)
    assert state.certain_until == pytest.approx(10 + 40.5)
    state.heartbeat_from_thread(14)
    assert state.certain_until == pytest.approx(14 + 40.5)
    state.set_session_timeout(10)
    assert state.certain_until == pytest.approx(14 + 9)


def test_a_revocation_limits_the_deadline_until_it_is_confirmed() -> None:
    state = joined(0, 1)
    state.beat(2, answer(1, 0))
    for now in range(4, 90, 2):
        state.beat(now, answer(1, changed=False))
    assert state.certain_until == pytest.approx(2 + 90)
    state.confirm(some(0))
    state.beat(90, answer(2, changed=False))
    assert state.certain_until == pytest.approx(90 + 40.5)


def test_a_lost_response_limits_the_deadline_like_a_revocation() -> None:
    state = joined(0, 1)
    state.beat(2)
    for now in range(4, 80, 2):
        state.heartbeat_from_thread(now)
    assert state.certain_until == pytest.approx(2 + 90)
    state.beat(80, answer(1, 0))  # the lost response had revoked partition 1
    assert state.certain_until == pytest.approx(2 + 90)
    state.confirm(some(0))
    state.beat(81, answer(2, changed=False))
    assert state.certain_until == pytest.approx(81 + 40.5)


def test_an_old_response_does_not_stand_for_unread_later_responses() -> None:
    state = joined(0, 1)
    sent = state.next_fields(NAMED, "")
    state.on_send(2)
    for now in range(4, 80, 2):  # the event loop is blocked
        state.heartbeat_from_thread(now)
    state.on_response(answer(1, changed=False), sent, 2)
    assert state.certain_until == pytest.approx(2 + 90)
    assert state.beat(80, answer(1, 0)).everything
    assert state.certain_until == pytest.approx(2 + 90)


def test_lost_partitions_are_known_until_the_member_rejoins() -> None:
    state = joined(0, 1)
    state.mark_fenced()
    assert (state.phase, state.owned, state.certain_until) == (Phase.FENCED, some(0, 1), -inf)
    state.confirm(some(0))
    assert state.owned == some(0, 1)
    state.rejoin()
    sent = state.beat(9, answer(5))
    assert (sent.everything, sent.owned, state.epoch) == (True, {}, 5)
    state.end()
    state.rejoin()
    assert state.phase is Phase.OUT

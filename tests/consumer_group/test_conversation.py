"""What a member says and concludes, without a network."""

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
    reaction,
)
from asyncconsumer.group.kip848.topic_watch import Partitions, ResolvedSubscription
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription

pytestmark = pytest.mark.fast

T = UUID(int=1)
NAMED = ResolvedSubscription(TopicSubscription(["t"]), frozenset({"t"}))


def some(*numbers: int) -> Partitions:
    return {T: frozenset(numbers)} if numbers else {}


def answer(epoch: int, *numbers: int, changed: bool = True) -> dict[str, Any]:
    told = [[[T, list(numbers), {}]] if numbers else [], {}] if changed else None
    return {"member_epoch": epoch, "heartbeat_interval_ms": 2000, "assignment": told}


class Played(MemberState848):
    """One whose heartbeats are answered as a test says."""

    def __init__(self) -> None:
        super().__init__("me", Timeouts(45, 100, Suspensions()))

    def beat(self, at: float, told: dict[str, Any] | None = None) -> Any:
        """One heartbeat; without an answer it is lost, as the membership treats it."""
        words = self.words(NAMED, regexes=True)
        self.sent(at)
        if told is None:
            self.repeat_everything()
        else:
            self.heard(told, words, at)
        return words


def joined(*numbers: int) -> Played:
    talk = Played()
    talk.beat(0, answer(1, *numbers))
    talk.give(talk.target)
    talk.settle(talk.target)
    talk.beat(1, answer(1, changed=False))
    return talk


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


@pytest.mark.parametrize(("kind", "expected"), ROWS, ids=lambda one: getattr(one, "__name__", ""))
def test_the_table_of_errors(kind: type[BrokerError], expected: HeartbeatReaction) -> None:
    assert reaction(BrokerError.of(kind.code, "g")) is expected


def test_the_table_has_no_other_rows() -> None:
    assert {kind for kind, _ in ROWS} == REACTIONS.keys()


def test_errors_that_are_not_in_the_table_say_themselves_what_helps() -> None:
    assert reaction(errors.BrokerTimedOut("g")) is HeartbeatReaction.RETRY
    assert reaction(errors.ConnectionLost("k:9092", "gone")) is HeartbeatReaction.RETRY
    assert reaction(BrokerError.of(999, "g")) is HeartbeatReaction.END
    assert reaction(errors.WrongCredentials("k:9092", "no")) is HeartbeatReaction.END


# --- what is said --------------------------------------------------------------------------------


def test_everything_is_said_once_and_then_only_what_changed() -> None:
    talk = Played()
    words = talk.beat(0, answer(1, 0, 1))
    assert (words.everything, words.topics, words.topic_regex) == (True, ["t"], "")
    assert words.owned == {}
    talk.give(talk.target)
    talk.settle(talk.target)
    words = talk.beat(1, answer(1, changed=False))
    assert (words.everything, words.topics, words.topic_regex) == (False, None, None)
    assert words.owned == some(0, 1)
    assert talk.beat(2, answer(1, changed=False))[1:] == (None, None, None, None)


def test_everything_is_said_again_after_an_answer_was_lost() -> None:
    talk = joined(0, 1)
    talk.beat(2)
    words = talk.beat(3, answer(2, 0))
    assert words.everything
    assert (words.topics, words.owned) == (["t"], some(0, 1))
    assert talk.epoch == 2


def test_everything_is_said_again_after_another_spoke_for_us() -> None:
    talk = joined(0)
    talk.heartbeat_from_thread(5)
    assert talk.beat(6, answer(1, 0)).everything


def test_a_pattern_is_said_as_it_is_or_as_what_matches() -> None:
    talk, pattern = (
        Played(),
        ResolvedSubscription(PatternSubscription("t.*"), frozenset({"t1", "t2"})),
    )
    words = talk.words(pattern, regexes=True)
    assert (words.topics, words.topic_regex) == ([], "t.*")
    words = talk.words(pattern, regexes=False)
    assert (words.topics, words.topic_regex) == (["t1", "t2"], None)


def test_what_is_read_and_what_is_about_to_be_are_owned_until_there_is_a_receipt() -> None:
    talk = joined(0, 1)
    talk.beat(2, answer(1, 0))
    talk.give(some(0))
    assert talk.beat(3, answer(1, changed=False)).owned == some(0, 1)
    talk.settle(some(0))
    assert talk.unacknowledged
    assert talk.beat(4, answer(2, 0, 2)).owned == some(0)
    talk.give(some(0, 2))  # somebody begins to read it, and then it is taken back
    talk.repeat_everything()
    assert talk.beat(5, answer(2, 0)).owned == some(0, 2)


def test_the_coordinator_is_told_that_nothing_was_taken_up() -> None:
    talk = joined(0)
    talk.beat(2, answer(2, 0, 1))
    talk.beat(3, answer(2, changed=False))
    talk.beat(4, answer(2, 0))  # before anybody looked
    assert talk.unacknowledged
    assert talk.beat(5, answer(3, changed=False)).owned == some(0)


# --- how long it is certain ----------------------------------------------------------------------


def test_what_is_ours_is_so_for_a_session_after_the_last_heartbeat_was_sent() -> None:
    talk = Played()
    assert talk.certain_until == -inf
    talk.beat(10, answer(1, 0))
    assert talk.certain_until == pytest.approx(10 + 40.5)
    talk.beat(12)
    assert talk.certain_until == pytest.approx(10 + 40.5)
    talk.heartbeat_from_thread(14)
    assert talk.certain_until == pytest.approx(14 + 40.5)
    talk.learn_session_timeout(10)
    assert talk.certain_until == pytest.approx(14 + 9)


def test_what_is_taken_away_has_to_be_let_go_of_in_time() -> None:
    talk = joined(0, 1)
    talk.beat(2, answer(1, 0))
    for now in range(4, 90, 2):
        talk.beat(now, answer(1, changed=False))
    assert talk.certain_until == pytest.approx(2 + 90)
    talk.settle(some(0))
    talk.beat(90, answer(2, changed=False))
    assert talk.certain_until == pytest.approx(90 + 40.5)


def test_an_answer_that_was_lost_may_have_taken_something_away() -> None:
    talk = joined(0, 1)
    talk.beat(2)
    for now in range(4, 80, 2):
        talk.heartbeat_from_thread(now)
    assert talk.certain_until == pytest.approx(2 + 90)
    talk.beat(80, answer(1, 0))  # and it had
    assert talk.certain_until == pytest.approx(2 + 90)
    talk.settle(some(0))
    talk.beat(81, answer(2, changed=False))
    assert talk.certain_until == pytest.approx(81 + 40.5)


def test_an_answer_that_waited_does_not_stand_for_a_later_one_that_nobody_read() -> None:
    talk = joined(0, 1)
    words = talk.words(NAMED, regexes=True)
    talk.sent(2)
    for now in range(4, 80, 2):  # the event loop is blocked
        talk.heartbeat_from_thread(now)
    talk.heard(answer(1, changed=False), words, 2)
    assert talk.certain_until == pytest.approx(2 + 90)
    assert talk.beat(80, answer(1, 0)).everything
    assert talk.certain_until == pytest.approx(2 + 90)


def test_what_was_lost_is_known_until_we_join_again() -> None:
    talk = joined(0, 1)
    talk.lost()
    assert (talk.phase, talk.owned, talk.certain_until) == (Phase.FENCED, some(0, 1), -inf)
    talk.settle(some(0))
    assert talk.owned == some(0, 1)
    talk.rejoin()
    words = talk.beat(9, answer(5))
    assert (words.everything, words.owned, talk.epoch) == (True, {}, 5)
    talk.end()
    talk.rejoin()
    assert talk.phase is Phase.OUT

"""The reaction of a member to each error code of its coordinator."""

import pytest

from asyncconsumer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionLost,
    ConsumerError,
    MalformedResponse,
)
from asyncconsumer.group.classic.reactions import REACTIONS, GroupRequest, Reaction, reaction_to

pytestmark = pytest.mark.fast

JOIN, SYNC, HEARTBEAT, LEAVE = GroupRequest
R = Reaction
EXPECTED = {
    (JOIN, 14): R.RETRY,
    (JOIN, 15): R.FIND_COORDINATOR,
    (JOIN, 16): R.FIND_COORDINATOR,
    (JOIN, 25): R.REJOIN_AS_NEW,
    (JOIN, 27): R.RETRY,
    (JOIN, 79): R.REJOIN_WITH_ID,
    (JOIN, 82): R.FENCED,
    (SYNC, 14): R.RETRY,
    (SYNC, 15): R.FIND_COORDINATOR,
    (SYNC, 16): R.FIND_COORDINATOR,
    (SYNC, 22): R.REJOIN_EMPTY,
    (SYNC, 25): R.REJOIN_AS_NEW,
    (SYNC, 27): R.REJOIN,
    (SYNC, 82): R.FENCED,
    (HEARTBEAT, 14): R.RETRY,
    (HEARTBEAT, 15): R.FIND_COORDINATOR,
    (HEARTBEAT, 16): R.FIND_COORDINATOR,
    (HEARTBEAT, 22): R.REJOIN_EMPTY,
    (HEARTBEAT, 25): R.REJOIN_AS_NEW,
    (HEARTBEAT, 27): R.REJOIN,
    (HEARTBEAT, 82): R.FENCED,
    (LEAVE, 14): R.RETRY,
    (LEAVE, 15): R.FIND_COORDINATOR,
    (LEAVE, 16): R.FIND_COORDINATOR,
    (LEAVE, 25): R.DONE,
    (LEAVE, 82): R.FENCED,
}
CODES = [*BrokerError.by_code, 9999]


@pytest.mark.parametrize(("ask", "code"), [(ask, code) for ask in GroupRequest for code in CODES])
def test_each_error_code_has_its_reaction(ask: GroupRequest, code: int) -> None:
    assert reaction_to(ask, BrokerError.from_code(code, "us")) is EXPECTED.get((ask, code), R.FATAL)


def test_the_table_has_no_other_rows() -> None:
    assert {(ask, error.code) for ask, error in REACTIONS} == EXPECTED.keys()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionLost("b:9092", "gone"), R.RETRY),
        (MalformedResponse("JoinGroup", 9, 0, "odd"), R.RETRY),
        (AuthenticationFailed("b:9092", "no"), R.FATAL),
    ],
)
@pytest.mark.parametrize("ask", GroupRequest)
def test_connection_errors_are_retried_or_fatal(
    ask: GroupRequest, error: ConsumerError, expected: Reaction
) -> None:
    assert reaction_to(ask, error) is expected

"""ZooKeeper's errors: what each says, which may be tried again, and how they travel."""

import copy
import pickle

import pytest
from aiozk import exc

from asyncconsumer import errors
from asyncconsumer.errors import (
    BadZnode,
    ConnectionLoss,
    ConsumerError,
    ServerUnusable,
    TransactionFailed,
    ZooKeeperError,
    ZooKeeperUnavailable,
)

pytestmark = pytest.mark.fast

ONES: list[ConsumerError] = [
    *(kind("/n") for kind in ZooKeeperError.by_code.values()),
    ConnectionLoss("/n", "cut", maybe_applied=False),
    TransactionFailed("/n", 2, "it is there"),
    ZooKeeperUnavailable("/n:1", 6, ("a: b",)),
    ServerUnusable("/n", "down"),
    BadZnode("/n", "it is empty"),
]


@pytest.mark.parametrize("error", ONES, ids=lambda error: type(error).__name__)
def test_an_error_names_its_place_and_travels(error: ConsumerError) -> None:
    assert "/n" in str(error)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: TID251 - the package's own
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


def test_codes_are_those_of_aiozk() -> None:
    for code, kind in ZooKeeperError.by_code.items():
        theirs = exc.response_error_xref[code].__name__
        assert theirs.lower() == kind.__name__.lower()


def test_an_unknown_code_keeps_its_number() -> None:
    error = ZooKeeperError.from_code(-999, "/n")
    assert (type(error), error.code, error.retriable) == (ZooKeeperError, -999, False)
    assert "-999" in str(error)
    assert isinstance(ZooKeeperError.from_code(-101, "/n"), errors.NoNode)


def test_only_what_time_may_mend_is_retriable() -> None:
    retriable = {kind.__name__ for kind in ZooKeeperError.by_code.values() if kind.retriable}
    assert retriable == {"ConnectionLoss", "SessionMoved", "OperationTimeout"}


def test_what_was_never_sent_need_not_be_looked_for() -> None:
    assert "Read the current state" in str(ConnectionLoss("/n", "cut"))
    assert "Nothing was sent" in str(ConnectionLoss("/n", "cut", maybe_applied=False))

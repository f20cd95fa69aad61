"""ZooKeeper's errors: messages, retriability, and copies by `copy` and `pickle`."""

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

ERRORS: list[ConsumerError] = [
    *(kind("/n") for kind in ZooKeeperError.by_code.values()),
    ConnectionLoss("/n", "cut", maybe_applied=False),
    TransactionFailed("/n", 2, "it is there"),
    ZooKeeperUnavailable("/n:1", 6, ("a: b",)),
    ServerUnusable("/n", "down"),
    BadZnode("/n", "it is empty"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_names_its_path_and_can_be_copied_and_pickled(error: ConsumerError) -> None:
    assert "/n" in str(error)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: TID251 - the package's own
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


def test_codes_are_those_of_aiozk() -> None:
    for code, kind in ZooKeeperError.by_code.items():
        theirs = exc.response_error_xref[code].__name__
        assert theirs.lower() == kind.__name__.lower()


def test_an_unknown_code_is_kept() -> None:
    error = ZooKeeperError.from_code(-999, "/n")
    assert (type(error), error.code, error.retriable) == (ZooKeeperError, -999, False)
    assert "-999" in str(error)
    assert isinstance(ZooKeeperError.from_code(-101, "/n"), errors.NoNode)


def test_only_temporary_errors_are_retriable() -> None:
    retriable = {kind.__name__ for kind in ZooKeeperError.by_code.values() if kind.retriable}
    assert retriable == {"ConnectionLoss", "SessionMoved", "OperationTimeout"}


def test_the_advice_depends_on_whether_the_request_was_sent() -> None:
    assert "Read the current state" in str(ConnectionLoss("/n", "cut"))
    assert "Nothing was sent" in str(ConnectionLoss("/n", "cut", maybe_applied=False))

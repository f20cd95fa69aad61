"""Errors: messages, retriability, and copies by `copy` and `pickle`."""

import copy
import pickle

import aiokafka.errors
import pytest

from asyncconsumer import errors
from asyncconsumer.errors import BrokerConnectionError, BrokerError, ConsumerError

pytestmark = pytest.mark.fast

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)
]
CONNECTION_ERRORS = [kind for kind in KINDS if issubclass(kind, BrokerConnectionError)]


def test_every_error_is_documented_and_a_consumer_error() -> None:
    assert len(KINDS) > 70
    for kind in KINDS:
        assert issubclass(kind, ConsumerError)
        assert kind.__doc__


@pytest.mark.parametrize("kind", CONNECTION_ERRORS, ids=lambda kind: kind.__name__)
def test_a_connection_error_has_address_reason_and_advice(
    kind: type[BrokerConnectionError],
) -> None:
    if kind is errors.WrongMechanism:
        error: BrokerConnectionError = errors.WrongMechanism("k:1", "PLAIN", ("SCRAM-SHA-512",))
        assert "no PLAIN here" in str(error)
        assert "SCRAM-SHA-512" in str(error)
    else:
        error = kind("k:1", "it broke")
        assert "it broke" in str(error)
    assert str(error).startswith("k:1: ")
    assert str(error).endswith(error.advice)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: TID251 - the package's own
        assert (type(twin), str(twin)) == (type(error), str(error))


def test_only_temporary_errors_are_retriable() -> None:
    retriable = {kind.__name__ for kind in CONNECTION_ERRORS if kind.retriable}
    assert retriable == {"ConnectFailed", "ConnectionLost", "RequestTimedOut", "TokenUnavailable"}
    assert errors.NotLeader.retriable
    assert not errors.TopicAccessDenied.retriable


def test_a_code_selects_the_broker_error() -> None:
    error = BrokerError.from_code(29, "topic 'orders'")
    assert isinstance(error, errors.TopicAccessDenied)
    assert isinstance(error, errors.AccessDenied)
    assert str(error).startswith("topic 'orders': The cluster's ACLs forbid the request")
    assert str(error).endswith("(broker error 29)")


def test_an_unknown_code_is_kept() -> None:
    error = BrokerError.from_code(9999, "topic 'orders'")
    assert (type(error), error.code, error.retriable) == (BrokerError, 9999, False)
    assert "9999" in str(error)
    assert BrokerError.from_code(9998, "x").code == 9998
    assert error.code == 9999


def test_codes_that_are_retriable_in_aiokafka_are_retriable() -> None:
    for code, kind in BrokerError.by_code.items():
        known = aiokafka.errors.kafka_errors.get(code)
        if known is not None and known.retriable:
            assert kind.retriable, kind

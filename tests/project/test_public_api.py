"""The public API: a frozen list of names, complete for all types of public methods."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

import asyncconsumer
from asyncconsumer import config, errors, serdes, testing

pytestmark = pytest.mark.fast

FROZEN = [
    "EARLIEST",
    "LATEST",
    "AclEntry",
    "Address",
    "Admin",
    "AdminOptions",
    "AppHealth",
    "AppKeywords",
    "AppOptions",
    "AppState",
    "Assignor",
    "AzureEntra",
    "Batch",
    "Blacklist",
    "BrokerDescription",
    "CallNext",
    "ClassicConfig",
    "ClassicOptions",
    "ClosedError",
    "ConfigEntry",
    "ConfigError",
    "Consumer",
    "ConsumerApp",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerError",
    "ConsumerGroupDescription",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerStream",
    "Context",
    "CorruptRecords",
    "Depends",
    "Drained",
    "Event",
    "EventStream",
    "FetchResult",
    "Finding",
    "GroupLag",
    "GroupListing",
    "GroupMetadata",
    "HandlerHealth",
    "Header",
    "Health",
    "HealthState",
    "Interceptor",
    "Key",
    "Leader",
    "LogRange",
    "MemberDescription",
    "MemberSubscription",
    "Message",
    "MessageStream",
    "Middleware",
    "MskIam",
    "Offset",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetRange",
    "OffsetStore",
    "Oidc",
    "Outgoing",
    "OutgoingRecord",
    "PartitionDescription",
    "PartitionLag",
    "PartitionStream",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "Progress",
    "Publish",
    "PublishMiddleware",
    "PublishNext",
    "RangeReader",
    "ReaderOptions",
    "RebalanceListener",
    "Rebalanced",
    "Record",
    "RecordAbandoned",
    "RecordDelivery",
    "RecordMetadata",
    "RecordUnreadable",
    "Records",
    "Recovered",
    "Recreated",
    "Retried",
    "Retry",
    "Router",
    "SimpleConsumer",
    "Skipped",
    "Stalled",
    "State",
    "Status",
    "Stream",
    "TopicDescription",
    "TopicFilter",
    "TopicPartition",
    "Transaction",
    "TransactionalProducer",
    "Truncated",
    "Value",
    "Whitelist",
    "diagnose",
]

COMPILED = ("Record", "Records", "Stream")  # their annotations exist for type checkers only
CLASSES = [
    getattr(asyncconsumer, name)
    for name in FROZEN
    if inspect.isclass(getattr(asyncconsumer, name)) and name not in COMPILED
]
MADE_BY_THE_PACKAGE = (
    asyncconsumer.ConsumerStream,
    asyncconsumer.PartitionStream,
    asyncconsumer.RecordDelivery,
    asyncconsumer.Stream,
)
"""Classes whose constructor is internal."""
WITH_TRANSPORT = (asyncconsumer.Producer,)
"""Classes whose constructor has a parameter for the transport of simulations."""
INTERNAL_METHODS = {
    "producer": "retry topics and dead letters of an app are written with it",
    "Router.close": "the app gets the handlers of a router with it",
    "recorder": "the pages of metrics read it",
    "request_token": "the provider keeps the token that it returns",
    "subscription": "a filter is written to ZooKeeper in this form",
}
"""Methods that only the package calls, from other classes."""
FOR_TYPE_CHECKERS = {
    "pa": SimpleNamespace(RecordBatch=bytes),
    "ConsumerApp": asyncconsumer.ConsumerApp,
    "FakeKafka": testing.FakeKafka,
}
"""Names that are imported for type checkers only."""


def test_public_names_equal_the_frozen_list() -> None:
    assert asyncconsumer.__all__ == FROZEN


def test_every_public_name_can_be_imported_and_is_in_each_list() -> None:
    tree = ast.parse(Path(asyncconsumer.__file__).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("asyncconsumer.")
        for alias in node.names
    }
    assert imported == set(asyncconsumer.__all__) == set(asyncconsumer._MODULE_OF)
    for name in asyncconsumer.__all__:
        assert getattr(asyncconsumer, name) is not None


def classes(hint: Any) -> Iterator[type]:
    """Yield the classes in a type, at any depth."""
    if isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from classes(argument)


def annotated(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, and the constructor."""
    if kind not in (*MADE_BY_THE_PACKAGE, *WITH_TRANSPORT):
        yield "__init__", kind.__init__  # type: ignore[misc] # of exactly this class
    for name, member in inspect.getmembers(kind):
        if (
            not name.startswith("_")
            and not {name, f"{kind.__name__}.{name}"} & INTERNAL_METHODS.keys()
        ):
            yield name, member.fget if isinstance(member, property) else member


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_type_of_a_public_method_is_public(kind: type) -> None:
    public = {getattr(asyncconsumer, name) for name in asyncconsumer.__all__}
    public |= {kind for kind in vars(errors).values() if isinstance(kind, type)} | {
        getattr(module, name) for module in (config, serdes, testing) for name in module.__all__
    }
    missing = {
        f"{name}: {result.__name__}"
        for name, member in annotated(kind)
        if inspect.isfunction(member)
        for hint in get_type_hints(member, localns=FOR_TYPE_CHECKERS).values()
        for result in classes(hint)
        if result.__module__.startswith("asyncconsumer") and result not in public
    }
    assert missing == set()

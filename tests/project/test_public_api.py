"""The public API: a frozen list of names, complete for all types of public methods."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

import asyncconsumer
from asyncconsumer import errors, serdes, testing

pytestmark = pytest.mark.fast

FROZEN = [
    "EARLIEST",
    "LATEST",
    "AclEntry",
    "Admin",
    "AdminOptions",
    "AppHealth",
    "AppOptions",
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
    "Header",
    "Health",
    "HealthState",
    "Interceptor",
    "Key",
    "Leader",
    "LogRange",
    "MemberDescription",
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
    "PartitionDescription",
    "PartitionLag",
    "PartitionStream",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "Progress",
    "Publish",
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
    "TransactionalProducer",
    "Truncated",
    "Value",
    "Whitelist",
    "diagnose",
]

ENTRY_POINTS = (
    asyncconsumer.Consumer,
    asyncconsumer.ConsumerApp,
    asyncconsumer.ConsumerConnector,
    asyncconsumer.SimpleConsumer,
    asyncconsumer.RangeReader,
    asyncconsumer.Admin,
)
INTERNAL = {"AppKeywords", "Environment", "ConnectionConfig", "Recorder"}
"""Types of keyword arguments, of parameters for tests, and of properties for the package itself."""
CHECKED = {"pa": SimpleNamespace(RecordBatch=bytes), "FakeKafka": testing.FakeKafka}
"""Names that are imported for type checkers only."""
UNLISTED_METHODS = {"by_partition", "producer"}  # for `ConsumerApp`


def test_the_list_of_public_names_changes_only_on_purpose() -> None:
    assert asyncconsumer.__all__ == FROZEN


def test_every_public_name_can_be_imported_and_is_listed_three_times() -> None:
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
    yield "__init__", kind.__init__  # type: ignore[misc] # of exactly this class
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_"):
            yield name, member.fget if isinstance(member, property) else member


@pytest.mark.parametrize("kind", ENTRY_POINTS, ids=lambda kind: kind.__name__)
def test_every_type_of_a_public_method_is_public(kind: type) -> None:
    public = {getattr(asyncconsumer, name) for name in asyncconsumer.__all__}
    public |= {kind for kind in vars(errors).values() if isinstance(kind, type)} | {
        getattr(module, name) for module in (serdes, testing) for name in module.__all__
    }
    missing = {
        f"{name}: {result.__name__}"
        for name, member in annotated(kind)
        if inspect.isfunction(member) and name not in UNLISTED_METHODS
        for hint in get_type_hints(member, localns=CHECKED).values()
        for result in classes(hint)
        if result.__module__.startswith("asyncconsumer")
        and result not in public
        and result.__name__ not in INTERNAL
    }
    assert missing == set()

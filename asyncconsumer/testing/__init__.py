"""Test support, for the tests of this project and of its users.

`FakeKafka` is a cluster within the test process, and `FakeRegistry` a schema registry. `servers`
starts real Kafka and ZooKeeper. `proxy` injects network faults between a client and a server.
`virtual_time` runs asyncio on virtual time, and `fake_kafka` and `fake_zookeeper` are servers for
it. `plugin` is the pytest plugin.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncconsumer.testing.client import FakeClient as FakeClient
    from asyncconsumer.testing.kafka import FakeKafka as FakeKafka
    from asyncconsumer.testing.registry import FakeRegistry as FakeRegistry
    from asyncconsumer.testing.settling import NotSettled as NotSettled
    from asyncconsumer.testing.values import PublishedRecord as PublishedRecord

__all__ = ["FakeClient", "FakeKafka", "FakeRegistry", "NotSettled", "PublishedRecord"]

_MODULE_OF = {
    "FakeClient": "client",
    "FakeKafka": "kafka",
    "FakeRegistry": "registry",
    "NotSettled": "settling",
    "PublishedRecord": "values",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - pytest loads this package, so import late
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

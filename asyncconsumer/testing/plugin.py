"""The pytest plugin: real servers as fixtures, and checks for leaked resources.

Fixtures: `kafka` (one broker), `kafka_zk` (a broker in ZooKeeper mode, with its ZooKeeper),
`zookeeper`, `kafka_cluster` (three brokers behind proxies, for faults, repaired after each test),
`java_consumers` (starts members of the Java client's consumer on `kafka`) and `scala_consumers`
(starts members of Kafka 1.1's classic consumer on the servers of `kafka_zk`).
pytest loads this module wherever the package is installed. Without the `testing` extra the module
still loads, and the fixtures say what to install.
"""

import importlib.util
from typing import Final, NoReturn

import pytest

_NEEDED: Final = ("filelock", "jgo", "platformdirs", "psutil", "pytest_asyncio", "rich", "trustme")
_missing: Final = [name for name in _NEEDED if importlib.util.find_spec(name) is None]

if not _missing:
    pytest_plugins = ("asyncconsumer.testing.fixtures", "asyncconsumer.testing.leftover_checks")
else:

    def _install_first() -> NoReturn:
        pytest.fail(
            f"the server fixtures need {', '.join(_missing)}: pip install 'asyncconsumer[testing]'",
            pytrace=False,
        )

    kafka, kafka_zk, zookeeper, kafka_cluster = (
        pytest.fixture(name=name)(_install_first)
        for name in ("kafka", "kafka_zk", "zookeeper", "kafka_cluster")
    )
    java_consumers, scala_consumers = (
        pytest.fixture(name=name)(_install_first) for name in ("java_consumers", "scala_consumers")
    )

"""Invalid options of test brokers."""

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.testing.servers import Kafka, UnknownVersion

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("4.3", "'4.3' is not a Kafka version"),
        ("latest", "'latest' is not a Kafka version"),
        ("2.8.2", "Kafka 2.8.2 is not supported"),
    ],
)
def test_a_version_that_cannot_run_is_refused(version: str, problem: str) -> None:
    with pytest.raises(UnknownVersion, match=problem):
        Kafka(version)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="brokers=4: a test cluster has 1 to 3"):
        Kafka(brokers=4)
    with pytest.raises(ConfigError, match=r"Kafka 4\.3\.1 has no ZooKeeper mode: take 3\.9"):
        Kafka("4.3.1", zookeeper="127.0.0.1:2181")

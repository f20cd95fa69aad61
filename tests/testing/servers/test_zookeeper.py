"""Invalid options of a test ensemble."""

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.testing.servers import UnknownVersion, ZooKeeper

pytestmark = pytest.mark.fast


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="nodes=2: an ensemble has 1 or 3"):
        ZooKeeper(nodes=2)
    with pytest.raises(UnknownVersion, match=r"ZooKeeper 4\.0\.0 is not supported"):
        ZooKeeper("4.0.0")
    with pytest.raises(ConfigError, match="secure=True"):
        _ = ZooKeeper().certificates

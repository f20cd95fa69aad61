"""The assignment strategies by their names in `partition.assignment.strategy`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from asyncconsumer.group.zookeeper.assignors import (
    Strategy,
    by_range,
    round_robin,
    round_robin_0_8,
    round_robin_0_10,
)
from asyncconsumer.group.zookeeper.sticky import sticky

STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        "range": by_range,
        "roundrobin": round_robin,
        "roundrobin-0.10": round_robin_0_10,  # with members of Kafka 0.10 or 0.11
        "roundrobin-0.8": round_robin_0_8,  # with members of Kafka 0.8.2 or 0.9
        "sticky": sticky,  # not supported by Kafka's own members
    }
)
"""The strategies by name. All members of a group must use the same one."""

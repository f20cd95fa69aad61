"""All that is not ours to decide: networks, chance and time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from asyncconsumer.net.brokers import Opener as BrokerOpener
from asyncconsumer.net.opening import open_connection
from asyncconsumer.tasks.suspensions import Offsets, system_offsets
from asyncconsumer.zk.line import Opener as ZooKeeperOpener
from asyncconsumer.zk.line import open_line


def _milliseconds() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The real world, unless a simulation plays it."""

    open_broker: BrokerOpener = open_connection
    open_zookeeper: ZooKeeperOpener = open_line
    randomness: Random = field(default_factory=Random)  # for jitter and shuffling
    clock: Callable[[], float] | None = None  # where the loop's is not the system's
    now_ms: Callable[[], int] = _milliseconds
    clock_offsets: Callable[[], Offsets] = system_offsets  # of clocks that count suspended time

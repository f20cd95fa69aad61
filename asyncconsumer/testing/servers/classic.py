"""A process that is a member of a ZooKeeper group, as in Kafka 1.1 and older."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.java import LOGGING
from asyncconsumer.testing.servers.member import MemberProcess

CLASSIC_KAFKA: Final = "1.1.1"
"""The last release line that has the classic consumer."""

# not the defaults: a test does not wait a minute for a commit, and a member that joins may have
# to wait for the end of a dead session (6 s) before its retries are exhausted
_DEFAULTS: Final = {
    "auto.commit.interval.ms": "200",
    "rebalance.backoff.ms": "300",
    "rebalance.max.retries": "40",
}


async def fetch(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """Return the jars of Kafka's classic consumer. Download them if they are not cached."""
    coordinates = (LOGGING, f"org.apache.kafka:kafka_2.12:{CLASSIC_KAFKA}")
    return await maven.class_path(f"Kafka {CLASSIC_KAFKA}", coordinates, progress)


class ClassicMember(MemberProcess):
    """A Java process that runs Kafka's classic consumer as a member of a ZooKeeper group."""

    def __init__(
        self, zookeeper: str, group: str, name: str, properties: Mapping[str, str]
    ) -> None:
        name = name or f"scala-{secrets.token_hex(3)}"
        known = {"zookeeper.connect": zookeeper, "group.id": group, "consumer.id": name}
        super().__init__(group, name, {**_DEFAULTS, **known, **properties})

    @property
    def consumer_id(self) -> str:
        """The consumer id under which the member is registered at `/consumers/GROUP/ids`."""
        return f"{self.group}_{self.name}"

"""The configuration of a test broker, derived from the settings of its cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers.listeners import (
    INTERNAL,
    PROXIED,
    Certificates,
    Listener,
    broker_settings,
)
from asyncconsumer.testing.servers.ports import HOST

FILE: Final = "server.properties"
DATA: Final = "data"
CONTROLLER: Final = "CONTROLLER"
PROXY: Final = "PROXY"

_SMALL_AND_QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    # KIP-848: a dead member expires after 6 s, not 45, and assignments are computed at once
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "log.cleaner.dedupe.buffer.size": str(4 * 2**20),
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    # a killed broker can restart after the end of its old session, by default 9 and 18 s
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "zookeeper.session.timeout.ms": "6000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings that all brokers of a cluster share."""

    cluster_id: str
    brokers: int
    zookeeper: str | None
    listeners: Sequence[Listener]
    acls: bool
    racks: bool
    config: Mapping[str, str]


def write(
    plan: Plan,
    node_id: int,
    ports: Sequence[Mapping[str, int]],
    folder: Path,
    certificates: Certificates | None,
) -> Path:
    """Write the properties file of broker `node_id`. Return its path.

    `ports` has the ports of each broker by listener name, in the order of broker ids.
    """
    folder.mkdir(parents=True)
    settings = {
        "log.dirs": str(folder / DATA),
        **_listeners(plan, ports[node_id - 1]),
        **(
            _kraft(node_id, ports)
            if plan.zookeeper is None
            else _zookeeper(node_id, plan.zookeeper)
        ),
        **_replication(plan.brokers),
        **_SMALL_AND_QUICK,
        **(_authorization(plan) if plan.acls else {}),
        **({"broker.rack": f"rack-{node_id}"} if plan.racks else {}),
    }
    for listener in plan.listeners:
        settings |= broker_settings(listener, certificates)
    settings |= plan.config
    path = folder / FILE
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _listeners(plan: Plan, ports: Mapping[str, int]) -> dict[str, str]:
    bound = [f"{listener.name}://{HOST}:{ports[listener.name]}" for listener in plan.listeners]
    advertised = [
        f"{listener.name}://{HOST}:{ports[PROXY if listener is PROXIED else listener.name]}"
        for listener in plan.listeners
    ]
    protocols = [f"{listener.name}:{listener.security_protocol}" for listener in plan.listeners]
    if plan.zookeeper is None:
        bound.append(f"{CONTROLLER}://{HOST}:{ports[CONTROLLER]}")
        protocols.append(f"{CONTROLLER}:PLAINTEXT")
    return {
        "listeners": ",".join(bound),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": INTERNAL.name,
    }


def _kraft(node_id: int, ports: Sequence[Mapping[str, int]]) -> dict[str, str]:
    voters = (f"{n}@{HOST}:{own[CONTROLLER]}" for n, own in enumerate(ports, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(voters),
    }


def _zookeeper(node_id: int, connect: str) -> dict[str, str]:
    return {"broker.id": str(node_id), "zookeeper.connect": connect}


def _replication(brokers: int) -> dict[str, str]:
    in_sync = "2" if brokers == 3 else "1"
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        **{f"{topic}.replication.factor": str(brokers) for topic in internal},
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _authorization(plan: Plan) -> dict[str, str]:
    by_mode = (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        if plan.zookeeper is None
        else "kafka.security.authorizer.AclAuthorizer"
    )
    # clients without a login, and brokers, may do anything; users need ACLs
    return {"authorizer.class.name": by_mode, "super.users": "User:ANONYMOUS"}

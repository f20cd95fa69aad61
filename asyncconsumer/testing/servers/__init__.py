"""Real Kafka and ZooKeeper for tests, started from their Maven jars.

async with Kafka(brokers=3) as kafka:
    await kafka.admin.create_topic("orders", partitions=6, replication_factor=3)
    await kafka.brokers[1].kill()
    async with JavaConsumer(kafka.bootstrap_servers, "billing", ["orders"]) as member: ...

async with ZooKeeper() as zookeeper, Kafka("3.9.2", zookeeper=zookeeper.connect) as kafka:
    async with ScalaConsumer(zookeeper.connect, "billing", {"orders": 2}) as member: ...
"""

from asyncconsumer.testing.servers.admin import Admin
from asyncconsumer.testing.servers.errors import (
    AdminFailed,
    CompileFailed,
    DamagedCache,
    FetchFailed,
    JavaMissing,
    PortInUse,
    ServerError,
    StartFailed,
    UnknownVersion,
)
from asyncconsumer.testing.servers.java_consumer import (
    JavaChange,
    JavaConsumer,
    JavaConsumers,
    JavaRecord,
)
from asyncconsumer.testing.servers.kafka import DEFAULT_KAFKA, LAST_WITH_ZOOKEEPER, Broker, Kafka
from asyncconsumer.testing.servers.listeners import (
    INTERNAL,
    MUTUAL_TLS,
    PROXIED,
    SASL_OAUTH,
    SASL_PLAIN,
    SASL_PLAIN_UNENCRYPTED,
    SASL_SCRAM,
    SECURE,
    TLS,
    TLS_WRONG_HOST,
    Listener,
    UnsecuredToken,
)
from asyncconsumer.testing.servers.scala import ScalaConsumer, ScalaConsumers, ScalaRecord
from asyncconsumer.testing.servers.scala_console import ScalaConsole
from asyncconsumer.testing.servers.zookeeper import DEFAULT_ZOOKEEPER, ZooKeeper, ZooKeeperNode

__all__ = [
    "DEFAULT_KAFKA",
    "DEFAULT_ZOOKEEPER",
    "INTERNAL",
    "LAST_WITH_ZOOKEEPER",
    "MUTUAL_TLS",
    "PROXIED",
    "SASL_OAUTH",
    "SASL_PLAIN",
    "SASL_PLAIN_UNENCRYPTED",
    "SASL_SCRAM",
    "SECURE",
    "TLS",
    "TLS_WRONG_HOST",
    "Admin",
    "AdminFailed",
    "Broker",
    "CompileFailed",
    "DamagedCache",
    "FetchFailed",
    "JavaChange",
    "JavaConsumer",
    "JavaConsumers",
    "JavaMissing",
    "JavaRecord",
    "Kafka",
    "Listener",
    "PortInUse",
    "ScalaConsole",
    "ScalaConsumer",
    "ScalaConsumers",
    "ScalaRecord",
    "ServerError",
    "StartFailed",
    "UnknownVersion",
    "UnsecuredToken",
    "ZooKeeper",
    "ZooKeeperNode",
]

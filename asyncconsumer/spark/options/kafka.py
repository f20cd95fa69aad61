"""Options that begin with `kafka.`: the supported properties of a Java consumer."""

from collections.abc import Mapping
from typing import Final

from asyncconsumer.config import (
    ConnectionConfig,
    FetchConfig,
    parse_bool,
    parse_int,
    refuse_unknown,
    split,
)
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options import security

PREFIX: Final = "kafka."
_FETCH_BYTES: Final = 4 * 2**20  # one fetch makes one Spark batch, which should not be small

_OURS: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "allowed.hosts": "allowed_hosts",  # not a property of Java
    "client.id": "client_id",
    "isolation.level": "isolation_level",
    "check.crcs": "check_crcs",
    "client.rack": "client_rack",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.max.bytes": "fetch_max_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "request.timeout.ms": "request_timeout_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_TEXTS: Final = (
    "bootstrap.servers",
    "allowed.hosts",
    "client.id",
    "isolation.level",
    "client.rack",
    "sasl.kerberos.service.name",
)
# accepted and ignored: properties for threads, buffers and groups of a Java consumer
_WITHOUT_MEANING: Final = frozenset(
    (
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.client.callback.handler.class",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.truststore.password",
    )
)
_KNOWN: Final = frozenset((*_OURS, *security.TAKEN, *_WITHOUT_MEANING))
# settings of Java's own logins for tokens and tickets
_OF_LOGINS: Final = ("sasl.login.", "sasl.oauthbearer.", "sasl.kerberos.")
# Spark's own source refuses most of these as well, for the same reasons
_REFUSED: Final = {
    "auto.offset.reset": "where to begin is startingOffsets, and Spark keeps what was read",
    "key.deserializer": "keys are bytes; use the functions of Spark on them",
    "value.deserializer": "values are bytes; use the functions of Spark on them",
    "key.serializer": "nothing is written",
    "value.serializer": "nothing is written",
    "enable.auto.commit": "Spark keeps the offsets; see commitToGroup to have them in Kafka too",
    "interceptor.classes": "there are no Java classes here",
    "ssl.engine.factory.class": "there are no Java classes here",
    "config.providers": "there are no Java classes here; look values up where the query is made",
    # refused, because ignoring it would allow ciphers that the user forbids
    "ssl.cipher.suites": "Java's names are not OpenSSL's; limit them at the brokers",
}


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the `kafka.` options without their prefix, validated."""
    found = {
        name.lower().removeprefix(PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(PREFIX)
    }
    if not found.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers is missing: name brokers as 'host:port,...'")
    for name in found:
        _check_name(name)
    configs_of(found)
    return found


def configs_of(kafka: Mapping[str, str]) -> tuple[ConnectionConfig, FetchConfig]:
    """Return the configs for a client. TLS contexts cannot be pickled."""
    options = security.security_options(kafka)
    options["max_partition_fetch_bytes"] = _FETCH_BYTES
    for theirs, ours in _OURS.items():
        if theirs in kafka:
            options[ours] = _read(theirs, kafka[theirs].strip())
    if "sasl_kerberos_service_name" in options and options.get("sasl_mechanism") != "GSSAPI":
        del options["sasl_kerberos_service_name"]
    return split(options)


def is_property(name: str) -> bool:
    """Return whether `name` is a property of a Java consumer, which needs the prefix `kafka.`."""
    return name in _REFUSED or name in _KNOWN or name.startswith(_OF_LOGINS)


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise ConfigError(f"kafka.{name} cannot be set: {_REFUSED[name]}")
    if not is_property(name):
        refuse_unknown([name], also=_KNOWN, prefix=PREFIX)


def _read(name: str, text: str) -> str | int:
    if name in _TEXTS:
        return text
    return (parse_bool if name == "check.crcs" else parse_int)(f"{PREFIX}{name}", text)

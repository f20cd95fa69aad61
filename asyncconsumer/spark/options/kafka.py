"""The options that begin with `kafka.`. They are properties of the Java consumer."""

from collections.abc import Mapping
from typing import Any, Final

from asyncconsumer.config import (
    ConnectionConfig,
    FetchConfig,
    nearest_name,
    parse_bool,
    parse_int,
    split,
)
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options import security

PREFIX: Final = "kafka."
_FETCH_BYTES: Final = 4 * 2**20  # one fetch makes one Spark batch, which should not be small

CONNECTION_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "allowed.hosts": "allowed_hosts",  # not a property of Java
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
"""Properties of all Java clients, and the options that they stand for."""
_FETCH_NAMES: Final = {
    "isolation.level": "isolation_level",
    "check.crcs": "check_crcs",
    "client.rack": "client_rack",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.max.bytes": "fetch_max_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
}
_STRINGS: Final = (
    "bootstrap.servers",
    "allowed.hosts",
    "client.id",
    "isolation.level",
    "client.rack",
    "sasl.kerberos.service.name",
)
# accepted and ignored: properties for threads, buffers and groups of a Java consumer
_IGNORED: Final = frozenset(
    (
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
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
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
    )
)
_API_TIMEOUT: Final = "default.api.timeout.ms"
_API_TIMEOUT_MS: Final = 60_000
_CIPHERS: Final = "ssl.cipher.suites"
_KNOWN: Final = frozenset(
    (*CONNECTION_NAMES, *_FETCH_NAMES, *security.SUPPORTED, *_IGNORED, _API_TIMEOUT)
)
# accepted and ignored: properties of Java's own logins for tokens and tickets
_LOGIN_PREFIXES: Final = ("sasl.login.", "sasl.oauthbearer.", "sasl.kerberos.")
# Spark's own source refuses most of these as well, for the same reasons
_REFUSED: Final = {
    "auto.offset.reset": "Use `startingOffsets`. Spark stores the offsets of the query.",
    "key.deserializer": "Keys are bytes. Decode them with functions of Spark.",
    "value.deserializer": "Values are bytes. Decode them with functions of Spark.",
    "key.serializer": "The source does not write.",
    "value.serializer": "The source does not write.",
    "enable.auto.commit": "Spark stores the offsets. `commitToGroup` also commits them to Kafka.",
    "interceptor.classes": "The source runs no Java classes.",
    "ssl.engine.factory.class": "The source runs no Java classes.",
    "config.providers": "The source runs no Java classes. Pass the values themselves.",
    # refused, because ignoring it would allow ciphers that the user forbids
    _CIPHERS: "Java's cipher names are not OpenSSL's. Limit ciphers at the brokers.",
}


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the `kafka.` options without their prefix, validated."""
    properties = {
        name.lower().removeprefix(PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(PREFIX)
    }
    if not properties.get("bootstrap.servers", "").strip():
        raise ConfigError("`kafka.bootstrap.servers` is missing. Set it to 'host:port,...'.")
    for name in properties.keys() & _REFUSED.keys():
        if name != _CIPHERS or properties.get("security.protocol", "").strip().endswith("SSL"):
            raise ConfigError(f"`kafka.{name}` cannot be set. {_REFUSED[name]}")
    make_configs(properties)
    api_timeout_ms(properties)
    return properties


def api_timeout_ms(kafka: Mapping[str, str]) -> int:
    """Return the milliseconds for which failed lookups of topics and offsets are retried."""
    text = kafka.get(_API_TIMEOUT, "").strip()
    return parse_int(f"{PREFIX}{_API_TIMEOUT}", text, 0) if text else _API_TIMEOUT_MS


def make_configs(kafka: Mapping[str, str]) -> tuple[ConnectionConfig, FetchConfig]:
    """Return the connection and fetch configs for the `kafka.` properties.

    Each process makes its own configs, because a TLS context cannot be pickled.
    """
    options = connection_options(kafka)
    options["max_partition_fetch_bytes"] = _FETCH_BYTES
    return split(options | _named(kafka, _FETCH_NAMES))


def connection_options(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of `ConnectionConfig` for the `kafka.` properties."""
    options = security.security_options(kafka) | _named(kafka, CONNECTION_NAMES)
    if "sasl_kerberos_service_name" in options and options.get("sasl_mechanism") != "GSSAPI":
        del options["sasl_kerberos_service_name"]
    return options


def is_property(name: str) -> bool:
    """Return whether `name` is a property of the Java consumer, which needs the prefix `kafka.`."""
    return name in _REFUSED or name in _KNOWN or name.startswith(_LOGIN_PREFIXES)


def nearest_property(name: str) -> str | None:
    """Return the known property that `name` probably stands for, or None.

    Neither name has the prefix `kafka.`.
    """
    return nearest_name(name, _KNOWN)


def _named(kafka: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of this package for those properties that are set.

    `names` maps each property to its option.
    """
    return {
        name: _parse_value(java_name, kafka[java_name].strip())
        for java_name, name in names.items()
        if java_name in kafka
    }


def _parse_value(name: str, text: str) -> str | int:
    if name in _STRINGS:
        return text
    return (parse_bool if name == "check.crcs" else parse_int)(f"{PREFIX}{name}", text)

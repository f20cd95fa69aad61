"""The options of the Kafka sink. Their names and meanings are those of Spark's own sink."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asyncconsumer.config import ProducerConfig, parse_int
from asyncconsumer.config.choices import COMPRESSION_TYPES
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.kafka import PREFIX, connection_options, is_property

_log: Final = logging.getLogger(__name__)

_COMPRESSION: Final = "compression.type"
_CIPHERS: Final = "ssl.cipher.suites"
_NUMBERS: Final = {
    "linger.ms": "linger_ms",
    "batch.size": "max_batch_bytes",
    "buffer.memory": "max_buffered_bytes",
    "delivery.timeout.ms": "delivery_timeout_ms",
}
# accepted and ignored: the producer is always idempotent, and waits for all in-sync replicas
_IGNORED: Final = frozenset(
    (
        "acks",
        "enable.idempotence",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "retries",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
    )
)
_IGNORED_PREFIXES: Final = ("compression.",)  # levels
_SERIALIZED: Final = "is not supported as {} are serialized with ByteArraySerializer."
_JAVA_CLASS: Final = "cannot be set. The sink runs no Java classes."
_REFUSED: Final = {
    "key.serializer": _SERIALIZED.format("keys"),
    "value.serializer": _SERIALIZED.format("values"),
    "interceptor.classes": _JAVA_CLASS,
    "partitioner.class": f"{_JAVA_CLASS} Add a column `partition` to select partitions.",
    "config.providers": f"{_JAVA_CLASS} Pass the values themselves.",
    "ssl.engine.factory.class": _JAVA_CLASS,
    "partitioner.ignore.keys": (
        "cannot be set. Remove the column `key`, or add a column `partition` to select partitions."
    ),
    "transactional.id": (
        "cannot be set. The sink writes each record at least once, without transactions."
    ),
    # refused, because ignoring it would allow ciphers that the user forbids
    _CIPHERS: (
        "cannot be set. Java's cipher names are not OpenSSL's. Limit ciphers at the brokers."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The parsed options of one write as plain values, which Spark copies to every executor."""

    kafka: Mapping[str, str] = field(repr=False)  # contains passwords
    topic: str | None = None


def parse_sink(raw: Mapping[str, str]) -> SinkOptions:
    """Return the parsed options of one write. Raise `ConfigError` if one is wrong.

    Options without the prefix `kafka.` are those of the source and of Spark itself, such as
    `checkpointLocation`. They are ignored, except for `topic`.
    """
    options = {name.lower(): str(value) for name, value in raw.items()}
    kafka = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigError("`kafka.bootstrap.servers` is missing. Set it to 'host:port,...'.")
    for name in kafka:
        if name != _CIPHERS or kafka.get("security.protocol", "").strip().endswith("SSL"):
            _check_name(name)
    producer_config(kafka)
    topic = options.get("topic")
    return SinkOptions(kafka=kafka, topic=None if topic is None else topic.strip())


def producer_config(kafka: Mapping[str, str]) -> ProducerConfig:
    """Return the producer's config for the `kafka.` options, whose names have no prefix.

    Each process makes its own config, because a TLS context cannot be pickled.
    """
    options: dict[str, Any] = connection_options(kafka)
    for name, option in _NUMBERS.items():
        if name in kafka:
            least = 0 if name in ("linger.ms", "batch.size") else 1
            options[option] = parse_int(f"{PREFIX}{name}", kafka[name], least)
    if "max_batch_bytes" in options:
        options["max_batch_bytes"] = max(options["max_batch_bytes"], 1)  # 0: no batches
    if _COMPRESSION in kafka:
        options["compression_type"] = _compression(kafka[_COMPRESSION])
    # a task flushes by itself, and a failed task is repeated as a whole
    return ProducerConfig.from_options(**options, close_timeout_ms=0)


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise ConfigError(f"Kafka option '{PREFIX}{name}' {_REFUSED[name]}")
    known = name in _NUMBERS or name in _IGNORED or name == _COMPRESSION or is_property(name)
    if not known and not name.startswith(_IGNORED_PREFIXES):
        _log.warning("%s%s is ignored, because it is not a producer property", PREFIX, name)


def _compression(text: str) -> str:
    name = text.strip().lower()
    if name not in COMPRESSION_TYPES:
        allowed = ", ".join(COMPRESSION_TYPES)
        raise ConfigError(f"`{PREFIX}{_COMPRESSION}` must be one of {allowed}, got {text!r}.")
    return name

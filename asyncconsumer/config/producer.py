"""The options of a producer, with Kafka's names and defaults where Kafka has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, Unpack

from asyncconsumer.config.choices import COMPRESSION_TYPES, CompressionType
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.extraction import extract, without_none
from asyncconsumer.config.options import ProducerOptions
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.config.validation import one_of, refuse_unknown, whole_number
from asyncconsumer.errors import ConfigError

OTHER_PRODUCERS_ONLY: Final = {
    "acks": "A producer always waits for all in-sync replicas: remove the option",
    "batch_size": "Set `max_batch_bytes`",
    "max_batch_size": "Set `max_batch_bytes`",
    "buffer_memory": "Set `max_buffered_bytes`",
    "enable_idempotence": "Producers are always idempotent: remove the option",
    "max_block_ms": "Set `delivery_timeout_ms`",
    "max_in_flight_requests_per_connection": (
        "Producers pipeline requests and keep their order: remove the option"
    ),
    "max_request_size": "Set `max_batch_bytes`",
    "retries": "Set `delivery_timeout_ms`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConfig:
    """Batching, limits and timeouts of a producer. `SendOptions` describes each option."""

    compression_type: CompressionType = "none"
    linger_ms: int = 0
    max_batch_bytes: int = 256 * 1024
    max_buffered_bytes: int = 32 * 2**20
    delivery_timeout_ms: int = 120_000
    close_timeout_ms: int = 30_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        text: object = self.transactional_id
        if text is not None and (not isinstance(text, str) or not text):
            raise ConfigError(f"`transactional_id` must be a name, or None, got {text!r}")
        one_of("compression_type", self.compression_type, COMPRESSION_TYPES)
        for name in ("linger_ms", "close_timeout_ms"):
            whole_number(name, getattr(self, name), 0)
        positive = (
            "max_batch_bytes",
            "max_buffered_bytes",
            "delivery_timeout_ms",
            "transaction_timeout_ms",
        )
        for name in positive:
            whole_number(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """All options of a producer, as one config object for each group of options."""

    connection: ConnectionConfig
    sending: SendConfig

    @classmethod
    def from_options(cls, **options: Unpack[ProducerOptions]) -> Self:
        """Return the config for keyword options.

        Raise ConfigError for unknown options, and for options that conflict.
        """
        return cls.from_mapping(options)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Self:
        """Return the config for a mapping of options, such as the contents of a file."""
        refuse_tls_options(options)
        for name, value in options.items():
            if value is not None and name in OTHER_PRODUCERS_ONLY:
                raise ConfigError(
                    f"A producer has no option {name!r}. {OTHER_PRODUCERS_ONLY[name]}"
                )
        unknown = [name for name in options if name not in OTHER_PRODUCERS_ONLY]
        refuse_unknown(unknown, ConnectionConfig, SendConfig)
        remaining = without_none(options)
        return cls(extract(remaining, ConnectionConfig), extract(remaining, SendConfig))

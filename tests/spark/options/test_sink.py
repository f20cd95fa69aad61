"""Options of the sink, without a Spark or a broker."""

import logging

import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.sink import parse_sink, producer_config

pytestmark = pytest.mark.fast

LEAST = {"kafka.bootstrap.servers": "a:1"}


def test_properties_of_javas_producer_configure_the_producer() -> None:
    options = parse_sink(
        LEAST
        | {
            "kafka.Compression.Type": "zstd",
            "kafka.linger.ms": "20",
            "kafka.batch.size": "0",
            "kafka.buffer.memory": "1000000",
            "kafka.delivery.timeout.ms": "5000",
            "kafka.request.timeout.ms": "4000",
            "kafka.acks": "1",
            "topic": " t ",
            "checkpointLocation": "/tmp/x",
            "includeHeaders": "true",
        }
    )
    assert options.topic == "t"
    config = producer_config(options.kafka)
    assert config.sending.compression_type == "zstd"
    assert config.sending.linger_ms == 20
    assert config.sending.max_batch_bytes == 1
    assert config.sending.max_buffered_bytes == 1_000_000
    assert config.sending.delivery_timeout_ms == 5000
    assert config.connection.request_timeout_ms == 4000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers` is missing"),
        ({"kafka.compression.type": "best"}, "`kafka.compression.type` must be one of none, gzip"),
        ({"kafka.linger.ms": "-1"}, "`kafka.linger.ms` must be a whole number from 0"),
        ({"kafka.value.serializer": "x"}, "not supported as values are serialized"),
        ({"kafka.partitioner.class": "x"}, "Add a column `partition`"),
        ({"kafka.transactional.id": "x"}, "at least once"),
        ({"kafka.ssl.cipher.suites": "x", "kafka.security.protocol": "SSL"}, "Limit ciphers"),
        ({"kafka.security.protocol": "TLS"}, "security_protocol"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_sink(LEAST | options)


def test_unknown_properties_are_logged_as_by_java(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse_sink(LEAST | {"kafka.max.poll.records": "1", "kafka.compression.zstd.level": "3"})
        assert not caplog.messages
        parse_sink(LEAST | {"kafka.lingerms": "1"})
    assert caplog.messages == ["kafka.lingerms is ignored, because it is not a producer property"]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(parse_sink(LEAST | {"kafka.ssl.key.password": "secret"}))

"""The options of a producer, from keywords, variables and files."""

from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import Consumer, Producer, ProducerConfig, ProducerOptions
from asyncconsumer.config import option_docs
from asyncconsumer.errors import ConfigError

pytestmark = pytest.mark.fast


def test_every_option_is_documented_with_its_default() -> None:
    docs = option_docs(ProducerOptions)
    assert all(doc.text for doc in docs.values())
    assert docs["max_buffered_bytes"].default == 32 * 2**20
    assert docs["linger_ms"].default == 0
    assert "compression_type" in (Producer.__doc__ or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 1}, "all in-sync replicas"),
        ({"retries": 3}, "Set `delivery_timeout_ms`"),
        ({"compression_type": "brotli"}, "must be one of none, gzip"),
        ({"linger_ms": -1}, "`linger_ms` must be a whole number"),
        ({"max_buffered_bytes": 0}, "`max_buffered_bytes` must be a whole number"),
        ({"group_id": "g"}, "group_id"),
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer(bootstrap_servers="k:1", **options)
    with pytest.raises(ConfigError, match=message):
        ProducerConfig.from_mapping({"bootstrap_servers": "k:1", **options})


def test_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="`bootstrap_servers` is missing"):
        Producer()


def test_consumers_and_producers_share_variables_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("bootstrap.servers=k:1\ngroup.id=billing\nlinger.ms=7\nclient.id=both\n")
    monkeypatch.setenv("ASYNCCONSUMER_COMPRESSION_TYPE", "ZSTD")
    monkeypatch.setenv("ASYNCCONSUMER_SESSION_TIMEOUT_MS", "30000")
    producer = Producer.from_config(file, client_id="mine")
    assert producer.config.sending.linger_ms == 7
    assert producer.config.sending.compression_type == "zstd"
    assert producer.config.connection.client_id == "mine"
    consumer = Consumer.from_config(file, "orders")
    assert consumer.config.member.group_id == "billing"
    assert consumer.config.member.session_timeout_ms == 30_000
    monkeypatch.setenv("ASYNCCONSUMER_CONFIG", str(file))
    assert Producer.from_env().config.connection.client_id == "both"

"""The check of option names, which precedes all other checks, for every class with options."""

from collections.abc import Callable
from typing import Any

import pytest

from asyncconsumer import (
    Admin,
    ConfigError,
    Consumer,
    ConsumerApp,
    ConsumerConnector,
    Producer,
    RangeReader,
    SimpleConsumer,
)
from asyncconsumer.config import MemberConfig

pytestmark = pytest.mark.fast

READERS: list[Callable[..., Any]] = [Consumer, ConsumerApp, SimpleConsumer, RangeReader]
CLASSES: list[Callable[..., Any]] = [*READERS, Producer, Admin]


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    "name", ["bootstrap_server", "bootstrap.servers", "brokers", "servers", "BootstrapServers"]
)
def test_a_misspelled_bootstrap_servers_is_reported_with_its_name(
    make: Callable[..., Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=r"unknown option .* Did you mean `bootstrap_servers`"):
        make(**{name: "k:9092"})


@pytest.mark.parametrize("make", READERS)
def test_an_unknown_option_is_reported_before_an_invalid_value(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="Did you mean `fetch_min_bytes`"):
        make(bootstrap_servers="k:9092", check_crcs="yes", fetch_min_byte=1)


@pytest.mark.parametrize("make", CLASSES)
def test_missing_servers_are_reported(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="`bootstrap_servers` is missing"):
        make(client_id="a")


def test_servers_in_the_environment_need_from_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_BOOTSTRAP_SERVERS", "k:9092")
    with pytest.raises(ConfigError, match=r"is set, but only `from_env\(...\)` reads it"):
        Consumer("orders")
    assert Consumer.from_env("orders").config.connection.bootstrap_servers


@pytest.mark.parametrize("name", ["zookeeper_connects", "zookeeper", "zookeeper.hosts", "zk"])
def test_a_connector_suggests_its_own_option_names(name: str) -> None:
    make: Callable[..., Any] = ConsumerConnector
    with pytest.raises(ConfigError, match="Did you mean `zookeeper_connect`"):
        make(group_id="g", **{name: "z:2181"})


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("value_deserialiser", "value_deserializer"),
        ("session.timeout.ms", "session_timeout_ms"),
        ("group", "group_id"),
        ("auto.offset.rest", "auto_offset_reset"),
    ],
)
def test_other_spellings_are_recognised(name: str, right: str) -> None:
    options: dict[str, Any] = {name: "x"}
    with pytest.raises(ConfigError, match=f"Did you mean `{right}`"):
        Consumer("t", bootstrap_servers="k:9092", group_id="g", **options)


def test_none_selects_the_default() -> None:
    options: dict[str, Any] = dict.fromkeys(
        ["rebalance_timeout_ms", "max_poll_records", "client_rack", "interceptors", "listener"]
    )
    consumer: Consumer = Consumer("t", bootstrap_servers="k:9092", **options)
    assert consumer.config.member.rebalance_timeout_ms == 300_000
    SimpleConsumer("k:9092", client_id=None)  # type: ignore[arg-type]


def test_a_sasl_mechanism_without_login_is_accepted() -> None:
    consumer: Consumer = Consumer(bootstrap_servers="k:9092", sasl_mechanism="PLAIN")
    assert not consumer.config.connection.logs_in
    with pytest.raises(ConfigError, match="`sasl_plain_password` is set, but `security_protocol`"):
        Consumer(bootstrap_servers="k:9092", sasl_mechanism="PLAIN", sasl_plain_password="p")
    with pytest.raises(ConfigError, match="Did you mean PLAIN"):
        Consumer(bootstrap_servers="k:9092", sasl_mechanism="PLAN")  # type: ignore[arg-type]


def test_the_revoke_grace_is_limited_by_the_rebalance_timeout() -> None:
    assert MemberConfig(rebalance_timeout_ms=3_000).revoke_grace_ms == 3_000
    assert MemberConfig().revoke_grace_ms == 10_000
    with pytest.raises(ConfigError, match="revoke_grace_ms"):
        MemberConfig(rebalance_timeout_ms=3_000, revoke_grace_ms=4_000)

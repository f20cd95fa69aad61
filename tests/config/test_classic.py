"""The classic properties: names, defaults, validation, and the configs derived from them."""

import copy
import logging
import pickle
import ssl
from dataclasses import fields
from typing import Any

import pytest

from asyncconsumer.config import ClassicConfig
from asyncconsumer.config.choices import ZOOKEEPER_ASSIGNOR_NAMES
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.assignors import STRATEGIES
from asyncconsumer.types import Address

pytestmark = pytest.mark.fast

CONTEXT = ssl.create_default_context()
SECRET = "correct-horse"
# the defaults of ConsumerConfig of Kafka 1.1.1
CLASSIC = {
    "group.id": "g",
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "6000",
    "zookeeper.sync.time.ms": "2000",
    "client.id": "g",
    "socket.timeout.ms": "30000",
    "socket.receive.buffer.bytes": "65536",
    "fetch.message.max.bytes": "1048576",
    "fetch.min.bytes": "1",
    "fetch.max.bytes": "52428800",
    "fetch.wait.max.ms": "100",
    "num.consumer.fetchers": "1",
    "auto.commit.enable": "true",
    "auto.commit.interval.ms": "60000",
    "queued.max.message.chunks": "2",
    "rebalance.max.retries": "4",
    "rebalance.backoff.ms": "2000",
    "refresh.leader.backoff.ms": "200",
    "auto.offset.reset": "largest",
    "consumer.timeout.ms": "-1",
    "exclude.internal.topics": "true",
    "partition.assignment.strategy": "range",
    "offsets.storage": "zookeeper",
    "dual.commit.enabled": "false",
    "offsets.channel.backoff.ms": "1000",
    "offsets.channel.socket.timeout.ms": "10000",
    "offsets.commit.max.retries": "5",
}


def config(**options: Any) -> ClassicConfig:
    return ClassicConfig(**{"group_id": "g", "zookeeper_connect": "zk:2181"} | options)


def test_the_defaults_are_those_of_the_classic_consumer() -> None:
    assert ClassicConfig.from_properties(CLASSIC) == config()
    assert ClassicConfig.from_properties(CLASSIC | {"consumer.id": ""}).consumer_id is None
    assert ClassicConfig.from_properties({name: CLASSIC[name] for name in list(CLASSIC)[:2]}) == (
        config()
    )


def test_defaults_depend_on_other_options() -> None:
    made = config(
        group_id="billing",
        zookeeper_session_timeout_ms=9_000,
        zookeeper_sync_time_ms=3_000,
        offsets_storage="Kafka",
    )
    assert made.client_id == "billing"
    assert made.zookeeper_connection_timeout_ms == 9_000
    assert made.rebalance_backoff_ms == 3_000
    assert (made.offsets_storage, made.dual_commit_enabled) == ("kafka", True)
    assert not config(offsets_storage="kafka", dual_commit_enabled=False).dual_commit_enabled


def test_texts_are_converted_to_the_types_of_options() -> None:
    made = ClassicConfig.from_properties(
        {
            "group.id": " g ",
            "zookeeper.connect": "a:1,b:2/kafka",
            "auto.commit.enable": "FALSE",
            "fetch.wait.max.ms": " 250 ",
            "num.consumer.fetchers": 3,
            "consumer.id": "me",
            "offsets.storage": "KAFKA",
            "bootstrap.servers": "k1:9092,k2:9092",
            "security.protocol": "SSL",
            "ssl.context": CONTEXT,
            "zookeeper.auth": "u:p",
            "zookeeper.set.acl": "true",
        }
    )
    assert made.group_id == "g"
    assert made.auto_commit_enable is False
    assert (made.fetch_wait_max_ms, made.num_consumer_fetchers) == (250, 3)
    assert (made.consumer_id, made.zookeeper_set_acl) == ("me", True)
    assert made.connection().ssl_context is CONTEXT
    assert made.zookeeper().chroot == "/kafka"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"zookeper.connect": "zk"}, "'zookeper.connect'. Did you mean `zookeeper.connect`?"),
        ({"groupid": "g"}, r"Did you mean `group\.id`\?"),
        ({"auto.offset.rest": "largest"}, "Did you mean `auto.offset.reset`?"),
        ({"zookeeper_connect": "zk"}, "Did you mean `zookeeper.connect`?"),
        ({"bootstrap.server": "k"}, "Did you mean `bootstrap.servers`?"),
        ({"fetch.min.bytes": "1k"}, "`fetch.min.bytes` must be a whole number, got '1k'"),
        ({"fetch.min.bytes": "1_0"}, "`fetch.min.bytes` must be a whole number"),
        ({"fetch.min.bytes": "9" * 5000}, "`fetch.min.bytes` must be a whole number"),
        ({"auto.commit.enable": "yes"}, "`auto.commit.enable` must be true or false, got 'yes'"),
        ({"group.id": ""}, "`group_id` is missing"),
        ({"zookeeper.connect": " "}, "`zookeeper_connect` is missing"),
    ],
)
def test_invalid_properties_are_reported(properties: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClassicConfig.from_properties({"group.id": "g", "zookeeper.connect": "zk"} | properties)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"zookeeper_conect": "zk"}, "unknown option .* Did you mean `zookeeper_connect`?"),
        ({"group_id": None}, "`group_id` is missing"),
        ({"group_id": "a b"}, "`group_id` must have only characters of a-z.*, got 'a b'"),
        ({"group_id": "a/b"}, "`group_id` must have only"),
        ({"group_id": "g\n"}, "`group_id` must have only"),
        ({"group_id": ".."}, "`group_id` must have at most 249 characters, and must"),
        ({"group_id": "g" * 250}, "`group_id` must have at most 249 characters"),
        ({"client_id": "a:b"}, "`client_id` must have only .*, got 'a:b'"),
        ({"consumer_id": 7}, "`consumer_id` must be a string, got 7"),
        ({"zookeeper_connect": "zk:x"}, "`zookeeper_connect` has 'zk:x'"),
        ({"zookeeper_session_timeout_ms": 5}, "`zookeeper_session_timeout_ms` must .* from 100"),
        ({"socket_timeout_ms": 50}, r"`socket_timeout_ms` \(50\) must not be less than `fetch"),
        ({"auto_offset_reset": "smalest"}, "Did you mean smallest?"),
        (
            {"auto_offset_reset": "none"},
            "`auto_offset_reset` must be one of smallest, largest",
        ),
        ({"offsets_storage": "zk"}, "`offsets_storage` must be one of zookeeper, kafka, got 'zk'"),
        ({"offsets_storage": 1}, "`offsets_storage` must be one of"),
        ({"partition_assignment_strategy": "round_robin"}, "Did you mean roundrobin?"),
        ({"consumer_timeout_ms": -2}, "`consumer_timeout_ms` must be a whole number from -1"),
        ({"rebalance_max_retries": 0}, "`rebalance_max_retries` must be a whole number from 1"),
        ({"num_consumer_fetchers": 0}, "`num_consumer_fetchers` must be a whole number from 1"),
        ({"max_buffered_bytes": 1}, "`max_buffered_bytes` must be"),
        ({"auto_commit_enable": "true"}, "`auto_commit_enable` must be True or False, got 'true'"),
        ({"dual_commit_enabled": 1}, "`dual_commit_enabled` must be True or False, got 1"),
        (
            {"fetch_min_bytes": 60 * 2**20},
            "`fetch_min_bytes` .* must not be more than `fetch",
        ),
        ({"security_protocol": "TLS"}, "`security_protocol` must be one of"),
        (
            {"sasl_plain_username": "a"},
            "`sasl_plain_username` is set, but `security_protocol` PLAINTEXT",
        ),
        ({"bootstrap_servers": "k:x"}, "`bootstrap_servers` has 'k:x'"),
        ({"zookeeper_set_acl": True}, "`zookeeper_set_acl` needs `zookeeper_auth`"),
    ],
)
def test_invalid_options_are_reported(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**options)


@pytest.mark.parametrize(
    "name", [field.name for field in fields(ClassicConfig) if field.type is int]
)
def test_every_number_is_checked(name: str) -> None:
    for nonsense in (-2, 2**31, 1.5, "1"):
        with pytest.raises(ConfigError, match=name):
            config(**{name: nonsense})


def test_every_flag_is_checked() -> None:
    flags = [field.name for field in fields(ClassicConfig) if field.type is bool]
    assert len(flags) == 5
    for name in flags:
        with pytest.raises(ConfigError, match=f"`{name}` must be True or False"):
            config(**{name: "yes"})


def test_connection_fetch_engine_and_zookeeper_configs_are_derived() -> None:
    made = config(
        client_id="c",
        zookeeper_session_timeout_ms=9_000,
        zookeeper_connection_timeout_ms=8_000,
        zookeeper_auth="u:p",
        socket_timeout_ms=7_000,
        fetch_message_max_bytes=5,
        fetch_min_bytes=2,
        fetch_max_bytes=200 * 2**20,
        fetch_wait_max_ms=7_000,  # equal to the socket timeout, which the classic consumer accepts
        num_consumer_fetchers=3,
        refresh_leader_backoff_ms=11,
        auto_offset_reset="smallest",
        max_buffered_bytes=2**20,
        offsets_commit_max_retries=3,
        offsets_channel_backoff_ms=200,
        isolation_level="read_committed",
        check_crcs=False,
        client_rack="r",
        stall_timeout_ms=3_000,
        allowed_hosts="k1",
    )
    connection, fetch, engine, zookeeper = (
        made.connection(["k1:1", "k2:2"]),
        made.fetch(),
        made.engine(),
        made.zookeeper(),
    )
    assert connection.addresses == (Address("k1", 1), Address("k2", 2))
    assert (connection.client_id, connection.request_timeout_ms) == ("c", 7_001)
    assert connection.max_frame_bytes == 200 * 2**20
    assert [connection.allows(address) for address in connection.addresses] == [True, False]
    assert (fetch.fetch_min_bytes, fetch.fetch_max_bytes) == (2, 200 * 2**20)
    assert (fetch.fetch_max_wait_ms, fetch.max_partition_fetch_bytes) == (7_000, 5)
    assert (fetch.isolation_level, fetch.check_crcs) == ("read_committed", False)
    assert (fetch.client_rack, engine.stall_timeout_ms) == ("r", 3_000)
    assert (engine.num_consumer_fetchers, engine.refresh_leader_backoff_ms) == (3, 11)
    assert (engine.auto_offset_reset, engine.max_buffered_bytes) == ("earliest", 2**20)
    assert (zookeeper.session_timeout_ms, zookeeper.connection_timeout_ms) == (9_000, 8_000)
    assert (zookeeper.zookeeper_connect, zookeeper.auth) == ("zk:2181", "u:p")
    assert made.commit_patience_ms == 600
    own = config(bootstrap_servers="own:1").connection("found:1")
    assert own.addresses == (Address("own", 1),)
    with pytest.raises(ConfigError, match="`bootstrap_servers` is empty"):
        config().connection()


@pytest.mark.parametrize(
    ("value", "meant"),
    [("smallest", "earliest"), ("largest", "latest"), ("earliest",) * 2, ("latest",) * 2],
)
def test_old_and_new_names_of_the_offset_reset_are_accepted(value: str, meant: str) -> None:
    assert config(auto_offset_reset=value).engine().auto_offset_reset == meant


def test_exactly_the_existing_strategies_are_accepted() -> None:
    assert tuple(STRATEGIES) == ZOOKEEPER_ASSIGNOR_NAMES
    for name in STRATEGIES:
        assert config(partition_assignment_strategy=name).partition_assignment_strategy == name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, []),
        (
            {"queued_max_message_chunks": 10},
            ["the option queued_max_message_chunks has no effect, because"],
        ),
        (
            {"socket_receive_buffer_bytes": -1},
            ["the option socket_receive_buffer_bytes has no effect"],
        ),
        ({"rebalance_backoff_ms": 1_500}, ["rebalance_max_retries * rebalance_backoff_ms is 6000"]),
        ({"dual_commit_enabled": True}, ["the option dual_commit_enabled has no effect unless"]),
    ],
)
def test_options_without_effect_and_long_rebalances_are_logged(
    options: dict[str, Any], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        config(**options)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(words)
    assert all(line.startswith(word) for line, word in zip(messages, words, strict=True))


def test_the_config_shows_no_secret_and_can_be_copied() -> None:
    made = config(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=SECRET,
        zookeeper_auth=f"u:{SECRET}",
        zookeeper_sasl=f"u:{SECRET}",
    )
    assert SECRET not in repr(made) + str(made)
    assert made.connection("k").sasl_plain_password == SECRET
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made  # noqa: TID251 - the package's own


@pytest.mark.parametrize(
    "name",
    [
        "allowed.hosts",
        "security.protocol",
        "sasl.mechanism",
        "isolation.level",
        "check.crcs",
        "zookeeper.set.acl",
        "zookeeper.auth",
        "zookeeper.sasl",
    ],
)
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_security_option_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{name}` is empty. Set it or remove it"):
        ClassicConfig.from_properties(CLASSIC | {name: value})

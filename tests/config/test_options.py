"""The typed options: equal to the config classes, and documented."""

import pydoc
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from asyncconsumer import (
    ConfigError,
    Consumer,
    ConsumerApp,
    ConsumerConnector,
    RangeReader,
    SimpleConsumer,
)
from asyncconsumer.config import (
    AppOptions,
    ClassicConfig,
    ClassicOptions,
    ConnectionConfig,
    ConsumerConfig,
    ConsumerOptions,
    DeliveryConfig,
    EngineConfig,
    FetchConfig,
    MemberConfig,
    ReaderOptions,
    SecurityConfig,
    option_docs,
)
from asyncconsumer.config.options import (
    ConnectionOptions,
    DeliveryOptions,
    EngineOptions,
    FetchOptions,
    MemberOptions,
    SecurityOptions,
    ZooKeeperOptions,
)

pytestmark = pytest.mark.fast

PAIRS = [
    (SecurityOptions, SecurityConfig),
    (ConnectionOptions, ConnectionConfig),
    (FetchOptions, FetchConfig),
    (EngineOptions, EngineConfig),
    (MemberOptions, MemberConfig),
    (DeliveryOptions, DeliveryConfig),
    (ClassicOptions, ClassicConfig),
]
PUBLIC = [
    (Consumer, ConsumerOptions),
    (ConsumerApp, AppOptions),
    (ConsumerConnector, ClassicOptions),
    (SimpleConsumer, ReaderOptions),
    (RangeReader, ReaderOptions),
]
CONNECTION = {"bootstrap_servers": "k:9092"}


@pytest.mark.parametrize(("options", "config"), PAIRS, ids=lambda options: options.__name__)
def test_options_have_the_names_and_types_of_their_config(options: type, config: type) -> None:
    hints = get_type_hints(config)
    assert get_type_hints(options) == {
        field.name: hints[field.name] for field in fields(config) if field.init
    }


def test_the_options_of_a_consumer_are_those_of_its_configs() -> None:
    configs = (ConnectionConfig, FetchConfig, EngineConfig, MemberConfig, DeliveryConfig)
    names = {field.name for config in configs for field in fields(config) if field.init}
    assert get_type_hints(ConsumerOptions).keys() == names | get_type_hints(ZooKeeperOptions).keys()
    classic = get_type_hints(ClassicConfig)
    for name, hint in get_type_hints(ZooKeeperOptions).items():
        assert classic[name] == hint


@pytest.mark.parametrize("name", get_type_hints(ConsumerOptions))
def test_every_option_of_a_consumer_is_accepted(name: str) -> None:
    """An option that no config takes is reported as unknown."""
    options: dict[str, Any] = CONNECTION | {name: None}
    if name != "bootstrap_servers":
        ConsumerConfig.from_mapping(options)
    in_zookeeper = {"group_protocol": "zookeeper", "group_id": "g", "zookeeper_connect": "z"}
    if name not in in_zookeeper:
        ConsumerConfig.from_mapping(in_zookeeper | {name: None})


@pytest.mark.parametrize(
    "options",
    [ConsumerOptions, ClassicOptions, AppOptions, ReaderOptions],
    ids=lambda o: o.__name__,
)
def test_every_option_is_documented(options: type) -> None:
    docs = option_docs(options)
    assert docs.keys() == get_type_hints(options).keys()
    for doc in docs.values():
        assert doc.text[0].isupper(), doc
        assert doc.summary.endswith((".", ",")), doc
        if doc.type_text.startswith("int"):
            assert doc.unit or "umber of" in doc.text or "Not used" in doc.text, doc


def test_a_doc_has_type_default_and_unit() -> None:
    docs = option_docs(ConsumerOptions)
    assert str(docs["session_timeout_ms"]) == (
        "session_timeout_ms: int = 45000 (milliseconds)\n"
        "    Time without a heartbeat after which the coordinator removes a member."
    )
    assert docs["isolation_level"].type_text == '"read_uncommitted" | "read_committed"'
    assert docs["stop_at"].type_text == '"end" | Mapping[TopicPartition, int] | None'
    assert str(docs["bootstrap_servers"]).startswith("bootstrap_servers: str | Sequence[str]\n")
    assert option_docs(ClassicOptions)["auto_commit_interval_ms"].default == 60_000


@pytest.mark.parametrize(("public", "options"), PUBLIC, ids=lambda options: options.__name__)
def test_help_lists_every_option(public: type, options: type) -> None:
    text = pydoc.plain(pydoc.render_doc(public))
    for name, doc in option_docs(options).items():
        assert f"{name}: " in text
        assert doc.summary in text


def test_a_config_object_is_accepted_instead_of_options() -> None:
    config = ConsumerConfig.from_options(bootstrap_servers="k:9092", group_id="g")
    consumer: Consumer = Consumer("orders", config=config)
    assert consumer.config is config
    with pytest.raises(ConfigError, match=r"`config` cannot be combined with options.*`group_id`"):
        Consumer("orders", config=config, group_id="g")
    classic = ClassicConfig(zookeeper_connect="z", group_id="g")
    with pytest.raises(ConfigError, match=r"`config` cannot be combined with options"):
        ConsumerConnector(classic, group_id="h")


def test_a_config_object_is_validated_completely() -> None:
    config = ConsumerConfig.from_options(bootstrap_servers="k:9092")
    fetch = FetchConfig(fetch_max_wait_ms=40_000)
    with pytest.raises(ConfigError, match=r"`fetch_max_wait_ms` .* must be less than"):
        ConsumerConfig(config.connection, fetch, config.engine, config.member, config.delivery)

"""The options of consumers: typed keyword arguments, and dataclasses that validate them."""

from asyncconsumer.config.classic import ClassicConfig
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.consumer import ConsumerConfig, MemberConfig
from asyncconsumer.config.delivery import DeliveryConfig
from asyncconsumer.config.extraction import check_names, check_together, refuse_both, split
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.option_docs import OptionDoc, document_options, option_docs
from asyncconsumer.config.options import (
    AdminOptions,
    AppOptions,
    ClassicOptions,
    ConsumerOptions,
    ProducerOptions,
    ReaderOptions,
)
from asyncconsumer.config.producer import ProducerConfig, SendConfig
from asyncconsumer.config.security import SecurityConfig
from asyncconsumer.config.text_values import parse_bool, parse_int
from asyncconsumer.config.validation import (
    nearest_name,
    one_of,
    parse_servers,
    refuse_unknown,
    whole_number,
)
from asyncconsumer.config.zookeeper import ZooKeeperConfig

__all__ = [
    "AdminOptions",
    "AppOptions",
    "ClassicConfig",
    "ClassicOptions",
    "ConnectionConfig",
    "ConsumerConfig",
    "ConsumerOptions",
    "DeliveryConfig",
    "EngineConfig",
    "FetchConfig",
    "MemberConfig",
    "OptionDoc",
    "ProducerConfig",
    "ProducerOptions",
    "ReaderOptions",
    "SecurityConfig",
    "SendConfig",
    "ZooKeeperConfig",
    "check_names",
    "check_together",
    "document_options",
    "nearest_name",
    "one_of",
    "option_docs",
    "parse_bool",
    "parse_int",
    "parse_servers",
    "refuse_both",
    "refuse_unknown",
    "split",
    "whole_number",
]

"""Options of users, as dataclasses that check their values."""

from asyncconsumer.config.classic import ClassicConfig
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.consumer import ConsumerConfig, MemberConfig
from asyncconsumer.config.delivery import DeliveryConfig
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.options import check_names, check_together, split
from asyncconsumer.config.text_values import parse_bool, parse_int
from asyncconsumer.config.validation import one_of, parse_servers, refuse_unknown, whole_number
from asyncconsumer.config.zookeeper import ZooKeeperConfig

__all__ = [
    "ClassicConfig",
    "ConnectionConfig",
    "ConsumerConfig",
    "DeliveryConfig",
    "EngineConfig",
    "FetchConfig",
    "MemberConfig",
    "ZooKeeperConfig",
    "check_names",
    "check_together",
    "one_of",
    "parse_bool",
    "parse_int",
    "parse_servers",
    "refuse_unknown",
    "split",
    "whole_number",
]

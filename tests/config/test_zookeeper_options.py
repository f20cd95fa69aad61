"""The options that a `Consumer` passes to its ZooKeeper group."""

import pytest

from asyncconsumer.config.consumer import ConsumerConfig
from asyncconsumer.config.security import security_options

pytestmark = pytest.mark.fast


def test_the_group_has_the_connection_options_of_the_consumer() -> None:
    config = ConsumerConfig.from_mapping(
        {
            "group_id": "g",
            "group_protocol": "zookeeper",
            "zookeeper_connect": "zk:2181",
            "bootstrap_servers": "kafka.example.com:9092",
            "client_id": "billing",
            "allowed_hosts": "*.example.com",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "u",
            "sasl_plain_password": "p",
            "sasl_kerberos_service_name": "brokers",
            "sasl_kerberos_domain_name": "example.com",
        }
    )
    assert config.zookeeper is not None
    names = (*security_options(config.connection), "client_id", "bootstrap_servers")
    assert {name: getattr(config.zookeeper, name) for name in names} == {
        name: getattr(config.connection, name) for name in names
    }
    assert config.zookeeper.allowed_hosts == "*.example.com"
    assert config.zookeeper.sasl_kerberos_service_name == "brokers"

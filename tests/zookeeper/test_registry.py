"""Registrations of brokers and topics in ZooKeeper, valid and invalid."""

import json
from typing import Any

import pytest

from asyncconsumer.errors import BadZnode
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.registry import (
    BrokerEndpoint,
    RegisteredBroker,
    parse_broker,
    parse_topic,
)

pytestmark = pytest.mark.fast


PATH = "/brokers/ids/1"


def registration(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (registration(host="k", port=9), [("PLAINTEXT", "PLAINTEXT", Address("k", 9))]),
        (
            registration(version=3, host="k", port=9, endpoints=["SSL://k:9093", "x"]),
            [("SSL", "SSL", Address("k", 9093))],
        ),
        (
            registration(
                version=5,
                features={},
                host=None,
                port=-1,
                endpoints=["IN://[::1]:1", "OUT://k.example:2"],
                listener_security_protocol_map={"IN": "SASL_SSL", "OUT": "PLAINTEXT"},
                surprise=[1],
            ),
            [("IN", "SASL_SSL", Address("::1", 1)), ("OUT", "PLAINTEXT", Address("k.example", 2))],
        ),
    ],
    ids=["first", "bad endpoint", "latest"],
)
def test_a_broker_of_any_version_is_parsed(data: bytes, endpoints: list[Any]) -> None:
    broker = RegisteredBroker(1, tuple(BrokerEndpoint(*each) for each in endpoints))
    assert parse_broker(PATH, data) == (1, broker)
    assert broker.address(endpoints[-1][1]) == endpoints[-1][2]
    assert broker.address("NONE") is None


HOSTILE: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "garbage": b"\x00\x01{",
    "not UTF-8": b'{"host": "\xff"}',
    "a list": b"[]",
    "a number": b"7",
    "deep": b"[" * 60_000,
    "no host": registration(port=9092),
    "empty host": registration(host="", port=9092),
    "host is a list": registration(host=["k"], port=9092),
    "host with a path": registration(host="k/../x", port=9092),
    "host with a newline": registration(host="k\nx", port=9092),
    "no port": registration(host="k"),
    "port as text": registration(host="k", port="9092"),
    "port -1": registration(host="k", port=-1),
    "port 70000": registration(host="k", port=70_000),
    "port true": registration(host="k", port=True),
    "port 1.5": registration(host="k", port=1.5),
    "endpoints are text": registration(endpoints="PLAINTEXT://k:1"),
    "endpoint port 70000": registration(endpoints=["PLAINTEXT://k:70000"]),
    "endpoint with a user": registration(endpoints=["PLAINTEXT://u@k:1"]),
    "endpoint is a number": registration(endpoints=[7]),
    "protocol is a list": registration(
        endpoints=["A://k:1"], listener_security_protocol_map={"A": []}
    ),
    "a megabyte": registration(host="k" * 2**20, port=1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_broker_is_reported(data: bytes | None) -> None:
    with pytest.raises(BadZnode, match=PATH) as caught:
        parse_broker(PATH, data)
    assert len(str(caught.value)) < 300


def test_a_topic_of_any_version_is_parsed() -> None:
    data = registration(version=3, partitions={"10": [1], "2": [0, 1], "0": []}, topic_id="x")
    assert parse_topic("/brokers/topics/t", data) == ("t", (0, 2, 10))


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"{}",
        registration(partitions=[0]),
        registration(partitions={"-1": []}),
        registration(partitions={"x": []}),
        registration(partitions={"٣": []}),
        registration(partitions={"2147483648": []}),
        registration(partitions={"9" * 5000: []}),
    ],
    ids=range(8),
)
def test_an_invalid_topic_is_reported(data: bytes | None) -> None:
    with pytest.raises(BadZnode, match="/brokers/topics/t"):
        parse_topic("/brokers/topics/t", data)

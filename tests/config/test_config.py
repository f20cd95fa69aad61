"""Connection options: accepted and refused values, messages, and secrets that are not shown."""

import ssl
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address

pytestmark = pytest.mark.fast

PASSWORD = "correct-horse"
CONTEXT = ssl.create_default_context()


class Token(AbstractTokenProvider):
    def __repr__(self) -> str:
        return PASSWORD

    async def token(self) -> str:
        return PASSWORD


def login(**changes: Any) -> ConnectionConfig:
    options: dict[str, Any] = {
        "bootstrap_servers": "k:9092",
        "security_protocol": "SASL_SSL",
        "ssl_context": CONTEXT,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    return ConnectionConfig(**options | changes)


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("k:1", [("k", 1)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        (["a:1", "a:1", "b:2"], [("a", 1), ("b", 2)]),
        ("[::1]:7,[fe80::2]", [("::1", 7), ("fe80::2", 9092)]),
        (("10.0.0.1:65535",), [("10.0.0.1", 65535)]),
    ],
)
def test_bootstrap_servers_are_parsed(servers: Any, addresses: list[tuple[str, int]]) -> None:
    config = ConnectionConfig(bootstrap_servers=servers)
    assert config.addresses == tuple(Address(*address) for address in addresses)


@pytest.mark.parametrize(
    "servers",
    ["", ",", [], "k:", "k:0", "k:65536", "k:x", "k:-1", "k:+1", "k:١", "k:" + "1" * 5000, ":9092",
     "::1", "[::1", "[k]:1", "kafka://k:1", "u@k:1", 9092, None, [9092], "a b:1"],
)  # fmt: skip
def test_invalid_bootstrap_servers_are_reported(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ConnectionConfig(bootstrap_servers=servers)


HOSTS = "kafka-1, *.Example.com., 10.0.0.0/8, ::1, 192.168.1.5"


@pytest.mark.parametrize("value", [HOSTS, HOSTS.split(",")])
def test_only_listed_hosts_are_allowed(value: Any) -> None:
    config = ConnectionConfig(bootstrap_servers="k", allowed_hosts=value)
    for host in (
        *("kafka-1", "KAFKA-1.", "a.example.com", "a.b.EXAMPLE.com"),
        *("10.255.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:10.1.1.1", "192.168.1.5"),
    ):
        assert config.allows(Address(host, 9092)), host
    for host in (
        *("k", "kafka-2", "kafka-1.org", "example.com", "notexample.com", "a.example.com.org", ""),
        *("11.0.0.1", "192.168.1.6", "::2", "127.0.0.1", "169.254.169.254"),
        *("10.1", "167772161", "0x0a.1", "10.0.0.1\0", "10.0.0.1 "),  # what resolvers take as well
    ):
        assert not config.allows(Address(host, 9092)), host
    assert ConnectionConfig(bootstrap_servers="k").allows(Address("anybody", 9092))


@pytest.mark.parametrize(
    "hosts",
    ["", [], "a,,b", "a:9092", "[::1]", "*", "*.", "a b", "10.0.0.5/8", "10.0.0.300", "127.1",
     "*.10", "http://a", 5, [5], [None], {"a"}],
)  # fmt: skip
def test_invalid_allowed_hosts_are_reported(hosts: Any) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts"):
        ConnectionConfig(bootstrap_servers="k", allowed_hosts=hosts)


def test_an_address_is_formatted_as_host_and_port() -> None:
    assert [str(Address("k", 1)), str(Address("::1", 2))] == ["k:1", "[::1]:2"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"security_protocol": "TLS"}, "`security_protocol` .* SASL_SSL, got 'TLS'"),
        ({"security_protocol": "sasl-ssl"}, "Did you mean SASL_SSL"),
        (
            {"security_protocol": "SSL"},
            "`sasl_plain_username` is set, .* to SASL_SSL",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT"},
            "`ssl_context` is set, .* to SSL or",
        ),
        ({"ssl_context": False}, "must be an ssl.SSLContext"),  # asyncio would not encrypt
        ({"ssl_context": ""}, "must be an ssl.SSLContext"),
        ({"sasl_mechanism": None}, "needs `sasl_mechanism`, one of PLAIN"),
        ({"sasl_mechanism": "SCRAM_SHA_512"}, "Did you mean SCRAM-SHA-512"),
        ({"sasl_plain_username": None}, "PLAIN needs `sasl_plain_username`"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_password": ""}, "needs `sasl_plain_pass"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "needs `sasl_oauth_token_provider`"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "t"}, "a function without"),
        (
            {"request_timeout_ms": 0},
            "`request_timeout_ms` must be a whole number from 1 to 2147483647, got 0",
        ),
        ({"request_timeout_ms": 1.5}, "`request_timeout_ms` .* got 1.5"),
        ({"max_frame_bytes": True}, "`max_frame_bytes` .* got True"),
        ({"reconnect_backoff_ms": 2_000}, "must not be more than `reconnect_backoff_max_ms`"),
    ],
)
def test_invalid_options_are_reported(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        login(**changes)
    assert PASSWORD not in str(caught.value)


def test_kerberos_without_its_package_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install gssapi"):
        login(sasl_mechanism="GSSAPI")


def test_no_secret_is_shown() -> None:
    oauth = login(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Token())
    for config in (login(), oauth):
        assert PASSWORD not in repr(config) + str(config)
    assert "alice" in repr(login())

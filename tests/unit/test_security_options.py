"""TLS options of other clients, and functions that make tokens."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer import ConfigError, Consumer, SimpleConsumer
from asyncconsumer.config import ClassicConfig, ConnectionConfig

pytestmark = pytest.mark.fast

SERVERS: dict[str, Any] = {"bootstrap_servers": "k:9092", "security_protocol": "SSL"}


@pytest.mark.parametrize(
    "name",
    [
        "ssl_cafile",
        "ssl_capath",
        "ssl_cadata",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_password",
        "ssl_ca_location",
        "ssl_certificate_location",
        "ssl_key_password",
    ],
)
def test_files_of_tls_are_answered_with_how_to_make_a_context(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no {name}: give ssl_context.*create_ssl_context") as it:
        Consumer("t", group_id="g", **SERVERS, **{name: "hunter2"})
    assert "hunter2" not in str(it.value)
    with pytest.raises(ConfigError, match="create_ssl_context"):
        SimpleConsumer(**SERVERS, **{name: "hunter2"})


def test_the_context_that_the_hint_names_can_be_made() -> None:
    from aiokafka.helpers import create_ssl_context

    names = {"cafile", "certfile", "keyfile", "password"}
    assert names <= create_ssl_context.__kwdefaults__.keys()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ssl.truststore.location", "Export the store to PEM files first"),
        ("ssl.ca.location", "create_ssl_context"),
        ("ssl.endpoint.identification.algorithm", "its check_hostname"),
        ("ssl.cipher.suites", "set_ciphers"),
    ],
)
def test_the_names_of_java_are_answered_as_well(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ClassicConfig.from_properties({"zookeeper.connect": "z", "group.id": "g", name: "x"})
    with pytest.raises(ConfigError, match=told):
        Consumer("t", group_id="g", **SERVERS, **{name: "x"})


def test_a_host_name_check_has_advice_of_its_own() -> None:
    with pytest.raises(ConfigError, match="its check_hostname"):
        Consumer("t", group_id="g", **SERVERS, ssl_check_hostname=False)


class Tokens(AbstractTokenProvider):
    async def token(self) -> str:
        return "a token"


async def awaited() -> str:
    await asyncio.sleep(0)
    return "a token"


def plain() -> str:
    assert threading.current_thread() is not threading.main_thread()
    return "a token"


class Callable_:  # noqa: N801 - `Callable` is taken
    def __call__(self) -> str:
        return "a token"


def login(provider: Any) -> ConnectionConfig:
    return ConnectionConfig(
        bootstrap_servers="k",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )


@pytest.mark.parametrize(
    "given", [Tokens(), Tokens, awaited, plain, lambda: awaited(), lambda: "a token", Callable_()]
)
async def test_whatever_makes_tokens_is_taken(given: object) -> None:
    provider = login(given).sasl_oauth_token_provider
    assert isinstance(provider, AbstractTokenProvider)
    assert await provider.token() == "a token"


@pytest.mark.parametrize("given", ["a token", 3, b"x"])
def test_whatever_makes_none_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="a function without arguments that returns a token"):
        login(given)


@pytest.mark.parametrize("make", [lambda: ("a token", 3600), lambda: None])
async def test_a_token_that_is_no_text_is_an_error(make: Callable[[], Any]) -> None:
    provider = login(make).sasl_oauth_token_provider
    assert isinstance(provider, AbstractTokenProvider)
    with pytest.raises(TypeError, match="a token must be a str"):
        await provider.token()


def test_a_classic_config_takes_functions_too() -> None:
    config = ClassicConfig(
        group_id="g",
        zookeeper_connect="z",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=plain,
    )
    assert isinstance(config.connection("k").sasl_oauth_token_provider, AbstractTokenProvider)

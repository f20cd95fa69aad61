"""TLS options of other clients, and functions that return tokens."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer import ConfigError, Consumer, SimpleConsumer
from asyncconsumer.config import ClassicConfig, ConnectionConfig

pytestmark = pytest.mark.fast

SERVERS: dict[str, Any] = {"bootstrap_servers": "k:9092", "security_protocol": "SSL"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("ssl_cadata", "Set `ssl_cafile` to a path or a PEM string"),
        ("ssl_ca_location", "Set `ssl_cafile`"),
        ("ssl_certificate_location", "Set `ssl_certfile`"),
        ("ssl_key_password", "Set `ssl_password`"),
        ("ssl_capath", "Set `ssl_cafile`, `ssl_certfile` and `ssl_keyfile`"),
    ],
)
def test_tls_options_of_other_clients_have_advice(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice) as raised:
        Consumer("t", group_id="g", **(SERVERS | {name: "hunter2"}))
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match=advice):
        SimpleConsumer(**(SERVERS | {name: "hunter2"}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ssl.truststore.location", "Export the store to PEM files"),
        ("ssl.truststore.certificates", "Set `ssl_cafile`"),
        ("ssl.ca.location", "Set `ssl_cafile`"),
        ("ssl.endpoint.identification.algorithm", "its check_hostname"),
        ("ssl.cipher.suites", "set_ciphers"),
    ],
)
def test_tls_options_of_java_have_advice(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassicConfig.from_properties({"zookeeper.connect": "z", "group.id": "g", name: "x"})
    with pytest.raises(ConfigError, match=message):
        Consumer("t", group_id="g", **(SERVERS | {name: "x"}))


def test_the_option_for_host_name_checks_has_advice() -> None:
    with pytest.raises(ConfigError, match="its check_hostname"):
        Consumer("t", group_id="g", **SERVERS, ssl_check_hostname=False)  # type: ignore[call-arg]


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
    "value", [Tokens(), Tokens, awaited, plain, lambda: awaited(), lambda: "a token", Callable_()]
)
async def test_objects_and_functions_that_return_tokens_are_accepted(value: object) -> None:
    provider = login(value).sasl_oauth_token_provider
    assert isinstance(provider, AbstractTokenProvider)
    assert await provider.token() == "a token"


def test_a_program_ends_while_a_token_function_hangs() -> None:
    answers = threading.Event()
    ended: list[bool] = []

    def hangs() -> str:
        ended.append(answers.wait(2))
        return "a token"

    async def main() -> None:
        provider = login(hangs).sasl_oauth_token_provider
        assert isinstance(provider, AbstractTokenProvider)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await provider.token()

    asyncio.run(main())  # waits for every thread of the default executor
    assert not ended
    answers.set()


async def test_a_token_function_sees_context_variables() -> None:
    name = ContextVar("name", default="nobody")
    name.set("somebody")
    provider = login(name.get).sasl_oauth_token_provider
    assert isinstance(provider, AbstractTokenProvider)
    assert await provider.token() == "somebody"


@pytest.mark.parametrize("value", ["a token", 3, b"x"])
def test_values_that_return_no_token_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="a function without arguments that returns a token"):
        login(value)


@pytest.mark.parametrize("make", [lambda: ("a token", 3600), lambda: None])
async def test_a_token_that_is_no_text_is_an_error(make: Callable[[], Any]) -> None:
    provider = login(make).sasl_oauth_token_provider
    assert isinstance(provider, AbstractTokenProvider)
    with pytest.raises(TypeError, match="a token must be a str"):
        await provider.token()


def test_a_classic_config_accepts_a_token_function() -> None:
    config = ClassicConfig(
        group_id="g",
        zookeeper_connect="z",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=plain,
    )
    assert isinstance(config.connection("k").sasl_oauth_token_provider, AbstractTokenProvider)

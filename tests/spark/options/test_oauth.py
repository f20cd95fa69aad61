"""Token providers of OAUTHBEARER."""

import asyncio
import threading

import pytest
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer import AzureEntra, Oidc
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.kafka import kafka_properties, make_configs
from asyncconsumer.spark.options.security import load_token_provider

pytestmark = pytest.mark.fast


class Tokens(AbstractTokenProvider):
    async def token(self) -> str:
        return "a token"


TOKENS, NUMBER = Tokens(), 3


async def make_token_async() -> str:
    await asyncio.sleep(0)
    return "a token"


def slow() -> str:
    assert threading.current_thread() is not threading.main_thread()
    return "a token"


class Holder:
    call = staticmethod(make_token_async)
    partly = staticmethod(lambda: make_token_async())


@pytest.mark.parametrize(
    "name", ["Tokens", "TOKENS", "make_token_async", "slow", "Holder.call", "Holder.partly"]
)
async def test_classes_objects_and_functions_can_provide_tokens(name: str) -> None:
    assert await load_token_provider(f"{__name__}:{name}").token() == "a token"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Java's login modules and callback handlers cannot run here"),
        ("no.such:thing", "No module named 'no'"),
        (f"{__name__}:nothing", "has no attribute 'nothing'"),
        (__name__, "'module:name' of a function"),
        (f"{__name__}:NUMBER", "is int"),
    ],
)
def test_wrong_names_of_token_providers_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_token_provider(name)


JAVA = {
    "kafka.bootstrap.servers": "a:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="a" clientSecret="s";',
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://a/b",
    "kafka.sasl.oauthbearer.scope": "read",
}
HANDLER = "kafka.sasl.login.callback.handler.class"


def test_javas_oidc_options_configure_a_provider() -> None:
    provider = make_configs(kafka_properties(JAVA))[0].sasl_oauth_token_provider
    assert isinstance(provider, Oidc)
    assert (provider.token_url, provider.client_id) == ("https://a/b", "a")


def test_a_callback_handler_of_java_is_refused_without_a_provider() -> None:
    with pytest.raises(ConfigError, match=r"some\.Handler is a Java class") as caught:
        kafka_properties({**JAVA, HANDLER: "some.Handler"})
    assert "clientSecret" not in str(caught.value)
    name = {"kafka.sasl.oauth.token.provider": f"{__name__}:Tokens"}
    result = kafka_properties({**JAVA, HANDLER: "some.Handler", **name})
    assert isinstance(make_configs(result)[0].sasl_oauth_token_provider, Tokens)


def test_the_scope_option_is_passed_to_the_entra_provider() -> None:
    pytest.importorskip("azure.identity")
    name = {"kafka.sasl.oauth.token.provider": "asyncconsumer:AzureEntra"}
    provider = make_configs(kafka_properties({**JAVA, **name}))[0].sasl_oauth_token_provider
    assert isinstance(provider, AzureEntra)
    assert provider.scope == "read"

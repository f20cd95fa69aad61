"""A token server, and a broker that verifies its tokens. It has a SCRAM listener, too."""

import asyncio
from collections.abc import Iterator

import pytest

from asyncconsumer.testing.servers import SASL_OAUTH, SASL_SCRAM, Kafka
from tests.support.token_server import TokenServer, open_token_server

VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
PREFIX = f"listener.name.{SASL_OAUTH.name.lower()}.oauthbearer.sasl"


@pytest.fixture(scope="package")
def server() -> Iterator[TokenServer]:
    with open_token_server() as server:
        yield server


@pytest.fixture(scope="package")
def verifying(server: TokenServer) -> Iterator[Kafka]:
    """Yield a broker that accepts only tokens that `server` signed for it."""
    config = {
        f"{PREFIX}.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": server.url,
    }
    kafka = Kafka(listeners=[SASL_OAUTH, SASL_SCRAM], config=config)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.keys_url}"
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())

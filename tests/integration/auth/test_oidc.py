"""Logins with tokens whose signatures a real broker verifies with the keys of the token server."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import Consumer, Oidc
from asyncconsumer.errors import ConsumerError, TokenNotIssued
from asyncconsumer.testing.servers import SASL_OAUTH, Kafka
from tests.net.test_connect import refusal
from tests.support.token_server import CLIENT, SECRET, TokenServer, open_token_server


def settings(kafka: Kafka) -> dict[str, Any]:
    assert kafka.certificates is not None
    return {
        "bootstrap_servers": kafka.addresses(SASL_OAUTH),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(kafka.certificates.authority_file),
        "sasl_mechanism": "OAUTHBEARER",
    }


async def read_one(kafka: Kafka, topic: str, consumer: Consumer[Any, Any]) -> bytes | None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"an order")
    async with consumer:
        value: bytes | None = (await anext(aiter(consumer))).value
        return value


async def test_a_consumer_logs_in_with_tokens_of_a_provider(
    verifying: Kafka, server: TokenServer
) -> None:
    tokens = Oidc(server.token_url, CLIENT, SECRET, scope="read")
    consumer = Consumer(
        "provided",
        sasl_oauth_token_provider=tokens,
        group_id="provided",
        auto_offset_reset="earliest",
        **settings(verifying),
    )
    await verifying.admin.create_topic("provided")
    assert await read_one(verifying, "provided", consumer) == b"an order"


async def test_a_consumer_logs_in_with_a_java_properties_file(
    verifying: Kafka, server: TokenServer, tmp_path: Path
) -> None:
    assert verifying.certificates is not None
    path = tmp_path / "client.properties"
    path.write_text(
        f"""bootstrap.servers={verifying.addresses(SASL_OAUTH)}
group.id=properties
auto.offset.reset=earliest
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={verifying.certificates.authority_file}
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url={server.token_url}
sasl.login.callback.handler.class=\\
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
    clientId="{CLIENT}" clientSecret="{SECRET}" scope="read" extension_team="billing";
"""
    )
    await verifying.admin.create_topic("properties")
    consumer = Consumer.from_config(path, "properties")
    assert await read_one(verifying, "properties", consumer) == b"an order"


async def test_a_client_that_the_token_server_refuses_is_reported(
    verifying: Kafka, server: TokenServer
) -> None:
    tokens = Oidc(server.token_url, CLIENT, "hunter2")
    error = await refusal(TokenNotIssued, **settings(verifying), sasl_oauth_token_provider=tokens)
    assert "invalid_client" in str(error)
    assert not error.retriable


async def test_a_token_of_another_server_is_refused_by_the_broker(verifying: Kafka) -> None:
    with open_token_server() as other:
        tokens = Oidc(other.token_url, CLIENT, SECRET)
        with pytest.raises(ConsumerError, match="invalid_token"):
            async with Consumer(
                "t", group_id="g", sasl_oauth_token_provider=tokens, **settings(verifying)
            ) as consumer:
                await anext(aiter(consumer))

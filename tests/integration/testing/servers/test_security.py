"""Secure listeners and ACLs of real brokers, with clients of aiokafka."""

import asyncio
import gc
import ssl
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

from asyncconsumer.testing.servers import (
    MUTUAL_TLS,
    SASL_OAUTH,
    SASL_PLAIN,
    SASL_PLAIN_UNENCRYPTED,
    SASL_SCRAM,
    SECURE,
    TLS,
    TLS_WRONG_HOST,
    Kafka,
    Listener,
    UnsecuredToken,
    ZooKeeper,
)
from tests.support.helpers import consume, produce

WORKING = [TLS, MUTUAL_TLS, SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH]
WITH_LOGIN = [SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH]


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def secure(request: pytest.FixtureRequest, _zookeeper_server: ZooKeeper) -> Iterator[Kafka]:
    """Yield a secured broker on KRaft, and one in ZooKeeper mode beside the one of the run."""
    chroot = _zookeeper_server.connect + "/secure" if request.param.startswith("3") else None
    kafka = Kafka(request.param, listeners=SECURE, acls=True, zookeeper=chroot)
    try:
        with asyncio.Runner() as runner:
            runner.run(kafka.start())
            runner.run(kafka.admin.create_topic("open"))
            runner.run(kafka.admin.allow("*", "topic", "open", "read", "write"))
            runner.run(kafka.admin.create_topic("closed"))
        yield kafka
    finally:
        with asyncio.Runner() as runner:
            runner.run(kafka.stop())


@pytest.mark.parametrize("listener", WORKING, ids=lambda listener: listener.name)
async def test_a_client_with_the_right_settings_produces_and_consumes(
    secure: Kafka, listener: Listener
) -> None:
    settings = secure.client_settings(listener)
    await produce("open", [b"value"], **settings)
    assert await consume("open", 1, **settings) == [b"value"]


@asynccontextmanager
async def aiokafka_client(settings: dict[str, Any]) -> AsyncIterator[AIOKafkaClient]:
    client = AIOKafkaClient(**settings)
    async with asyncio.timeout(20):
        yield client
        await client.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del client
        gc.collect()  # aiokafka leaves its socket to the collector when a login fails


async def refused(settings: dict[str, Any]) -> None:
    async with aiokafka_client(settings) as client:
        with pytest.raises(KafkaConnectionError):
            await client.bootstrap()


@pytest.mark.parametrize("listener", WITH_LOGIN[:3], ids=lambda listener: listener.name)
async def test_a_wrong_password_is_refused(secure: Kafka, listener: Listener) -> None:
    await refused(secure.client_settings(listener) | {"sasl_plain_password": "guessed"})


async def test_a_client_with_an_expired_token_gets_no_metadata(secure: Kafka) -> None:
    expired = UnsecuredToken("alice", timedelta(minutes=-5))
    settings = secure.client_settings(SASL_OAUTH) | {"sasl_oauth_token_provider": expired}
    async with aiokafka_client(settings) as client:
        await client.bootstrap()  # aiokafka does not notice the refused token,
        assert not client.cluster.brokers()  # and gets no metadata


async def test_a_client_without_a_certificate_is_refused(secure: Kafka) -> None:
    anonymous = secure.client_settings(TLS)["ssl_context"]
    await refused(secure.client_settings(MUTUAL_TLS) | {"ssl_context": anonymous})


async def test_a_client_refuses_a_certificate_for_another_host(secure: Kafka) -> None:
    await refused(secure.client_settings(TLS_WRONG_HOST))


async def test_a_client_refuses_an_unknown_authority(secure: Kafka) -> None:
    await refused(secure.client_settings(TLS) | {"ssl_context": ssl.create_default_context()})


@pytest.mark.parametrize("listener", WITH_LOGIN, ids=lambda listener: listener.name)
async def test_a_user_may_perform_granted_operations_only(
    secure: Kafka, listener: Listener
) -> None:
    settings = secure.client_settings(listener)
    with pytest.raises(TopicAuthorizationFailedError):
        await produce("closed", [b"value"], **settings)
    await secure.admin.allow("alice", "topic", "closed", "write")
    await produce("closed", [b"value"], **settings)
    await secure.admin.revoke("alice", "topic", "closed")
    with pytest.raises(TopicAuthorizationFailedError):
        await produce("closed", [b"value"], **settings)


UNENCRYPTED_SCRAM = Listener("SCRAMPLAINTEXT", "SASL_PLAINTEXT", "SCRAM-SHA-512")
UNENCRYPTED_OAUTH = Listener("OAUTHPLAINTEXT", "SASL_PLAINTEXT", "OAUTHBEARER")


async def test_logins_need_no_certificates() -> None:
    listeners = [SASL_PLAIN_UNENCRYPTED, UNENCRYPTED_SCRAM, UNENCRYPTED_OAUTH]
    async with Kafka(listeners=listeners) as kafka:
        await kafka.admin.create_topic("t")
        for number, listener in enumerate(listeners, 1):
            settings = kafka.client_settings(listener)
            await produce("t", [b"value"], **settings)
            assert await consume("t", number, **settings) == [b"value"] * number
        await refused(
            kafka.client_settings(SASL_PLAIN_UNENCRYPTED) | {"sasl_plain_password": "guessed"}
        )

"""Tokens by the client credentials grant."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from asyncconsumer import ConfigError, Oidc
from asyncconsumer.errors import TokenRequestFailed, TokenRequestRefused
from tests.support.token_server import CLIENT, SECRET, TokenServer, open_token_server

pytestmark = pytest.mark.fast


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with open_token_server() as server:
        yield server


def provider(server: TokenServer, secret: str = SECRET) -> Oidc:
    return Oidc(server.token_url, CLIENT, secret, scope="read", parameters={"audience": "kafka"})


async def test_a_token_is_requested_once_and_kept(server: TokenServer) -> None:
    tokens = provider(server)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tokens.token()) for _ in range(5)]
    assert len({task.result() for task in tasks}) == 1
    assert server.requests == [
        {"grant_type": ["client_credentials"], "scope": ["read"], "audience": ["kafka"]}
    ]


async def test_a_token_is_renewed_ahead_of_its_expiry(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("asyncconsumer.auth.cache.time.monotonic", lambda: now)
    tokens = provider(server)
    first = await tokens.token()
    now += 0.79 * server.lifetime
    assert await tokens.token() == first
    now += 0.02 * server.lifetime
    assert await tokens.token() != first


async def test_an_old_token_is_used_until_it_expires(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("asyncconsumer.auth.cache.time.monotonic", lambda: now)
    tokens = provider(server)
    first = await tokens.token()
    server.failure = 503, b""
    now += 0.9 * server.lifetime
    with caplog.at_level(logging.WARNING):
        assert await tokens.token() == first
    assert "status 503" in caplog.text
    now += 0.2 * server.lifetime
    with pytest.raises(TokenRequestFailed, match="503"):
        await tokens.token()


async def test_a_wrong_secret_is_final(server: TokenServer) -> None:
    with pytest.raises(TokenRequestRefused, match="invalid_client: unknown client") as caught:
        await provider(server, "hunter2").token()
    assert not caught.value.retriable
    assert "hunter2" not in str(caught.value) + repr(provider(server, "hunter2"))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b"oops", TokenRequestFailed),
        (429, b"{}", TokenRequestFailed),
        (302, b"", TokenRequestRefused),
        (404, b"", TokenRequestRefused),
        (200, b"no json", TokenRequestRefused),
        (200, b"{}", TokenRequestRefused),
    ],
)
async def test_unusable_token_responses_are_reported(
    server: TokenServer, status: int, body: bytes, kind: type[TokenRequestFailed]
) -> None:
    server.failure = status, body
    with pytest.raises(TokenRequestFailed) as caught:
        await provider(server).token()
    assert type(caught.value) is kind
    assert len(server.requests) == 1


async def test_a_refused_connection_to_the_token_server_is_retriable() -> None:
    with open_token_server() as server:
        tokens = provider(server)
    with pytest.raises(TokenRequestFailed, match="refused") as caught:
        await tokens.token()
    assert caught.value.retriable


@pytest.mark.parametrize("url", ["", "ftp://a/b", "https://", "https://user:hunter2@a/b"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="token URL") as caught:
        Oidc(url, CLIENT, SECRET)
    assert "hunter2" not in str(caught.value)


def test_a_missing_secret_is_reported() -> None:
    with pytest.raises(ConfigError, match="`client_secret`"):
        Oidc("https://a/b", CLIENT, "")

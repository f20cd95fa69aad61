"""Errors while a connection is opened, without a real broker."""

import asyncio
import socket
import ssl
import struct
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConnectFailed,
    ConsumerError,
    TokenRefused,
    TokenUnavailable,
    WrongCredentials,
)
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.types import Address
from tests.support.scripted_broker import VERSIONS, Line, broker

pytestmark = pytest.mark.fast

PASSWORD = "guessed-password"


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[BrokerConnection]:
    config = ConnectionConfig(**settings)
    async with asyncio.timeout(5):
        connection = await open_connection(config.addresses[0], config)
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def refusal(kind: type[ConsumerError], **settings: Any) -> ConsumerError:
    """Return the error of an opening, which must name the broker."""
    with pytest.raises(ConsumerError) as caught:
        async with opened(**settings):
            pass
    assert type(caught.value) is kind, caught.value
    assert str(settings["bootstrap_servers"]) in str(caught.value)
    return caught.value


def observed(error: BaseException) -> str:
    """Return the text of an error and of its causes."""
    chain: list[BaseException] = []
    while error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__ or error
    return "".join(f"{error!s} {error!r} {error.args!r}" for error in chain) + "".join(
        traceback.format_exception(chain[0])
    )


class KnownToken(AbstractTokenProvider):
    """A token provider whose token is known to the test."""

    def __init__(self, token: str) -> None:
        self.known = token

    async def token(self) -> str:
        return self.known


# --- simulated brokers -------------------------------------------------------------------------


async def test_a_refused_connection_is_retriable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await refusal(ConnectFailed, bootstrap_servers=f"127.0.0.1:{port}")
    assert error.retriable


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "a..b"])
async def test_an_unknown_host_is_reported(host: str) -> None:
    await refusal(ConnectFailed, bootstrap_servers=f"{host}:9092")


@pytest.mark.parametrize(
    "address", [Address("127.0.0.1", 70_000), Address("127.0.0.1", -1), Address("a\0b", 9092)]
)
async def test_an_invalid_address_is_reported(address: Address) -> None:
    with pytest.raises(ConnectFailed):
        await open_connection(address, ConnectionConfig(bootstrap_servers="k"))


async def test_a_silent_broker_is_given_up_after_the_connect_timeout() -> None:
    async with broker(Line.until_closed) as address:
        settings = {"bootstrap_servers": str(address), "connect_timeout_ms": 50}
        error = await refusal(ConnectFailed, **settings)
        assert "no connection within 0.05 s" in str(error)
        settings |= {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        await refusal(ConnectFailed, **settings)


async def test_a_connection_closed_during_the_login_is_retriable() -> None:
    async def hang_up(line: Line) -> None:
        await line.reader.read(1)

    async with broker(hang_up) as address:
        error = await refusal(ConnectFailed, bootstrap_servers=str(address))
        assert "during the login" in str(error)
        settings = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        await refusal(ConnectFailed, bootstrap_servers=str(address), **settings)


async def test_a_cancelled_opening_leaves_no_connection() -> None:
    came = asyncio.Event()
    gone = asyncio.Event()

    async def listen(line: Line) -> None:
        await line.asked()
        came.set()
        await line.until_closed()
        gone.set()

    async with broker(listen) as address, asyncio.timeout(5):
        config = ConnectionConfig(bootstrap_servers=str(address))
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(open_connection(address, config))
            await came.wait()
            opening.cancel()
        assert opening.cancelled()
        await gone.wait()


def served_by(authority: trustme.CA, **times: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", **times).configure_cert(context)
    return context


async def test_an_expired_certificate_is_refused() -> None:
    authority, trusting = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusting)
    over = datetime(2020, 1, 1, tzinfo=UTC)
    async with broker(Line.greet, ssl=served_by(authority, not_after=over)) as address:
        error = await refusal(
            CertificateRefused,
            bootstrap_servers=str(address),
            security_protocol="SSL",
            ssl_context=trusting,
        )
        assert "expired" in str(error)


# --- simulated logins --------------------------------------------------------------------------


def login_answer(data: bytes, code: int = 0, message: str = "", lifetime_ms: int = 0) -> bytes:
    text = message.encode()
    return (
        struct.pack(">hh", code, len(text))
        + text
        + struct.pack(">i", len(data))
        + data
        + struct.pack(">q", lifetime_ms)
    )


async def accept_mechanism(line: Line) -> None:
    await line.greet()
    asked = await line.asked()
    name = asked.body[2:]
    line.answer(asked, struct.pack(">hih", 0, 1, len(name)) + name)


def login(mechanism: str = "PLAIN", **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    return settings | changes


async def test_the_connection_knows_the_lifetime_of_its_login() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        line.answer(await line.asked(), login_answer(b"", lifetime_ms=60_000))
        await line.until_closed()

    async with (
        broker(play) as address,
        opened(bootstrap_servers=str(address), **login()) as connection,
    ):
        remaining = connection.expires - asyncio.get_running_loop().time()
        assert 0 < remaining <= 60 * 0.85


async def test_a_password_in_an_error_of_a_broker_is_not_quoted() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        line.answer(await line.asked(), login_answer(b"", 58, f"alice may not use {PASSWORD}"))
        await line.until_closed()

    async with broker(play) as address:
        error = await refusal(WrongCredentials, bootstrap_servers=str(address), **login())
        assert "alice may not use ***" in str(error)
        assert PASSWORD not in observed(error)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"r=%(nonce)s,s=AAAA,i=999999999",
        b"r=%(nonce)s,s=AAAA,i=1000000000000",
        b"r=another,s=AAAA,i=4096",
    ],
)
async def test_an_invalid_scram_response_is_refused(words: bytes) -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        asked = await line.asked()
        nonce = asked.body.rpartition(b"r=")[2]
        line.answer(asked, login_answer(words.replace(b"%(nonce)s", nonce + b"theirs")))
        await line.until_closed()

    async with broker(play) as address:
        settings = login("SCRAM-SHA-256", bootstrap_servers=str(address))
        error = await refusal(AuthenticationFailed, **settings)
        assert PASSWORD not in observed(error)


class BrokenProvider(AbstractTokenProvider):
    async def token(self) -> str:
        raise OSError("the identity provider is down")


def token_login(provider: AbstractTokenProvider) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


async def test_a_failed_token_provider_is_reported() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        await line.until_closed()

    async with broker(play) as address:
        settings = {"bootstrap_servers": str(address), **token_login(BrokenProvider())}
        error = await refusal(TokenUnavailable, **settings)
        assert error.retriable
        assert isinstance(error.__cause__, OSError)


async def test_a_refused_token_without_a_final_error_is_a_failed_login() -> None:
    sent = []

    async def play(line: Line) -> None:
        await accept_mechanism(line)
        line.answer(await line.asked(), login_answer(b'{"status":"invalid_token"}'))
        asked = await line.asked()
        sent.append(asked.body)
        line.answer(asked, login_answer(b""))
        await line.until_closed()

    async with broker(play) as address:
        settings = {"bootstrap_servers": str(address), **token_login(KnownToken("t0k3n"))}
        error = await refusal(TokenRefused, **settings)
    assert "invalid_token" in str(error)
    assert sent == [struct.pack(">i", 1) + b"\x01"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_token_in_an_error_of_a_broker_is_not_quoted(at_once: bool) -> None:
    words, token = "no " * 330 + "use for {}", PASSWORD * 10  # also not if it is cut

    async def play(line: Line) -> None:
        await accept_mechanism(line)
        if not at_once:
            line.answer(await line.asked(), login_answer(words.format(token).encode()))
        line.answer(await line.asked(), login_answer(b"", 58, words.format(token)))
        await line.until_closed()

    async with broker(play) as address:
        settings = {"bootstrap_servers": str(address), **token_login(KnownToken(token))}
        error = await refusal(TokenRefused, **settings)
        assert "no use for" in str(error)
        assert PASSWORD[:4] not in observed(error)


async def test_a_broker_without_sasl_handshake_is_reported() -> None:
    async def play(line: Line) -> None:
        await line.greet({api: spoken for api, spoken in VERSIONS.items() if api != 17})
        await line.until_closed()

    async with broker(play) as address:
        with pytest.raises(ConsumerError, match="SaslHandShakeRequest"):
            async with opened(bootstrap_servers=str(address), **login()):
                pass

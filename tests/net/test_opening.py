"""Opening connections: every way in, and an error of its own for every way it can fail."""

import asyncio
import base64
import logging
import socket
import ssl
import struct
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    AuthenticationFailed,
    CertificateRefused,
    ClientCertificateRefused,
    ConnectFailed,
    ConnectionLost,
    ConsumerError,
    NotTls,
    TlsFailed,
    TokenRefused,
    TokenUnavailable,
    WrongCredentials,
    WrongHost,
    WrongMechanism,
)
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.testing.servers import (
    INTERNAL,
    MUTUAL_TLS,
    SASL_OAUTH,
    SASL_PLAIN,
    SASL_PLAIN_UNENCRYPTED,
    SASL_SCRAM,
    TLS,
    TLS_WRONG_HOST,
    Kafka,
    Listener,
    UnsecuredToken,
)
from asyncconsumer.types import Address
from tests.net.scripted import VERSIONS, Line, broker

WORKING = [INTERNAL, TLS, MUTUAL_TLS, SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH]
PASSWORD = "guessed-password"
EXPIRED = UnsecuredToken("alice", timedelta(minutes=-5))


def client_settings(kafka: Kafka, listener: Listener) -> dict[str, Any]:
    return dict(kafka.client_settings(listener))


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
    """The error of an opening that must fail, and that names the broker."""
    with pytest.raises(ConsumerError) as caught:
        async with opened(**settings):
            pass
    assert type(caught.value) is kind, caught.value
    assert str(settings["bootstrap_servers"]) in str(caught.value)
    return caught.value


# --- real brokers --------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", WORKING, ids=lambda listener: listener.name)
async def test_the_right_settings_open_a_connection(secure: Kafka, listener: Listener) -> None:
    async with opened(**client_settings(secure, listener)) as connection:
        assert (await connection.request(MetadataRequest([]))).brokers
        assert connection.versions[3][1] >= 12


@pytest.mark.parametrize(
    "listener", [SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM], ids=lambda listener: listener.name
)
async def test_a_wrong_password(secure: Kafka, listener: Listener) -> None:
    settings = client_settings(secure, listener)
    error = await refusal(WrongCredentials, **settings | {"sasl_plain_password": PASSWORD})
    assert not error.retriable
    await refusal(WrongCredentials, **settings | {"sasl_plain_username": "nobody"})


async def test_a_wrong_mechanism_names_those_on_offer(secure: Kafka) -> None:
    settings = client_settings(secure, SASL_PLAIN) | {"sasl_mechanism": "SCRAM-SHA-512"}
    error = await refusal(WrongMechanism, **settings)
    assert isinstance(error, WrongMechanism)
    assert error.offered == ("PLAIN",)


async def test_an_expired_token(secure: Kafka) -> None:
    settings = client_settings(secure, SASL_OAUTH)
    error = await refusal(TokenRefused, **settings | {"sasl_oauth_token_provider": EXPIRED})
    assert "invalid_token" in str(error)


async def test_an_unknown_authority(secure: Kafka) -> None:
    settings = client_settings(secure, TLS) | {"ssl_context": ssl.create_default_context()}
    await refusal(CertificateRefused, **settings)


async def test_a_certificate_for_another_host(secure: Kafka) -> None:
    error = await refusal(WrongHost, **client_settings(secure, TLS_WRONG_HOST))
    assert "127.0.0.1" in str(error)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_missing_or_unknown(
    secure: Kafka, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    settings = client_settings(secure, MUTUAL_TLS)
    context = client_settings(secure, TLS)["ssl_context"]
    context.minimum_version = context.maximum_version = version
    await refusal(ClientCertificateRefused, **settings | {"ssl_context": context})
    stranger = tmp_path / "stranger.pem"
    trustme.CA().issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(stranger)
    context.load_cert_chain(stranger)
    await refusal(ClientCertificateRefused, **settings | {"ssl_context": context})


async def test_no_cipher_in_common(secure: Kafka) -> None:
    settings = client_settings(secure, TLS)
    settings["ssl_context"].maximum_version = ssl.TLSVersion.TLSv1_2
    settings["ssl_context"].set_ciphers("DHE-RSA-AES128-GCM-SHA256")  # the broker's key is no RSA
    error = await refusal(TlsFailed, **settings)
    assert "HANDSHAKE_FAILURE" in str(error)


async def test_tls_and_plaintext_are_told_apart(secure: Kafka) -> None:
    tls, plain = client_settings(secure, TLS), client_settings(secure, INTERNAL)
    error = await refusal(NotTls, **tls | {"bootstrap_servers": plain["bootstrap_servers"]})
    assert "speaks plaintext" in str(error)
    error = await refusal(NotTls, **plain | {"bootstrap_servers": tls["bootstrap_servers"]})
    assert "answers in TLS" in str(error)


async def test_a_login_where_none_is_taken_or_none_where_one_is_due(secure: Kafka) -> None:
    login, plain = (
        client_settings(secure, SASL_PLAIN_UNENCRYPTED),
        client_settings(secure, INTERNAL),
    )
    error = await refusal(
        AuthenticationFailed, **login | {"bootstrap_servers": plain["bootstrap_servers"]}
    )
    assert "takes no login" in str(error)
    async with opened(bootstrap_servers=login["bootstrap_servers"]) as connection:
        with pytest.raises(ConnectionLost, match="perhaps it wants a login"):
            await connection.request(MetadataRequest([]))


# --- secrets ------------------------------------------------------------------------------------


def forms(secret: str) -> Iterator[str]:
    """A secret as it may show up: as it is, or in what is sent for it."""
    yield secret
    yield base64.b64encode(secret.encode()).decode().rstrip("=")


def told(error: BaseException) -> str:
    """All that an error shows, its causes included."""
    chain: list[BaseException] = []
    while error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__ or error
    return "".join(f"{one!s} {one!r} {one.args!r}" for one in chain) + "".join(
        traceback.format_exception(chain[0])
    )


class KnownToken(AbstractTokenProvider):
    """A token that the test knows too."""

    def __init__(self, token: str) -> None:
        self.known = token

    async def token(self) -> str:
        return self.known


@pytest.mark.parametrize(
    "listener",
    [SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH],
    ids=lambda listener: listener.name,
)
async def test_no_secret_is_ever_shown(
    secure: Kafka, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    good = client_settings(secure, listener)
    if listener is SASL_OAUTH:
        provider = KnownToken(await good["sasl_oauth_token_provider"].token())
        stale = KnownToken(await EXPIRED.token())
        good["sasl_oauth_token_provider"] = provider
        bad = good | {"sasl_oauth_token_provider": stale}
        secrets = [provider.known, stale.known]
    else:
        bad = good | {"sasl_plain_password": PASSWORD}
        secrets = [good["sasl_plain_password"], PASSWORD]
    shown = [repr(ConnectionConfig(**settings)) for settings in (good, bad)]
    async with opened(**good) as connection:
        shown += [repr(connection), str(connection.ending)]
    with pytest.raises(AuthenticationFailed) as caught:
        async with opened(**bad):
            pass
    shown.append(told(caught.value))
    shown += [f"{record.getMessage()} {record.args!r} {record!r}" for record in caplog.records]
    assert len(caplog.records) > 2, "nothing was logged, so nothing was looked at"
    for secret in secrets:
        for form in forms(secret):
            assert form not in "\n".join(shown)


# --- brokers that a test plays -----------------------------------------------------------------


@pytest.mark.fast
async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await refusal(ConnectFailed, bootstrap_servers=f"127.0.0.1:{port}")
    assert error.retriable


@pytest.mark.fast
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "a..b"])
async def test_a_host_that_cannot_be(host: str) -> None:
    await refusal(ConnectFailed, bootstrap_servers=f"{host}:9092")


@pytest.mark.fast
@pytest.mark.parametrize(
    "address", [Address("127.0.0.1", 70_000), Address("127.0.0.1", -1), Address("a\0b", 9092)]
)
async def test_an_address_that_cannot_be(address: Address) -> None:
    with pytest.raises(ConnectFailed):
        await open_connection(address, ConnectionConfig(bootstrap_servers="k"))


@pytest.mark.fast
async def test_a_broker_that_says_nothing_is_given_up() -> None:
    async with broker(Line.until_closed) as address:
        settings = {"bootstrap_servers": str(address), "connect_timeout_ms": 50}
        error = await refusal(ConnectFailed, **settings)
        assert "no connection within 0.05 s" in str(error)
        settings |= {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        await refusal(ConnectFailed, **settings)


@pytest.mark.fast
async def test_a_broker_that_hangs_up_is_worth_another_try() -> None:
    async def hang_up(line: Line) -> None:
        await line.reader.read(1)

    async with broker(hang_up) as address:
        error = await refusal(ConnectFailed, bootstrap_servers=str(address))
        assert "while it was opened" in str(error)
        settings = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        await refusal(ConnectFailed, bootstrap_servers=str(address), **settings)


@pytest.mark.fast
async def test_an_opening_that_is_cancelled_leaves_nothing() -> None:
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


@pytest.mark.fast
async def test_an_expired_certificate() -> None:
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


# --- logins that a test plays ------------------------------------------------------------------


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


@pytest.mark.fast
async def test_a_login_that_will_end_is_known_to_the_connection() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        line.answer(await line.asked(), login_answer(b"", lifetime_ms=60_000))
        await line.until_closed()

    async with (
        broker(play) as address,
        opened(bootstrap_servers=str(address), **login()) as connection,
    ):
        left = connection.expires - asyncio.get_running_loop().time()
        assert 0 < left <= 60 * 0.85


@pytest.mark.fast
async def test_a_broker_that_repeats_the_password_is_not_quoted() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        line.answer(await line.asked(), login_answer(b"", 58, f"alice may not use {PASSWORD}"))
        await line.until_closed()

    async with broker(play) as address:
        error = await refusal(WrongCredentials, bootstrap_servers=str(address), **login())
        assert "alice may not use ***" in str(error)
        assert PASSWORD not in told(error)


@pytest.mark.fast
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
async def test_a_broker_that_does_not_know_scram(words: bytes) -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        asked = await line.asked()
        nonce = asked.body.rpartition(b"r=")[2]
        line.answer(asked, login_answer(words.replace(b"%(nonce)s", nonce + b"theirs")))
        await line.until_closed()

    async with broker(play) as address:
        settings = login("SCRAM-SHA-256", bootstrap_servers=str(address))
        error = await refusal(AuthenticationFailed, **settings)
        assert PASSWORD not in told(error)


class BrokenProvider(AbstractTokenProvider):
    async def token(self) -> str:
        raise OSError("the identity provider is down")


def token_login(provider: AbstractTokenProvider) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.mark.fast
async def test_a_token_provider_that_fails_is_named() -> None:
    async def play(line: Line) -> None:
        await accept_mechanism(line)
        await line.until_closed()

    async with broker(play) as address:
        settings = {"bootstrap_servers": str(address), **token_login(BrokenProvider())}
        error = await refusal(TokenUnavailable, **settings)
        assert error.retriable
        assert isinstance(error.__cause__, OSError)


@pytest.mark.fast
async def test_a_broker_that_refuses_a_token_and_then_forgets_to_fail() -> None:
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


@pytest.mark.fast
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_broker_that_repeats_the_token_is_not_quoted(at_once: bool) -> None:
    words, token = "no " * 330 + "use for {}", PASSWORD * 10  # also not where it is cut

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
        assert PASSWORD[:4] not in told(error)


@pytest.mark.fast
async def test_a_broker_without_logins_in_its_versions() -> None:
    async def play(line: Line) -> None:
        await line.greet({api: spoken for api, spoken in VERSIONS.items() if api != 17})
        await line.until_closed()

    async with broker(play) as address:
        with pytest.raises(ConsumerError, match="SaslHandShakeRequest"):
            async with opened(bootstrap_servers=str(address), **login()):
                pass

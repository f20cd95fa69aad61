"""Connections to real brokers over each listener, and their errors."""

import asyncio
import base64
import logging
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    AuthenticationFailed,
    CertificateRefused,
    ClientCertificateRefused,
    ConnectionLost,
    NotTls,
    TlsFailed,
    TokenRefused,
    WrongCredentials,
    WrongHost,
    WrongMechanism,
)
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
from tests.net.test_connect import PASSWORD, KnownToken, observed, opened, refusal

WORKING = [INTERNAL, TLS, MUTUAL_TLS, SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH]
EXPIRED = UnsecuredToken("alice", timedelta(minutes=-5))


def client_settings(kafka: Kafka, listener: Listener) -> dict[str, Any]:
    return dict(kafka.client_settings(listener))


# --- real brokers --------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", WORKING, ids=lambda listener: listener.name)
async def test_a_connection_opens_over_each_listener(secure: Kafka, listener: Listener) -> None:
    async with opened(**client_settings(secure, listener)) as connection:
        assert (await connection.request(MetadataRequest([]))).brokers
        assert connection.versions[3][1] >= 12


@pytest.mark.parametrize(
    "listener", [SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM], ids=lambda listener: listener.name
)
async def test_a_wrong_password_is_refused(secure: Kafka, listener: Listener) -> None:
    settings = client_settings(secure, listener)
    error = await refusal(WrongCredentials, **settings | {"sasl_plain_password": PASSWORD})
    assert not error.retriable
    await refusal(WrongCredentials, **settings | {"sasl_plain_username": "nobody"})


async def test_the_error_for_a_wrong_mechanism_names_the_offered_ones(secure: Kafka) -> None:
    settings = client_settings(secure, SASL_PLAIN) | {"sasl_mechanism": "SCRAM-SHA-512"}
    error = await refusal(WrongMechanism, **settings)
    assert isinstance(error, WrongMechanism)
    assert error.offered == ("PLAIN",)


async def test_an_expired_token_is_refused(secure: Kafka) -> None:
    settings = client_settings(secure, SASL_OAUTH)
    error = await refusal(TokenRefused, **settings | {"sasl_oauth_token_provider": EXPIRED})
    assert "invalid_token" in str(error)


async def test_a_certificate_of_an_unknown_authority_is_refused(secure: Kafka) -> None:
    settings = client_settings(secure, TLS) | {"ssl_context": ssl.create_default_context()}
    await refusal(CertificateRefused, **settings)


async def test_a_certificate_for_another_host_is_refused(secure: Kafka) -> None:
    error = await refusal(WrongHost, **client_settings(secure, TLS_WRONG_HOST))
    assert "127.0.0.1" in str(error)


@pytest.mark.parametrize("as_text", [False, True], ids=["files", "strings"])
async def test_tls_options_accept_files_and_pem_strings(secure: Kafka, *, as_text: bool) -> None:
    assert secure.certificates is not None
    paths = {
        "ssl_cafile": secure.certificates.authority_file,
        "ssl_certfile": secure.certificates.client_file,
    }
    files = {name: path.read_text() if as_text else str(path) for name, path in paths.items()}
    settings = client_settings(secure, MUTUAL_TLS)
    del settings["ssl_context"]
    async with opened(**settings, **files) as connection:
        assert (await connection.request(MetadataRequest([]))).brokers
    del files["ssl_certfile"]
    await refusal(ClientCertificateRefused, **settings, **files)
    await refusal(CertificateRefused, **settings)  # only the system's authorities are trusted
    wrong_host = client_settings(secure, TLS_WRONG_HOST)
    del wrong_host["ssl_context"]
    await refusal(WrongHost, **wrong_host, **files)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_or_unknown_client_certificate_is_refused(
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


async def test_a_handshake_without_a_common_cipher_fails(secure: Kafka) -> None:
    settings = client_settings(secure, TLS)
    settings["ssl_context"].maximum_version = ssl.TLSVersion.TLSv1_2
    settings["ssl_context"].set_ciphers("DHE-RSA-AES128-GCM-SHA256")  # the broker's key is no RSA
    error = await refusal(TlsFailed, **settings)
    assert "HANDSHAKE_FAILURE" in str(error)


async def test_tls_and_plaintext_are_distinguished(secure: Kafka) -> None:
    tls, plain = client_settings(secure, TLS), client_settings(secure, INTERNAL)
    error = await refusal(NotTls, **tls | {"bootstrap_servers": plain["bootstrap_servers"]})
    assert "responds in plaintext" in str(error)
    error = await refusal(NotTls, **plain | {"bootstrap_servers": tls["bootstrap_servers"]})
    assert "responds with TLS" in str(error)


async def test_an_unexpected_login_and_a_missing_login_are_distinguished(secure: Kafka) -> None:
    login, plain = (
        client_settings(secure, SASL_PLAIN_UNENCRYPTED),
        client_settings(secure, INTERNAL),
    )
    error = await refusal(
        AuthenticationFailed, **login | {"bootstrap_servers": plain["bootstrap_servers"]}
    )
    assert "accepts no login" in str(error)
    async with opened(bootstrap_servers=login["bootstrap_servers"]) as connection:
        with pytest.raises(ConnectionLost, match="it may require a login"):
            await connection.request(MetadataRequest([]))


# --- secrets ------------------------------------------------------------------------------------


def forms(secret: str) -> Iterator[str]:
    """Yield a secret as text, and as Base64."""
    yield secret
    yield base64.b64encode(secret.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "listener",
    [SASL_PLAIN, SASL_PLAIN_UNENCRYPTED, SASL_SCRAM, SASL_OAUTH],
    ids=lambda listener: listener.name,
)
async def test_no_repr_error_or_log_contains_a_secret(
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
    shown.append(observed(caught.value))
    shown += [f"{record.getMessage()} {record.args!r} {record!r}" for record in caplog.records]
    assert len(caplog.records) > 2, "nothing was logged, so no log was checked"
    for secret in secrets:
        for form in forms(secret):
            assert form not in "\n".join(shown)

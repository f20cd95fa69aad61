"""SSL contexts created from the options."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from asyncconsumer import ConfigError
from asyncconsumer.config import ClassicConfig, ConnectionConfig, ConsumerConfig

pytestmark = pytest.mark.fast

AUTHORITY = trustme.CA()
CLIENT = AUTHORITY.issue_cert("client.example")
CERTIFICATE = b"".join(blob.bytes() for blob in CLIENT.cert_chain_pems).decode()
KEY = CLIENT.private_key_pem.bytes().decode()
ENCRYPTED_KEY = (
    load_pem_private_key(KEY.encode(), password=None)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2"))
    .decode()
)
CA = AUTHORITY.cert_pem.bytes().decode()


def config(**options: Any) -> ConnectionConfig:
    return ConnectionConfig(**{"bootstrap_servers": "k", "security_protocol": "SSL", **options})


def context(**options: Any) -> ssl.SSLContext:
    tls = config(**options).tls
    assert tls is not None
    return tls


@pytest.mark.parametrize("options", [{}, {"ssl_cafile": CA}], ids=["system", "own"])
def test_brokers_are_verified(options: dict[str, str]) -> None:
    tls = context(**options)
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_2


def test_only_the_given_authorities_are_trusted(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    path.write_text(CA)
    for tls in (context(ssl_cafile=CA), context(ssl_cafile=str(path))):
        assert [each["serialNumber"] for each in tls.get_ca_certs()] == [
            f"{AUTHORITY._certificate.serial_number:X}".zfill(40)
        ]


def test_a_key_may_be_separate_in_the_certificate_file_or_encrypted(tmp_path: Path) -> None:
    key, together = tmp_path / "key.pem", tmp_path / "both.pem"
    key.write_text(KEY)
    together.write_text(KEY + CERTIFICATE)
    context(ssl_certfile=CERTIFICATE, ssl_keyfile=KEY)
    context(ssl_certfile=CERTIFICATE, ssl_keyfile=str(key))
    context(ssl_certfile=str(together))
    context(ssl_certfile=CERTIFICATE, ssl_keyfile=ENCRYPTED_KEY, ssl_password="hunter2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl_cafile": "/no/such.pem"}, "`ssl_cafile` '/no/such.pem' cannot be read"),
        ({"ssl_cafile": "-----BEGIN X-----"}, "`ssl_cafile` cannot be loaded: .* that it is PEM"),
        ({"ssl_certfile": CERTIFICATE}, "`ssl_certfile` cannot be loaded"),
        ({"ssl_certfile": CERTIFICATE, "ssl_keyfile": ENCRYPTED_KEY}, "and `ssl_password`"),
        (
            {"ssl_certfile": CERTIFICATE, "ssl_keyfile": ENCRYPTED_KEY, "ssl_password": "wrong"},
            "and `ssl_password`",
        ),
        ({"ssl_keyfile": KEY}, "`ssl_keyfile` needs `ssl_certfile`"),
        ({"ssl_password": "x"}, "`ssl_password` needs `ssl_certfile`"),
        ({"ssl_cafile": 5}, "`ssl_cafile` must be a string"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_cafile": CA},
            "`ssl_context` and `ssl_cafile` are both set",
        ),
        (
            {"security_protocol": "PLAINTEXT", "ssl_cafile": CA},
            "`ssl_cafile` is set, but `security_protocol` PLAINTEXT does not use TLS",
        ),
    ],
)
def test_invalid_tls_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        config(**options)
    assert "PRIVATE KEY" not in str(raised.value)
    assert "wrong" not in str(raised.value)


def test_no_secret_is_shown() -> None:
    shown = repr(
        config(ssl_certfile=CERTIFICATE, ssl_keyfile=ENCRYPTED_KEY, ssl_password="hunter2")
    )
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown


def test_classic_and_zookeeper_configs_have_the_same_tls_options() -> None:
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": CA}
    classic = ClassicConfig(group_id="g", zookeeper_connect="z", **options)
    assert classic.connection("k").tls is not None
    in_zookeeper = ConsumerConfig.from_options(
        group_protocol="zookeeper", group_id="g", zookeeper_connect="z", **options
    )
    assert in_zookeeper.zookeeper is not None
    assert in_zookeeper.zookeeper.ssl_cafile == CA
    assert in_zookeeper.connection_to(["k:9093"]).tls is not None

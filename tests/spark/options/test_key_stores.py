"""Key stores and trust stores, written by Java's keytool."""

import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificates

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.kafka import make_configs
from asyncconsumer.spark.options.key_stores import read_key_store
from asyncconsumer.testing.servers.java import find_java

PASSWORD, KEY_PASSWORD = "store-secret", "key-secret"
KAFKA = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def keytool(*arguments: str | Path) -> None:
    tool = Path(find_java(oldest=17)).with_name("keytool")
    run = [str(tool), "-J-XX:TieredStopAtLevel=1", *map(str, arguments)]
    subprocess.run(run, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def write_stores(folder: Path, authority: Path, own: Path) -> None:
    """Write trust stores and key stores of both types to `folder`, called trust.TYPE and keys.TYPE.

    `authority` and `own` are PEM files.
    """
    pem = own.read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey)
    certificate, *others = load_pem_x509_certificates(pem)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    packed = serialize_key_and_certificates(b"own", key, certificate, others, encryption)
    (folder / "own.p12").write_bytes(packed)
    for kind in ("jks", "pkcs12"):
        common = ["-noprompt", "-storetype", kind, "-storepass", PASSWORD]
        trust, keys = folder / f"trust.{kind}", folder / f"keys.{kind}"
        keytool("-importcert", "-file", authority, "-keystore", trust, *common)
        key_password = KEY_PASSWORD if kind == "jks" else PASSWORD
        keytool(
            *("-importkeystore", "-noprompt", "-srckeystore", folder / "own.p12"),
            *("-srcstorepass", PASSWORD, "-destkeystore", keys, "-deststoretype", kind),
            *("-deststorepass", PASSWORD, "-destkeypass", key_password, "-srcalias", "own"),
        )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("client")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "own.pem")
    write_stores(folder, folder / "ca.pem", folder / "own.pem")
    return folder


def context(folder: Path, trust: str, keys: str, **more: str) -> ssl.SSLContext:
    options = {
        "ssl.truststore.location": str(folder / trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(folder / keys),
        "ssl.keystore.password": PASSWORD,
        **more,
    }
    result = make_configs(KAFKA | options)[0].ssl_context
    assert result is not None
    return result


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_key_stores_and_trust_stores_of_java_are_read(
    stores: Path, authority: trustme.CA, kind: str
) -> None:
    more = {"ssl.key.password": KEY_PASSWORD} if kind == "jks" else {}
    client = context(stores, f"trust.{kind}", f"keys.{kind}", **more)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(server)
    authority.issue_cert("broker.example").configure_cert(server)
    server.verify_mode = ssl.CERT_REQUIRED
    assert "client" in shake_hands(client, server)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Connect both in memory. Return the names in the client's certificate."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname="broker.example"),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = ends[1].getpeercert()
    assert certificate is not None
    return str(certificate["subjectAltName"])


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_the_type_of_a_store_is_detected(stores: Path, kind: str) -> None:
    for named in ("JKS", "PKCS12"):  # Java detects the type, too
        more = {"ssl.truststore.type": named, "ssl.key.password": KEY_PASSWORD}
        assert len(context(stores, f"trust.{kind}", "keys.jks", **more).get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("keys", "more", "message"),
    [
        ("keys.jks", {"ssl.keystore.password": "wrong"}, "keystore.location.*password is wrong"),
        ("keys.pkcs12", {"ssl.keystore.password": "wrong"}, "the password is wrong"),
        ("keys.jks", {"ssl.key.password": "wrong"}, "private key in the JKS file is wrong"),
        ("keys.jks", {"ssl.truststore.password": "wrong"}, "truststore.location.*is wrong"),
        ("trust.jks", {}, "must have one private key, and has 0"),
        ("keys.jks", {"ssl.keystore.type": "BKS"}, "type` is BKS, and .* not a PEM file"),
    ],
)
def test_the_error_for_an_unreadable_store_names_the_cause(
    stores: Path, keys: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        context(stores, "trust.jks", keys, **more)
    assert "secret" not in str(caught.value)


def test_corrupt_stores_are_refused(stores: Path) -> None:
    data = (stores / "keys.jks").read_bytes()
    for broken in (data[:40], data[:-1], b"\xce\xce\xce\xce", b"", b"\x30\x00"):
        with pytest.raises(ConfigError):
            read_key_store(broken, PASSWORD)
    for size in range(4, len(data), 97):  # without a password, no checksum is verified
        with pytest.raises(ConfigError):
            read_key_store(data[:size], None, KEY_PASSWORD)

"""Java's key stores and trust stores, converted to PEM.

A JKS file is read here. A PKCS12 file is read by the package cryptography. Java writes PKCS12 since
version 9, also into files that are called `.jks`. So the format is recognized by the contents.
"""

import base64
import hashlib
import hmac
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from asyncconsumer.errors import ConfigError

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_PASSWORD_SALT: Final = b"Mighty Aphrodite"  # part of the format
_HASH_BYTES: Final = 20  # also the size of salts
_SEQUENCE: Final = 0x30  # how a PKCS12 file begins
_KEY: Final = 1  # the kinds of entries
_CERTIFICATE: Final = 2
_ADVICE: Final = (
    "Convert it with `keytool -importkeystore -deststoretype pkcs12`, or to a PEM file with "
    "`openssl pkcs12 -nodes`"
)


@dataclass(slots=True)
class KeyStore:
    """The contents of a key store or trust store, as PEM."""

    trusted: list[str] = field(default_factory=list)  # certificates of authorities
    keys: list[tuple[str, list[str]]] = field(default_factory=list, repr=False)
    """Private keys, each with its certificate and those of its authorities."""


def read_key_store(data: bytes, password: str | None, key_password: str | None = None) -> KeyStore:
    """Return the contents of a key store or trust store, from the bytes of a JKS or PKCS12 file.

    `password` is that of the store. `key_password` is that of its private keys, by default the
    same. Raise ConfigError if the file cannot be read. The message has no secrets.
    """
    if data.startswith(_JKS):
        return _Jks(data, password, key_password or password).read()
    if data.startswith(_JCEKS):
        raise ConfigError(f"JCEKS files are not supported. {_ADVICE}.")
    if data[:1] == bytes([_SEQUENCE]):
        return _read_pkcs12(data, password)
    raise ConfigError("it is no PEM, PKCS12 or JKS file.")


def _read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            "PKCS12 files need the package cryptography, on the driver and on executors. Install "
            "it, or convert the file with `openssl pkcs12 -nodes` to PEM."
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigError("the password is wrong, or the PKCS12 file is incomplete.") from None

    def pem(certificate: pkcs12.PKCS12Certificate) -> str:
        return certificate.certificate.public_bytes(serialization.Encoding.PEM).decode()

    others = [pem(certificate) for certificate in store.additional_certs]
    if store.key is None or store.cert is None:
        return KeyStore(trusted=others)
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    own = pem(store.cert)
    return KeyStore(trusted=[own], keys=[(key, [own, *others])])


class _Jks:
    """A reader of a JKS file. Its numbers are big-endian, and its texts follow their lengths."""

    def __init__(self, data: bytes, password: str | None, key_password: str | None) -> None:
        self._data = data
        self._password = password
        self._key_password = key_password
        self._index = len(_JKS)

    def read(self) -> KeyStore:
        """Return the contents of the file."""
        if self._password is not None:  # Java reads certificates without a check, too
            body, digest = self._data[:-_HASH_BYTES], self._data[-_HASH_BYTES:]
            known = hashlib.sha1(_utf16(self._password) + _PASSWORD_SALT + body)  # noqa: S324
            if not hmac.compare_digest(known.digest(), digest):
                raise ConfigError("the password is wrong, or the JKS file is incomplete.")
        store, version = KeyStore(), self._number(4)
        for _ in range(self._number(4)):
            kind = self._number(4)
            self._bytes(self._number(2))  # the alias
            self._bytes(8)  # the time of creation
            if kind == _KEY:
                encrypted = self._bytes(self._number(4))
                chain = [self._certificate(version) for _ in range(self._number(4))]
                store.keys.append((self._key(encrypted), chain))
                store.trusted += chain[:1]
            elif kind == _CERTIFICATE:
                store.trusted.append(self._certificate(version))
            else:
                raise ConfigError("the JKS file is incomplete.")
        return store

    def _certificate(self, version: int) -> str:
        if version > 1:
            self._bytes(self._number(2))  # its type, which is X.509
        return ssl.DER_cert_to_PEM_cert(self._bytes(self._number(4)))

    def _key(self, encrypted: bytes) -> str:
        """Decrypt a private key and return it as PEM.

        JKS encrypts a key with a stream of SHA-1 hashes. Raise ConfigError if the password is
        missing or wrong.
        """
        if self._key_password is None:
            raise ConfigError("the password of the JKS file is missing.")
        password, content = _utf16(self._key_password), _octets(encrypted)
        salt, content = content[:_HASH_BYTES], content[_HASH_BYTES:]
        content, digest = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
        stream = b"".join(_hashes(password, salt, len(content)))
        plain = bytes(a ^ b for a, b in zip(content, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(password + plain).digest(), digest):  # noqa: S324
            raise ConfigError("the password of the private key in the JKS file is wrong.")
        text = base64.encodebytes(plain).decode()
        return f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n"

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size))

    def _bytes(self, size: int) -> bytes:
        start, self._index = self._index, self._index + size
        if self._index > len(self._data):
            raise ConfigError("the JKS file is incomplete.")
        return self._data[start : self._index]


def _hashes(password: bytes, salt: bytes, size: int) -> Iterator[bytes]:
    """Yield hashes of at least `size` bytes in total.

    Each hash is computed from the password and the hash before it.
    """
    for _ in range(0, size, _HASH_BYTES):
        salt = hashlib.sha1(password + salt).digest()  # noqa: S324 - part of the format
        yield salt


def _octets(encrypted: bytes) -> bytes:
    """Return the encrypted key, which is the octet string in a DER sequence after an algorithm."""
    _, content = _value(encrypted)
    algorithm, _ = _value(content)
    _, octets = _value(content[algorithm:])
    return octets


def _value(data: bytes) -> tuple[int, bytes]:
    """Return the size of the DER value at the start of `data`, header included, and its content."""
    if len(data) < 2:
        raise ConfigError("the JKS file is incomplete.")
    size, start = data[1], 2
    if size >= 0x80:
        start += size - 0x80
        size = int.from_bytes(data[2:start])
    return start + size, data[start : start + size]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")

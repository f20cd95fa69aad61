"""SASL login with DIGEST-MD5 (RFC 2831), which ZooKeeper supports besides Kerberos."""

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from asyncconsumer.errors import AuthFailed
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.requests import Call

_FIELD: Final = re.compile(r'([\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]*))(?:,\s*|$)')
_URI: Final = "zookeeper/zk-sasl-md5"  # as in ZooKeeper's own clients


async def login(send: Callable[[Call[bytes]], Awaitable[bytes]], user_and_password: str) -> None:
    """Log in with DIGEST-MD5, and check that the server knows the password as well.

    `send` sends one step of the login and returns the server's response. If the server's proof is
    wrong, raise AuthFailed.
    """
    user, _, password = user_and_password.partition(":")
    challenge = _fields(await send(requests.sasl(b"")))
    if "nonce" not in challenge:
        raise AuthFailed("/", "the server sent a challenge that is not DIGEST-MD5")
    proof = Proof(user, password, challenge, secrets.token_hex(16))
    answer = _fields(await send(requests.sasl(proof.response())))
    if not secrets.compare_digest(answer.get("rspauth", ""), proof.digest("")):
        raise AuthFailed("/", "the server does not know the password of SASL user " + repr(user))


class Proof:
    """The response to one DIGEST-MD5 challenge of a server, made with the password."""

    def __init__(self, user: str, password: str, challenge: dict[str, str], cnonce: str) -> None:
        self._user = user
        self._realm = challenge.get("realm", "")
        self._nonce = challenge["nonce"]
        self._cnonce = cnonce
        secret = _md5(f"{user}:{self._realm}:{password}".encode()).digest()
        self._key = _md5(secret + f":{self._nonce}:{cnonce}".encode()).hexdigest()

    def __repr__(self) -> str:
        return f"<Proof for {self._user}>"

    def digest(self, method: str) -> str:
        """Return the digest that proves the password.

        `method` is `AUTHENTICATE` for the client's digest and empty for that of the server.
        """
        uri_hash = _md5(f"{method}:{_URI}".encode()).hexdigest()
        text = f"{self._key}:{self._nonce}:00000001:{self._cnonce}:auth:{uri_hash}"
        return _md5(text.encode()).hexdigest()

    def response(self) -> bytes:
        """Return the response to the server's challenge."""
        return (
            f"charset=utf-8,username={_quoted(self._user)},realm={_quoted(self._realm)},"
            f"nonce={_quoted(self._nonce)},nc=00000001,cnonce={_quoted(self._cnonce)},"
            f'digest-uri="{_URI}",response={self.digest("AUTHENTICATE")},qop=auth'
        ).encode()


def _fields(token: bytes) -> dict[str, str]:
    text = token.decode()
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _FIELD.findall(text)
    }


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)  # required by DIGEST-MD5

"""An OAuth 2 server: a token endpoint for the client credentials grant, and its key set."""

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT, SECRET = "billing", "s&cret/+"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer:
    """The state of the server. A test may change its answers."""

    def __init__(self) -> None:
        self.key = generate_private_key(65537, 2048)
        self.lifetime: float = 3600
        self.requests: list[dict[str, list[str]]] = []
        self.failure: tuple[int, bytes] | None = None
        self.url = ""

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        n, e = (
            encode(number.to_bytes((number.bit_length() + 7) // 8))
            for number in (numbers.n, numbers.e)
        )
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": n, "e": e}
        return {"keys": [key]}

    def issue(self, scope: str) -> str:
        now = datetime.now(UTC).timestamp()
        claims = {
            "iss": self.url,
            "aud": "kafka",
            "sub": CLIENT,
            "scope": scope,
            "iat": int(now),
            "exp": int(now + self.lifetime),
            "jti": str(uuid.uuid4()),
        }
        header = {"alg": "RS256", "kid": "1", "typ": "JWT"}
        text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
        return f"{text}.{encode(self.key.sign(text.encode(), PKCS1v15(), SHA256()))}"

    def answer(self, login: str, body: str) -> tuple[int, bytes]:
        fields = parse_qs(body)
        self.requests.append(fields)
        if self.failure is not None:
            return self.failure
        pair = base64.b64decode(login.removeprefix("Basic ")).decode().split(":")
        if [unquote_plus(part) for part in pair] != [CLIENT, SECRET]:
            return 401, b'{"error": "invalid_client", "error_description": "unknown client"}'
        token = self.issue(fields.get("scope", [""])[0])
        return 200, json.dumps({"access_token": token, "expires_in": self.lifetime}).encode()


@contextmanager
def open_token_server() -> Iterator[TokenServer]:
    state = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, json.dumps(state.keys()).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply(*state.answer(self.headers["Authorization"], body))

        def reply(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if 300 <= status < 400:
                self.send_header("Location", f"{state.url}/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

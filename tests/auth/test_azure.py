"""Tokens of Microsoft Entra, from a local managed identity endpoint."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from asyncconsumer import AzureEntra, ConfigError
from asyncconsumer.errors import TokenRequestFailed

identity = pytest.importorskip("azure.identity")
pytestmark = pytest.mark.fast

SCOPE = "https://n.servicebus.windows.net/.default"
HEADER = "hunter2"


class IdentityServer(ThreadingHTTPServer):
    """The managed identity endpoint of an app service."""

    requests: list[dict[str, list[str]]]
    status = 200


class Handler(BaseHTTPRequestHandler):
    server: IdentityServer

    def do_GET(self) -> None:
        fields = parse_qs(urlsplit(self.path).query)
        self.server.requests.append(fields)
        status = self.server.status if self.headers["X-IDENTITY-HEADER"] == HEADER else 401
        now = int(time.time())  # noqa: TID251 - a server outside of the loop
        token = {"access_token": f"token {len(self.server.requests)}", "token_type": "Bearer"}
        data = json.dumps({**token, "expires_on": str(now + 3600), "resource": "r"}).encode()
        if status != 200:
            data = b'{"error": "invalid_request", "error_description": "no such identity"}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityServer]:
    server = IdentityServer(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{server.server_port}/token")
    monkeypatch.setenv("IDENTITY_HEADER", HEADER)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_a_managed_identity(server: IdentityServer) -> None:
    with identity.ManagedIdentityCredential() as credential:
        tokens = AzureEntra(SCOPE, credential)
        assert await tokens.token() == "token 1"
        assert await tokens.token() == "token 1"
    assert [fields["resource"] for fields in server.requests] == [
        ["https://n.servicebus.windows.net"]
    ]


async def test_a_refused_identity(server: IdentityServer) -> None:
    server.status = 400
    with (
        identity.ManagedIdentityCredential() as credential,
        pytest.raises(TokenRequestFailed, match="the credential failed") as caught,
    ):
        await AzureEntra(SCOPE, credential).token()
    assert HEADER not in str(caught.value)


async def test_a_token_is_renewed_ahead_of_its_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    class Token(NamedTuple):
        token: str
        expires_on: float

    class Credential:
        requests = 0

        def get_token(self, scope: str) -> Token:
            self.requests += 1
            return Token(scope, time.time() + 1000)  # noqa: TID251 - a wall clock time

    now = 100.0
    monkeypatch.setattr("asyncconsumer.auth.cache.time.monotonic", lambda: now)
    credential = Credential()
    tokens = AzureEntra(SCOPE, credential)
    await tokens.token()
    now += 790
    await tokens.token()
    assert credential.requests == 1
    now += 20
    await tokens.token()
    assert credential.requests == 2


def test_the_scope_is_required() -> None:
    with pytest.raises(ConfigError, match="needs a scope"):
        AzureEntra("")

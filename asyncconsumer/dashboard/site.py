"""The dashboard as an ASGI app: the page, its live updates, and changes with a token."""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.dashboard.access import HostCheck, HttpHeaders, TokenCheck, is_same_origin
from asyncconsumer.dashboard.actions import Actions, NoActions, topic_of
from asyncconsumer.dashboard.model import ClusterSnapshot
from asyncconsumer.dashboard.page import html_page
from asyncconsumer.dashboard.snapshotter import Snapshotter
from asyncconsumer.errors import ConfigError, ConsumerError, brief
from asyncconsumer.web.pages import AsgiScope, Receive, Send

MAX_CLIENTS: Final = 100
_SEND_SECONDS: Final = 20.0  # for a client to receive one update
_MAX_BODY: Final = 65_536
_SECURITY: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_log: Final = logging.getLogger(__name__)


class DashboardSite:
    """An ASGI app with the page at ``/``, updates at ``/events`` and changes at ``/actions/``.

    Every client gets the newest snapshot after it has received the one before, so a slow client
    skips some. A client that receives nothing for 20 s is disconnected.
    """

    def __init__(
        self,
        snapshotter: Snapshotter,
        *,
        hosts: HostCheck | None = None,
        token: TokenCheck | None = None,
        actions: Actions | None = None,
    ) -> None:
        self._snapshotter = snapshotter
        self._hosts = hosts or HostCheck()
        self._token = token or TokenCheck(None)
        self._actions: Actions = actions or NoActions()
        self._clients = 0
        self._encoded = -1, b""  # version and text of the newest update, for all clients

    def close(self) -> None:
        """End the updates of all clients, so that the server can stop."""
        self._snapshotter.close()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] != "http":
            raise RuntimeError(f"The dashboard supports http only, got {scope['type']}.")
        headers = _headers(scope)
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        method = scope["method"]
        if not self._hosts.accepts(headers):
            await _respond(send, 421, "This host name is not allowed. Set an allowed host.")
        elif not path and method in ("GET", "HEAD"):
            await _redirect(send, f"{root}/")
        elif path == "/" and method in ("GET", "HEAD"):
            await _send_page(send)
        elif path == "/events" and method == "GET":
            await self._stream(receive, send)
        elif path.startswith("/actions/") and method == "POST":
            await self._act(path.removeprefix("/actions/"), headers, receive, send)
        else:
            await _respond(send, 404, "There is no such page.")

    # --- updates ---------------------------------------------------------------------------------

    async def _stream(self, receive: Receive, send: Send) -> None:
        if self._clients >= MAX_CLIENTS:
            await _respond(send, 503, "Too many pages are open. Close some of them.")
            return
        self._clients += 1
        try:
            async with Scope("dashboard page") as scope:
                sending = scope.start(self._send_updates(send), "send")
                leaving = scope.start(_disconnected(receive), "receive")
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._clients -= 1

    async def _send_updates(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
            *_SECURITY,
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _send(send, _event("history", self._snapshotter.history()))
            async with self._snapshotter.connected() as updates:
                async for snapshot in updates:
                    await _send(send, self._encode(snapshot))
            await send({"type": "http.response.body"})
        except (OSError, TimeoutError) as error:
            _log.debug("a client of the dashboard has disconnected: %r", error)

    def _encode(self, snapshot: ClusterSnapshot) -> bytes:
        """Return the event of a snapshot, encoded once for all clients."""
        version, event = self._encoded
        if version != snapshot.version:
            actions = self._actions.available if self._token.is_set else ()
            content = {**snapshot.as_dict(), "actions": actions, "paused": self._actions.paused}
            event = _event("snapshot", content)
            self._encoded = snapshot.version, event
        return event

    # --- changes ---------------------------------------------------------------------------------

    async def _act(self, name: str, headers: HttpHeaders, receive: Receive, send: Send) -> None:
        if not self._token.is_set or name not in self._actions.available:
            await _respond(send, 404, "This dashboard is read-only, or has no such action.")
            return
        if not is_same_origin(headers) or not self._token.accepts(headers):
            await _respond(send, 403, "The token is wrong.")
            return
        try:
            topic = topic_of(await _read_json(receive))
            message = await self._actions.perform(name, topic)
        except ConfigError as error:
            await _respond(send, 400, str(error))
        except ConsumerError as error:
            await _respond(send, 502, brief(error))
        else:
            _log.info("the dashboard performed %s on topic %s: %s", name, topic, message)
            await _respond(send, 200, message)


def _headers(scope: AsgiScope) -> HttpHeaders:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }


async def _send_page(send: Send) -> None:
    page = html_page()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", page.policy.encode()),
        (b"cross-origin-opener-policy", b"same-origin"),
        *_SECURITY,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": page.body})


async def _redirect(send: Send, path: str) -> None:
    headers = [(b"location", path.encode()), *_SECURITY]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body"})


async def _respond(send: Send, status: int, message: str) -> None:
    headers = [(b"content-type", b"application/json"), *_SECURITY]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"message": message}).encode()})


def _event(name: str, content: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode()


async def _send(send: Send, event: bytes) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await send({"type": "http.response.body", "body": event, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_json(receive: Receive) -> Mapping[str, Any]:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > _MAX_BODY:
            raise ConfigError(
                f"The body of the request is larger than {_MAX_BODY} bytes. Name fewer topics."
            )
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ConfigError("The body must be a JSON object.")
    return content

"""An ASGI app that streams a topic to browsers, each at its own pace."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Unpack
from urllib.parse import parse_qs

from asyncconsumer.aio.scope import Scope
from asyncconsumer.browser.positions import parse_positions
from asyncconsumer.browser.record_events import Encode, RecordEvent, encode_record, record_events
from asyncconsumer.config import ConsumerOptions
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ConfigError, ConsumerError, brief
from asyncconsumer.web.pages import AsgiScope, Receive, Send

_KEEP_ALIVE: Final = 15.0  # seconds between comments, so that proxies keep the connection
_TRY_AGAIN, _POLICY_VIOLATION = 1013, 1008  # close codes of WebSockets
_log: Final = logging.getLogger(__name__)

SendEvent = Callable[[RecordEvent], Awaitable[None]]


class TopicEvents:
    """An ASGI app that sends the records of a topic to each client, without a group.

    A GET request gets server-sent events. A WebSocket gets one JSON text ``{"id", "record"}`` per
    record. A client starts at the end of the topic, or with ``start="earliest"`` at its beginning.

    The id of an event is the position after it in all partitions, such as ``0:41,1:7``. A browser
    sends it back as ``Last-Event-ID`` when it reconnects. A WebSocket client passes it as the query
    parameter ``last``. The stream continues there, so no record is missing or repeated.

    A slow client is not buffered for. Reading waits for it, with at most 1 MiB fetched ahead. After
    `slow_client_seconds` without progress it is disconnected, and may continue from its last event.

    `encode` returns the value for a record, or None to leave it out. A page of another site may not
    open a WebSocket, except for the origins in `allowed_origins`.
    """

    def __init__(
        self,
        topic: str,
        *,
        start: str = "latest",
        encode: Encode = encode_record,
        max_clients: int = 100,
        slow_client_seconds: float = 30.0,
        allowed_origins: Iterable[str] = (),
        **options: Unpack[ConsumerOptions],
    ) -> None:
        if start not in ("latest", "earliest"):
            raise ConfigError(f"`start` must be 'latest' or 'earliest', got {start!r}")
        if options.get("group_id") is not None:
            raise ConfigError("every client reads the whole topic: leave out `group_id`")
        Consumer(**options)  # raises ConfigError now instead of for each client
        self._topic = topic
        self._start: dict[int, int] | None = None if start == "latest" else {}
        self._encode = encode
        self._options = options
        self._max_clients = max_clients
        self._slow_client_seconds = slow_client_seconds
        self._allowed_origins = frozenset(allowed_origins)
        self._clients = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Respond to a request or to a WebSocket."""
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        if scope["type"] == "websocket":
            await self._web_socket(scope, headers, receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"TopicEvents supports http and websocket, got {scope['type']}.")
        elif scope["method"] != "GET":
            await _respond(send, 405, "The method must be GET.")
        else:
            await self._server_sent_events(scope, headers, receive, send)

    # --- server-sent events ----------------------------------------------------------------------

    async def _server_sent_events(
        self, scope: AsgiScope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        try:
            positions = self._positions(scope, headers.get("last-event-id"))
        except ConfigError as error:
            await _respond(send, 400, str(error))
            return
        if self._clients >= self._max_clients:
            await _respond(send, 503, "Too many clients read this topic. Try again later.")
            return

        async def send_body(text: str) -> None:
            async with asyncio.timeout(self._slow_client_seconds):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async def send_event(event: RecordEvent) -> None:
            name = "event: start\n" if event.value is None else ""
            await send_body(f"{name}id: {event.id}\ndata: {json.dumps(event.value)}\n\n")

        async def keep_alive() -> None:
            while True:
                await asyncio.sleep(_KEEP_ALIVE)
                await send_body(":\n\n")

        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),
                ],
            }
        )
        problem = await self._run(positions, send_event, _disconnected(receive), keep_alive)
        with suppress(OSError, TimeoutError):
            if problem is not None:
                await send_body(f"event: problem\ndata: {json.dumps(problem)}\n\n")
            await send({"type": "http.response.body"})

    # --- WebSockets ------------------------------------------------------------------------------

    async def _web_socket(
        self, scope: AsgiScope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        await receive()  # websocket.connect
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, headers):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        try:
            positions = self._positions(scope, None)
        except ConfigError:
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        if self._clients >= self._max_clients:
            await send({"type": "websocket.close", "code": _TRY_AGAIN})
            return
        await send({"type": "websocket.accept"})

        async def send_event(event: RecordEvent) -> None:
            text = json.dumps({"id": event.id, "record": event.value})
            async with asyncio.timeout(self._slow_client_seconds):
                await send({"type": "websocket.send", "text": text})

        await self._run(positions, send_event, _disconnected(receive))
        with suppress(OSError, RuntimeError):  # the client may be gone
            await send({"type": "websocket.close", "code": _TRY_AGAIN})

    def _is_allowed(self, origin: str, headers: dict[str, str]) -> bool:
        same = origin.partition("://")[2] == headers.get("host")
        return same or origin in self._allowed_origins

    # --- both ------------------------------------------------------------------------------------

    def _positions(self, scope: AsgiScope, header: str | None) -> dict[int, int] | None:
        """Return the positions at which a client starts. None means the end of the topic.

        A client that reconnects sends the positions that it has reached.
        """
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        text = header or query.get("last", [""])[0]
        return parse_positions(text) if text else self._start

    async def _run(
        self,
        positions: dict[int, int] | None,
        send_event: SendEvent,
        disconnected: Awaitable[None],
        keep_alive: Callable[[], Awaitable[None]] | None = None,
    ) -> str | None:
        """Send events until the client disconnects or is too slow, or until Kafka fails.

        Return the text of the error for the client, or None.
        """
        self._clients += 1
        try:
            async with Scope("topic events") as scope:
                tasks = {scope.start(self._send_all(positions, send_event), "send")}
                tasks.add(scope.start(_quiet(disconnected), "receive"))
                if keep_alive is not None:
                    tasks.add(scope.start(_quiet(keep_alive()), "keep alive"))
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return next((error for task in done if (error := task.result())), None)
        finally:
            self._clients -= 1

    async def _send_all(
        self, positions: dict[int, int] | None, send_event: SendEvent
    ) -> str | None:
        options: dict[str, Any] = {**self._options}
        try:
            async with record_events(
                self._topic, options, positions, encode=self._encode
            ) as events:
                async for event in events:
                    await send_event(event)
        except (OSError, TimeoutError) as error:
            _log.info("a client of topic %s has left or is too slow: %r", self._topic, error)
        except ConsumerError as error:
            _log.warning("the topic %s cannot be streamed: %s", self._topic, error)
            return brief(error)
        return None


async def _quiet(work: Awaitable[None]) -> None:
    """Wait for `work`. Ignore an OSError or a timeout, which mean that the client has left."""
    with suppress(OSError, TimeoutError):
        await work


async def _disconnected(receive: Receive) -> None:
    while not (await receive())["type"].endswith(".disconnect"):
        pass


async def _respond(send: Send, status: int, message: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"message": message}).encode()})

"""Health pages for probes and dashboards, chosen by path."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from asyncconsumer.web.metrics import CONTENT_TYPE as METRICS_TYPE
from asyncconsumer.web.metrics import metrics
from asyncconsumer.web.status import Status, together

_JSON: Final = "application/json"

Look = Callable[[], Mapping[str, Status]]
"""Return the current status of all workers by name; without workers, the name is ``""``."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class Page(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: bytes


def page(method: str, path: str, look: Look) -> Page:
    """Return the page at a path. ``/live`` and ``/ready`` have the status code 200 or 503."""
    make = _PAGES.get(path.rstrip("/"))
    if make is None:
        return _json(404, {"error": f"nothing is here; there are {', '.join(_PAGES)}"})
    if method not in ("GET", "HEAD"):
        return _json(405, {"error": "only GET and HEAD"})
    made = make(look())
    return made if method == "GET" else made._replace(body=b"")


def asgi(look: Look) -> Asgi:
    """Return the pages as an ASGI app that any framework can mount."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"these pages speak http, not {scope['type']}")
        path, root = scope["path"], scope.get("root_path", "")
        made = page(scope["method"], path.removeprefix(root), look)
        headers = [(b"content-type", made.content_type.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": made.status, "headers": headers})
        await send({"type": "http.response.body", "body": made.body})

    return app


def _live(parts: Mapping[str, Status]) -> Page:
    whole = _whole(parts)
    return _probe(whole, "live", well=whole.live)


def _ready(parts: Mapping[str, Status]) -> Page:
    whole = _whole(parts)
    return _probe(whole, "ready", well=whole.live and whole.ready)


def _lag(parts: Mapping[str, Status]) -> Page:
    whole = _whole(parts)
    return _json(200, {"total": whole.total_lag, "topics": whole.lag})


def _status(parts: Mapping[str, Status]) -> Page:
    if "" in parts:
        return _json(200, parts[""].as_dict())
    workers = {name: one.as_dict() for name, one in parts.items()}
    return _json(200, {**_whole(parts).as_dict(), "workers": workers})


def _metrics(parts: Mapping[str, Status]) -> Page:
    return Page(200, METRICS_TYPE, metrics(parts).encode())


_PAGES: Final[Mapping[str, Callable[[Mapping[str, Status]], Page]]] = {
    "/live": _live,
    "/ready": _ready,
    "/lag": _lag,
    "/status": _status,
    "/metrics": _metrics,
}
PATHS: Final = tuple(_PAGES)


def _whole(parts: Mapping[str, Status]) -> Status:
    return parts[""] if "" in parts else together(parts)


def _probe(whole: Status, what: str, *, well: bool) -> Page:
    answer = {what: well, "state": whole.state, "reason": whole.reason}
    return _json(200 if well else 503, answer)


def _json(status: int, value: Mapping[str, Any]) -> Page:
    return Page(status, _JSON, json.dumps(value).encode() + b"\n")

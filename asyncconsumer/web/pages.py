"""Health pages for probes and dashboards, chosen by path."""

import enum
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConfigError
from asyncconsumer.web.metrics import CONTENT_TYPE as METRICS_TYPE
from asyncconsumer.web.metrics import metrics
from asyncconsumer.web.status import Status, StatusSource, combine

_ENDING: Final = frozenset({"draining", "closed"})  # states of a process that ends
_JSON: Final = "application/json"


class Readiness(enum.StrEnum):
    """The condition under which ``/ready`` returns 200."""

    WORK = "work"
    """200 while records are processed."""

    TRAFFIC = "traffic"
    """200 while the process can take requests, also while Kafka is unavailable."""


AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class Page(NamedTuple):
    """The HTTP response for a health page."""

    status: int
    content_type: str
    body: bytes


def page(
    method: str, path: str, source: StatusSource, readiness: Readiness = Readiness.WORK
) -> Page:
    """Return the response for the path of a health page.

    `source` returns the status of each worker. The status code of ``/started``, ``/live`` and
    ``/ready`` is 200 or 503.
    """
    render = _PAGES.get(path.rstrip("/"))
    if render is None:
        return _json(404, {"error": f"not found; the pages are {', '.join(_PAGES)}"})
    if method not in ("GET", "HEAD"):
        return _json(405, {"error": "the method must be GET or HEAD"})
    if render is _ready and readiness is Readiness.TRAFFIC:
        render = _ready_for_traffic
    response = render(source())
    return response if method == "GET" else response._replace(body=b"")


def asgi(
    source: StatusSource, others: Asgi | None = None, readiness: Readiness = Readiness.WORK
) -> Asgi:
    """Return the health pages as an ASGI app that any framework can mount.

    `others` is an ASGI app for all other paths.
    """

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"The health pages support http only, got {scope['type']}.")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if others is not None and path.rstrip("/") not in _PAGES:
            await others(scope, receive, send)
            return
        response = page(scope["method"], path, source, readiness)
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    return app


def _started(parts: Mapping[str, Status]) -> Page:
    total = _total(parts)
    return _probe(total, "started", passed=total.started)


def _live(parts: Mapping[str, Status]) -> Page:
    total = _total(parts)
    return _probe(total, "live", passed=total.live)


def _ready(parts: Mapping[str, Status]) -> Page:
    total = _total(parts)
    return _probe(total, "ready", passed=total.live and total.ready)


def _ready_for_traffic(parts: Mapping[str, Status]) -> Page:
    """Return status code 503 if a process is ending or has failed, otherwise 200.

    Kafka may be unavailable, because web requests do not need it.
    """
    total = _total(parts)
    return _probe(total, "ready", passed=total.live and total.state not in _ENDING)


def _lag(parts: Mapping[str, Status]) -> Page:
    total = _total(parts)
    return _json(200, {"total": total.total_lag, "topics": total.lag})


def _status(parts: Mapping[str, Status]) -> Page:
    if "" in parts:
        return _json(200, parts[""].as_dict())
    workers = {name: status.as_dict() for name, status in parts.items()}
    return _json(200, {**_total(parts).as_dict(), "workers": workers})


def _metrics(parts: Mapping[str, Status]) -> Page:
    try:
        text = metrics(parts)
    except ConfigError as error:  # prometheus-client is not installed
        return Page(501, "text/plain", f"{error}\n".encode())
    return Page(200, METRICS_TYPE, text.encode())


_PAGES: Final[Mapping[str, Callable[[Mapping[str, Status]], Page]]] = {
    "/started": _started,
    "/live": _live,
    "/ready": _ready,
    "/lag": _lag,
    "/status": _status,
    "/metrics": _metrics,
}
PATHS: Final = tuple(_PAGES)


def _total(parts: Mapping[str, Status]) -> Status:
    return parts[""] if "" in parts else combine(parts)


def _probe(status: Status, name: str, *, passed: bool) -> Page:
    body = {name: passed, "state": status.state, "reason": status.reason}
    return _json(200 if passed else 503, body)


def _json(status: int, value: Mapping[str, Any]) -> Page:
    return Page(status, _JSON, json.dumps(value).encode() + b"\n")

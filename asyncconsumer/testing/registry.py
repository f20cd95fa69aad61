"""A fake schema registry with the part of the REST API that consumers and tests need.

async with FakeRegistry() as registry:
    schema_id = registry.register("orders-value", '{"type": "string"}')
    SchemaRegistry(registry.url).avro()
"""

import asyncio
import base64
import json
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from asyncconsumer.aio.resource import AsyncResource

Answer: TypeAlias = tuple[int, Any]
"""A status, and a body: bytes as they are, anything else as JSON."""

_NOT_FOUND: Final = {
    "schema": (404, {"error_code": 40403, "message": "Schema not found"}),
    "version": (404, {"error_code": 40402, "message": "Version not found"}),
    "path": (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
}


class Registered(NamedTuple):
    """A registered version of a subject's schema."""

    subject: str
    version: int
    id: int
    body: Mapping[str, Any]


class FakeRegistry(AsyncResource):
    """A schema registry on a free port of 127.0.0.1, open for its ``async with`` block.

    The methods `fail` and `stall` inject faults until `heal`. ``asked`` has the requested paths in
    order.
    """

    def __init__(self, *, basic_auth: tuple[str, str] | None = None) -> None:
        self.asked: Final[list[str]] = []
        self.accepted = 0  # the number of connections so far, and of open ones
        self.connected = 0
        self._allowed = None
        if basic_auth is not None:
            self._allowed = b"Basic " + base64.b64encode(":".join(basic_auth).encode())
        self._versions: list[Registered] = []
        self._failures: deque[Answer] = deque()
        self._going = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._going.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        stack.push_async_callback(self._stop, self._server)

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        self.heal()
        for writer in tuple(self._writers):
            writer.close()
        while self._writers:
            await asyncio.sleep(0)
        await server.wait_closed()

    @property
    def url(self) -> str:
        """The base URL of the registry."""
        assert self._server is not None, "not open: enter its `async with` block first"
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        **more: Any,  # noqa: ANN401 - further fields of a registry
    ) -> int:
        """Register a version of a subject's schema. Return its schema id.

        `references` are tuples of name, subject and version. `more` are further fields that the
        registry returns with the schema.
        """
        body = {**_body(schema, kind, references), **more}
        for registered in self._versions:
            if registered.subject == subject and registered.body == body:
                return registered.id
        known = [registered.id for registered in self._versions if registered.body == body]
        version = 1 + sum(registered.subject == subject for registered in self._versions)
        schema_id = (
            known[0]
            if known
            else 1 + max((registered.id for registered in self._versions), default=0)
        )
        self._versions.append(Registered(subject, version, schema_id, body))
        return schema_id

    def fail(self, *answers: Answer) -> None:
        """Answer the next requests with these responses, in order."""
        self._failures.extend(answers)

    def stall(self) -> None:
        """Answer no request until `heal` is called."""
        self._going.clear()

    def heal(self) -> None:
        """Remove all faults."""
        self._failures.clear()
        self._going.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.accepted += 1
        self.connected += 1
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) is not None:
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = first.split(" ")
                self.asked.append(target)
                await self._going.wait()
                _write(writer, *self._answer(method, target, headers, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.close()
            self._writers.discard(writer)
            self.connected -= 1

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if self._allowed is not None and headers.get("authorization", "").encode() != self._allowed:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self._failures:
            return self._failures.popleft()
        match method, [unquote(step) for step in urlsplit(target).path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", number]:
                matches = [
                    registered for registered in self._versions if str(registered.id) == number
                ]
                return (200, matches[0].body) if matches else _NOT_FOUND["schema"]
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, *_posted(body))}
            case "POST", ["subjects", subject]:
                return self._lookup(subject, *_posted(body))
        return _NOT_FOUND["path"]

    def _lookup(
        self, subject: str, schema: str, kind: str, references: Sequence[tuple[str, str, int]]
    ) -> Answer:
        body = _body(schema, kind, references)
        for registered in self._versions:
            if registered.subject == subject and registered.body == body:
                place = {"subject": subject, "version": registered.version, "id": registered.id}
                return 200, {**place, **body}
        return _NOT_FOUND["schema"]

    def _version(self, subject: str, version: str) -> Answer:
        of_subject = [registered for registered in self._versions if registered.subject == subject]
        matches = [
            registered
            for registered in of_subject
            if version in (str(registered.version), "latest")
        ]
        if not matches:
            return _NOT_FOUND["version"]
        last = matches[-1]
        place = {"subject": last.subject, "version": last.version, "id": last.id}
        return 200, {**place, **last.body}


def _posted(body: bytes) -> tuple[str, str, list[tuple[str, str, int]]]:
    """Return the schema of a request: its text, its kind and its references."""
    request = json.loads(body)
    others = request.get("references") or ()
    needed = [(each["name"], each["subject"], each["version"]) for each in others]
    return request["schema"], request.get("schemaType", "AVRO"), needed


def _body(schema: str, kind: str, references: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    needed = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in references]
    return {"schema": schema, "schemaType": kind, "references": needed}


def _write(writer: asyncio.StreamWriter, status: int, body: Any) -> None:  # noqa: ANN401
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: application/vnd.schemaregistry.v1+json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)

"""The names of all topics of a cluster, requested as cheaply as its brokers allow."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from struct import error
from typing import Final, NamedTuple, Protocol, TypeVar

from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.errors import AccessDenied, BrokerError
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.net.metadata_reader import MetadataReader
from asyncconsumer.net.response_cursor import TRUNCATED, ResponseCursor
from asyncconsumer.net.topic_validation import is_usable
from asyncconsumer.protocol.messages import (
    LIST_CONFIG_RESOURCES,
    ListTopicsRequest,
    MetadataRequest,
)

_PIECE_SIZE: Final = 1_000  # names parsed at once
_PAUSE: Final = 10.0  # names are cached for this many times the duration of a request
_MAX_PAUSE: Final = 60.0  # seconds


T = TypeVar("T")


class NamesResponse(NamedTuple):
    """A response, and the loop time at which its request was sent."""

    raw: RawResponse
    sent_at: float


class AskAny(Protocol):
    """A function that sends a request to one broker after another until one succeeds."""

    async def __call__(
        self, message: Request, read: Callable[[NamesResponse], Awaitable[T]], /
    ) -> T:
        """Send a request to the brokers until one responds.

        Return the result of `read` for its response.
        """


class TopicNames:
    """A cache of all topic names.

    Since Kafka 4.1, brokers list names to clients with the permission DescribeConfigs on the
    cluster. Otherwise the metadata of all topics is requested.
    """

    def __init__(self, ask_any: AskAny) -> None:
        self._ask_any = ask_any
        self._may_list = True  # becomes False when a broker refuses to list names
        self._last: list[str] = []
        self._due = -inf

    async def ask(self) -> list[str]:
        """Request and return all topic names, unsorted.

        The list may include topics that this client may not read.
        """
        if self._may_list:
            names = await self._ask_any(ListTopicsRequest(), self._read)
            if names is not None:
                return names
            self._may_list = False
        return await self._ask_any(MetadataRequest(None), self._read) or []

    async def _read(self, response: NamesResponse) -> list[str] | None:
        """Return the topic names in a response, or None if this client may not list them."""
        try:
            names = await _parse_names(response.raw)
        except AccessDenied:
            return None
        now = asyncio.get_running_loop().time()
        pause = min(_PAUSE * (now - response.sent_at), _MAX_PAUSE)
        self._last, self._due = names, now + pause
        return names

    async def recent(self) -> list[str]:
        """Return all topic names, cached for ten times the duration of the last request.

        They are cached for 60 s at most. A cluster that answers in one second is asked every ten
        seconds.
        """
        if asyncio.get_running_loop().time() < self._due:
            return self._last
        return await self.ask()


async def _parse_names(raw: RawResponse) -> list[str]:
    body = bytes(raw.body)
    names: list[str]
    if raw.api == LIST_CONFIG_RESOURCES.key:
        names = []
        for piece in _parse_list(body, raw.version):
            names += piece
            await asyncio.sleep(0)
    else:
        reader = MetadataReader(body, raw.version)
        for _ in reader.steps():
            await asyncio.sleep(0)
        names = list(reader.names)
    return names


def _parse_list(body: bytes, version: int) -> Iterator[list[str]]:
    """Yield the topic names in a ListConfigResources response, in pieces."""
    cursor = ResponseCursor(LIST_CONFIG_RESOURCES.name, body, version, flexible=True)
    try:
        cursor.int32()  # throttle time
        if code := cursor.int16():
            raise BrokerError.from_code(code, "the names of all topics")
        piece: list[str] = []
        for _ in range(cursor.count(3)):
            name = cursor.text()
            cursor.take(1)  # resource type, always the requested one
            cursor.skip_tags()
            if name and is_usable(name):
                piece.append(name)
            if len(piece) == _PIECE_SIZE:
                yield piece
                piece = []
        yield piece
    except (IndexError, error):
        cursor.fail(TRUNCATED)

"""The names of all topics of a cluster, asked for as cheaply as its brokers allow."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from struct import error
from typing import Final, NamedTuple, Protocol, TypeVar

from aiokafka.protocol.api import Request

from asyncconsumer.errors import AccessDenied, BrokerError
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.net.metadata_reader import MetadataReader
from asyncconsumer.net.response_cursor import CUT, ResponseCursor
from asyncconsumer.net.topic_validation import accepts
from asyncconsumer.protocol.messages import (
    LIST_CONFIG_RESOURCES,
    ListTopicsRequest,
    MetadataRequest,
)

_A_PIECE: Final = 1_000  # names
_PAUSE: Final = 10.0  # times what an answer took: so long names are not asked for again
_LONGEST_PAUSE: Final = 60.0  # seconds


T = TypeVar("T")


class NamesResponse(NamedTuple):
    """An answer, and when its request was sent, by the loop's clock."""

    raw: RawResponse
    sent_at: float


class AskAny(Protocol):
    """Sends a request to brokers, until `read` makes something of an answer."""

    async def __call__(
        self, message: Request, read: Callable[[NamesResponse], Awaitable[T]], /
    ) -> T:
        """What `read` made of it."""


class TopicNames:
    """Asks for names alone where brokers can list them, else for the metadata of all topics.

    Brokers from Kafka 4.1 on list names to clients that may describe the cluster's configuration.
    """

    def __init__(self, ask_any: AskAny) -> None:
        self._ask_any = ask_any
        self._may_list = True  # until a broker denies it
        self._last: list[str] = []
        self._due = -inf

    async def ask(self) -> list[str]:
        """All topics there are now, in any order. Some of them may be denied to us."""
        if self._may_list:
            names = await self._ask_any(ListTopicsRequest(), self._read)
            if names is not None:
                return names
            self._may_list = False
        return await self._ask_any(MetadataRequest(None), self._read) or []

    async def _read(self, answered: NamesResponse) -> list[str] | None:
        """The names, or None if we may not list them."""
        try:
            names = await _names_in(answered.raw)
        except AccessDenied:
            return None
        now = asyncio.get_running_loop().time()
        pause = min(_PAUSE * (now - answered.sent_at), _LONGEST_PAUSE)
        self._last, self._due = names, now + pause
        return names

    async def look(self) -> list[str]:
        """The same for who asks again and again: the longer an answer takes, the longer it holds.

        A cluster whose answers take a second is asked every ten seconds at most.
        """
        if asyncio.get_running_loop().time() < self._due:
            return self._last
        return await self.ask()


async def _names_in(raw: RawResponse) -> list[str]:
    body = bytes(raw.body)
    names: list[str]
    if raw.api == LIST_CONFIG_RESOURCES.key:
        names = []
        for piece in _listed(body, raw.version):
            names += piece
            await asyncio.sleep(0)
    else:
        reader = MetadataReader(body, raw.version)
        for _ in reader.steps():
            await asyncio.sleep(0)
        names = list(reader.names)
    return names


def _listed(body: bytes, version: int) -> Iterator[list[str]]:
    """The names in an answer to ListConfigResources, in pieces."""
    walk = ResponseCursor(LIST_CONFIG_RESOURCES.name, body, version, flexible=True)
    try:
        walk.int32()  # throttle time
        if code := walk.int16():
            raise BrokerError.of(code, "the names of all topics")
        piece: list[str] = []
        for _ in range(walk.count(3)):
            name = walk.text()
            walk.take(1)  # the type of resource, which is what we asked for
            walk.skip_tags()
            if name and accepts(name):
                piece.append(name)
            if len(piece) == _A_PIECE:
                yield piece
                piece = []
        yield piece
    except (IndexError, error):
        walk.fail(CUT)

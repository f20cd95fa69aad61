"""Cluster metadata: brokers, topics and partition leaders, requested on demand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import takewhile
from random import Random
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID

from aiokafka.protocol.api import Request, Response

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConsumerError,
    FrameTooLarge,
    InvalidTopic,
    MalformedResponse,
    NoBrokerAnswered,
    RequestTimedOut,
    TlsFailed,
)
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.metadata import Leader, Metadata, Topic
from asyncconsumer.net.metadata_reader import MetadataReader
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.net.topic_names import NamesResponse, TopicNames
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.types import Address, TopicPartition

_PATIENCE: Final = 3.0  # seconds per broker; a broker that hangs must not block the others
_MOST_BYTES: Final = 64 * 2**20  # of metadata; enough for more than a million partitions
_KEPT_SECONDS: Final = 600.0  # unused topics are dropped from the metadata after this time

_NOTHING: Final[Mapping[str, Topic]] = MappingProxyType({})

T = TypeVar("T")


class Cluster:
    """The metadata of a cluster, and requests for it, within its ``async with`` block.

    Only topics that callers ask for are requested, and none is ever created. A `refresh` during
    another one joins the next request, which is shared by all callers that wait. Its result was
    therefore requested after the call.
    """

    def __init__(self, brokers: BrokerPool, *, randomness: Random) -> None:
        self._brokers = brokers
        self._randomness = randomness
        self._metadata = Metadata()
        self._seeds = list(brokers.config.addresses)
        self._wanted: set[str] = set()
        self._last: asyncio.Task[Metadata | ConsumerError] | None = None  # in flight
        # the next one, which callers join
        self._next: asyncio.Task[Metadata | ConsumerError] | None = None
        self._names = TopicNames(self.read_any)
        self._usage = _Usage()
        self._scope = Scope("cluster")

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self._scope.__aexit__(kind, error, where)

    @property
    def metadata(self) -> Metadata:
        """Return the cached metadata."""
        return self._metadata

    def set_bootstrap(self, addresses: Iterable[Address]) -> None:
        """Replace the bootstrap servers. Known brokers are asked as well."""
        self._seeds = list(addresses)

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition from the cache, or raise a `BrokerError`."""
        return self._metadata.leader(partition)

    async def refresh(self, topics: Iterable[str] = ()) -> Metadata:
        """Request the brokers and the given topics. An error of one topic is in its `error`.

        A name that cannot be encoded raises `InvalidTopic` here, because other callers may share
        the request.
        """
        self._scope.check_open()
        wanted = list(topics)
        for name in wanted:
            if not _can_be_sent(name):
                raise InvalidTopic(f"topic {name[:300]!r}")
        self._wanted.update(wanted)
        if self._next is None:
            self._next = self._scope.start(self._refresh(self._last), "refresh metadata")
        return await self._scope.outcome(self._next)

    async def topic_names(self) -> list[str]:
        """Return the sorted names of all topics.

        Some of them may be topics that this client may not access.
        """
        return sorted(await self._names.ask())

    async def recent_topic_names(self) -> list[str]:
        """Return the names of all topics, unsorted and possibly cached.

        For callers that poll: the slower the responses are, the longer they are cached.
        """
        return await self._names.look()

    async def names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of topics by their ids, as far as a broker knows them."""
        reader = await self.read_any(MetadataRequest(topic_ids=sorted(topic_ids)), _read)
        names = {UUID(bytes=topic_id): name for name, topic_id in reader.names.items()}
        return {one: names[one] for one in topic_ids if one in names}

    async def ask_any(self, message: Request) -> Response:
        """Return the response of any broker: first the known ones, then the bootstrap servers.

        Brokers that are suspect or failed are asked last. The order is otherwise random.
        """
        return await self._from_any(partial(self._ask, message))

    async def read_any(self, message: Request, read: Callable[[NamesResponse], Awaitable[T]]) -> T:
        """Return the result of `read` for the response of any broker.

        The response may be large. `read` may yield to the event loop.
        """
        return await self._from_any(partial(self._ask_at, message, read))

    async def _from_any(self, ask: Callable[[Address], Awaitable[T]]) -> T:
        errors: list[ConsumerError] = []
        for address in self._candidates():
            try:
                return await ask(address)
            except ConsumerError as error:
                # Wrong credentials are wrong for every broker, and too many attempts may lock an
                # account. A certificate belongs to one broker.
                login = isinstance(error, AuthenticationFailed) and not isinstance(error, TlsFailed)
                if login and not error.retriable:
                    raise
                errors.append(error)
        if errors and not any(error.retriable for error in errors):
            raise errors[0]
        raise NoBrokerAnswered(tuple(errors))

    async def _ask(self, message: Request, address: Address) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._brokers.request(
                    address, Traffic.CONTROL, message, timeout=_PATIENCE
                )
        except TimeoutError as error:
            raise _late(address) from error

    async def _ask_at(
        self, message: Request, read: Callable[[NamesResponse], Awaitable[T]], address: Address
    ) -> T:
        connection = await self._connection(address)
        answered = await self._await_large(connection, message)
        if (size := len(answered.raw.body)) > _MOST_BYTES:
            raise FrameTooLarge(address, f"an answer of {size} bytes, allowed are {_MOST_BYTES}")
        try:
            return await read(answered)
        except MalformedResponse as error:
            connection.close(error)
            raise

    async def _connection(self, address: Address) -> BrokerConnection:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._brokers.connection(address, Traffic.CONTROL)
        except TimeoutError as error:
            raise _late(address) from error

    async def _await_large(self, connection: BrokerConnection, message: Request) -> NamesResponse:
        """Return the response, however long it takes, as long as bytes of it arrive."""
        loop = asyncio.get_running_loop()
        sent_at, answer = loop.time(), connection.send_raw(message)
        try:
            while not answer.done():
                wait = max(sent_at, connection.last_heard) + _PATIENCE - loop.time()
                if wait <= 0:
                    connection.close(_late(connection.address))
                else:
                    await asyncio.wait({answer}, timeout=wait)
            return NamesResponse(await answer, sent_at)
        finally:
            answer.cancel()

    def _candidates(self) -> list[Address]:
        known = [broker.address for broker in self._metadata.brokers.values()]
        seeds = [one for one in self._seeds if one not in known]
        self._randomness.shuffle(known)
        self._randomness.shuffle(seeds)
        # failed brokers last: another one may answer without a wait
        return sorted([*known, *seeds], key=self._brokers.preference_key)

    async def _refresh(
        self, last: asyncio.Task[Metadata | ConsumerError] | None
    ) -> Metadata | ConsumerError:
        if last is not None:
            await asyncio.wait({last})
        self._last, self._next = self._next, None
        topics, self._wanted = self._wanted, set()
        try:
            read = partial(_read, wanted=topics, known=self._metadata.topics)
            reader = await self.read_any(MetadataRequest(sorted(topics)), read)
            if reader.error_code:
                return BrokerError.of(reader.error_code, "the metadata of the cluster")
            forgotten = self._usage.forgotten(topics, asyncio.get_running_loop().time())
            self._metadata = self._metadata.updated(reader.metadata, forgotten)
        except ConsumerError as error:
            return error
        return self._metadata


async def _read(
    answered: NamesResponse, wanted: Collection[str] = (), known: Mapping[str, Topic] = _NOTHING
) -> MetadataReader:
    raw = answered.raw
    reader = MetadataReader(bytes(raw.body), raw.version, wanted, known)
    for _ in reader.steps():
        await asyncio.sleep(0)
    return reader


def _late(address: Address) -> RequestTimedOut:
    return RequestTimedOut(address, f"no answer within {_PATIENCE:g} s")


class _Usage:
    """The time of the last request for each topic."""

    def __init__(self) -> None:
        self._asked_at: dict[str, float] = {}  # ordered by time

    def forgotten(self, asked: Iterable[str], now: float) -> frozenset[str]:
        """Record the requested topics, and return those not requested for 10 minutes."""
        for topic in asked:
            self._asked_at.pop(topic, None)
            self._asked_at[topic] = now
        old = list(takewhile(lambda one: one[1] < now - _KEPT_SECONDS, self._asked_at.items()))
        for topic, _ in old:
            del self._asked_at[topic]
        return frozenset(topic for topic, _ in old)


def _can_be_sent(topic: str) -> bool:
    try:
        return len(topic.encode()) < 2**15  # limit of the older versions of the request
    except UnicodeEncodeError:  # a lone surrogate
        return False

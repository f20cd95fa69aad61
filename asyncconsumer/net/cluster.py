"""Cluster metadata: brokers, topics and partition leaders, requested on demand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import takewhile
from random import Random
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import UUID

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aiokafka_parts import Request, Response
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

_BROKER_TIMEOUT: Final = 3.0  # seconds per broker; a broker that hangs must not block the others
_MAX_BYTES: Final = 64 * 2**20  # bytes of a metadata response; enough for a million partitions
_KEPT_SECONDS: Final = 600.0  # unused topics are dropped from the metadata after this time

_NO_TOPICS: Final[Mapping[str, Topic]] = MappingProxyType({})

T = TypeVar("T")


class Cluster(AsyncResource):
    """The metadata of a cluster, and the requests for it, within an ``async with`` block.

    Only topics that callers ask for are requested, and none is ever created. If a request is in
    flight when `refresh` is called, the call waits for the next request, which all waiting callers
    share. So the metadata that a caller gets was requested after its call.
    """

    def __init__(self, brokers: BrokerPool, *, randomness: Random) -> None:
        self._brokers = brokers
        self._randomness = randomness
        self._metadata = Metadata()
        self._bootstrap = list(brokers.config.addresses)
        self._requested: set[str] = set()
        self._last: asyncio.Task[Metadata | ConsumerError] | None = None  # the refresh in flight
        # The refresh after that, which new callers share.
        self._next: asyncio.Task[Metadata | ConsumerError] | None = None
        self._names = TopicNames(self.read_any)
        self._usage = _TopicUsage()
        self._scope = Scope("cluster")

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._scope)

    @property
    def metadata(self) -> Metadata:
        """Return the cached metadata."""
        return self._metadata

    def set_bootstrap(self, addresses: Iterable[Address]) -> None:
        """Replace the bootstrap servers.

        Brokers that are known from metadata are still used as well.
        """
        self._bootstrap = list(addresses)

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition from the cached metadata.

        Raise a `BrokerError` if the partition has none.
        """
        return self._metadata.leader(partition)

    async def refresh(self, topics: Iterable[str] = ()) -> Metadata:
        """Request the metadata of the brokers and of these topics. Return all known metadata.

        If the broker returned an error for a topic, it is in the topic's attribute `error`. Raise
        `InvalidTopic` at once for a name that cannot be encoded, because it would fail the request
        for other callers as well.
        """
        self._scope.check_open()
        names = list(topics)
        for name in names:
            if not _is_encodable(name):
                raise InvalidTopic(f"topic {name[:300]!r}")
        self._requested.update(names)
        if self._next is None:
            self._next = self._scope.start(self._refresh(self._last), "refresh metadata")
        return await self._scope.outcome(self._next)

    async def topic_names(self) -> list[str]:
        """Return the sorted names of all topics.

        The list may include topics that this client may not read.
        """
        return sorted(await self._names.ask())

    async def recent_topic_names(self) -> list[str]:
        """Return the names of all topics, unsorted. They may be up to 60 s old.

        This method is for callers that poll. Names are cached for ten times the duration of the
        last request.
        """
        return await self._names.recent()

    async def names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of topics by their ids.

        Ids that the broker does not know are left out.
        """
        reader = await self.read_any(MetadataRequest(topic_ids=sorted(topic_ids)), _read)
        names = {UUID(bytes=topic_id): name for name, topic_id in reader.names.items()}
        return {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}

    async def ask_any(self, message: Request) -> Response:
        """Send a request to the brokers until one responds. Return its response.

        Known brokers come before bootstrap servers. Brokers that are suspect or failed are asked
        last. The order is otherwise random.
        """
        return await self._from_any(partial(self._ask, message))

    async def read_any(self, message: Request, read: Callable[[NamesResponse], Awaitable[T]]) -> T:
        """Send a request to the brokers until one responds. Return the result of `read`.

        `read` gets the response and parses it. It is a coroutine function, so that it can yield to
        the event loop while it parses a large response.
        """
        return await self._from_any(partial(self._read_from, message, read))

    async def _from_any(self, ask: Callable[[Address], Awaitable[T]]) -> T:
        errors: list[ConsumerError] = []
        for address in self._candidates():
            try:
                return await ask(address)
            except ConsumerError as error:
                # Wrong credentials are wrong for every broker, and too many attempts may lock an
                # account. A certificate is wrong for one broker only.
                login = isinstance(error, AuthenticationFailed) and not isinstance(error, TlsFailed)
                if login and not error.retriable:
                    raise
                errors.append(error)
        if errors and not any(error.retriable for error in errors):
            raise errors[0]
        raise NoBrokerAnswered(tuple(errors))

    async def _ask(self, message: Request, address: Address) -> Response:
        try:
            async with asyncio.timeout(_BROKER_TIMEOUT):
                return await self._brokers.request(
                    address, Traffic.CONTROL, message, timeout=_BROKER_TIMEOUT
                )
        except TimeoutError as error:
            raise _timeout_error(address) from error

    async def _read_from(
        self, message: Request, read: Callable[[NamesResponse], Awaitable[T]], address: Address
    ) -> T:
        connection = await self._connection(address)
        response = await self._wait_response(connection, message)
        if (size := len(response.raw.body)) > _MAX_BYTES:
            raise FrameTooLarge(
                address, f"a response of {size} bytes; at most {_MAX_BYTES} are allowed"
            )
        try:
            return await read(response)
        except MalformedResponse as error:
            connection.close(error)
            raise

    async def _connection(self, address: Address) -> BrokerConnection:
        try:
            async with asyncio.timeout(_BROKER_TIMEOUT):
                return await self._brokers.connection(address, Traffic.CONTROL)
        except TimeoutError as error:
            raise _timeout_error(address) from error

    async def _wait_response(self, connection: BrokerConnection, message: Request) -> NamesResponse:
        """Send a request and return the response.

        The time limit of 3 s restarts whenever bytes of the response arrive.
        """
        loop = asyncio.get_running_loop()
        sent_at, pending = loop.time(), connection.send_raw(message)
        try:
            while not pending.done():
                wait = max(sent_at, connection.last_received) + _BROKER_TIMEOUT - loop.time()
                if wait <= 0:
                    connection.close(_timeout_error(connection.address))
                else:
                    await asyncio.wait({pending}, timeout=wait)
            return NamesResponse(await pending, sent_at)
        finally:
            pending.cancel()

    def _candidates(self) -> list[Address]:
        known = [broker.address for broker in self._metadata.brokers.values()]
        bootstrap = [address for address in self._bootstrap if address not in known]
        self._randomness.shuffle(known)
        self._randomness.shuffle(bootstrap)
        # Failed brokers come last, because others may answer without a wait.
        return sorted([*known, *bootstrap], key=self._brokers.preference_key)

    async def _refresh(
        self, last: asyncio.Task[Metadata | ConsumerError] | None
    ) -> Metadata | ConsumerError:
        if last is not None:
            await asyncio.wait({last})
        self._last, self._next = self._next, None
        topics, self._requested = self._requested, set()
        try:
            read = partial(_read, topics=topics, known=self._metadata.topics)
            reader = await self.read_any(MetadataRequest(sorted(topics)), read)
            if reader.error_code:
                return BrokerError.from_code(reader.error_code, "the metadata of the cluster")
            unused = self._usage.update(topics, asyncio.get_running_loop().time())
            self._metadata = self._metadata.updated(reader.metadata, unused)
        except ConsumerError as error:
            return error
        return self._metadata


async def _read(
    response: NamesResponse, topics: Collection[str] = (), known: Mapping[str, Topic] = _NO_TOPICS
) -> MetadataReader:
    raw = response.raw
    reader = MetadataReader(bytes(raw.body), raw.version, topics, known)
    for _ in reader.steps():
        await asyncio.sleep(0)
    return reader


def _timeout_error(address: Address) -> RequestTimedOut:
    return RequestTimedOut(address, f"no response within {_BROKER_TIMEOUT:g} s")


class _TopicUsage:
    """The time at which each topic was last requested."""

    def __init__(self) -> None:
        # loop times of requests, by topic, the oldest first
        self._requested_at: dict[str, float] = {}

    def update(self, requested: Iterable[str], now: float) -> frozenset[str]:
        """Record the requested topics. Return the topics that were not requested for 10 minutes."""
        for topic in requested:
            self._requested_at.pop(topic, None)
            self._requested_at[topic] = now
        old = list(
            takewhile(lambda item: item[1] < now - _KEPT_SECONDS, self._requested_at.items())
        )
        for topic, _ in old:
            del self._requested_at[topic]
        return frozenset(topic for topic, _ in old)


def _is_encodable(topic: str) -> bool:
    try:
        return len(topic.encode()) < 2**15  # limit of the older versions of the request
    except UnicodeEncodeError:  # a lone surrogate
        return False

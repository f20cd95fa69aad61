"""Which broker leads which partition: metadata, asked for when it is needed."""

import asyncio
from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Final, Self

from aiokafka.protocol.api import Request, Response

from asyncconsumer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConsumerError,
    InvalidTopic,
    NoBrokerAnswered,
    RequestTimedOut,
    TlsFailed,
)
from asyncconsumer.model import Address, TopicPartition
from asyncconsumer.net.brokers import Brokers, Traffic
from asyncconsumer.net.metadata import Leader, Metadata, read_metadata
from asyncconsumer.tasks.scope import Scope
from asyncconsumer.wire.messages import MetadataRequest

_PATIENCE: Final = 3.0  # seconds with each broker: one that hangs must not keep us from the others


class Cluster:
    """What is known of a cluster, and how to learn more, within its ``async with`` block.

    Only topics that somebody asks about are asked for, and none is ever created. A refresh that is
    asked for while another is on its way joins the next one: what it returns was asked for after
    the call, and in one request for all who wait.
    """

    def __init__(self, brokers: Brokers, *, randomness: Random) -> None:
        self._brokers = brokers
        self._randomness = randomness
        self._metadata = Metadata()
        self._seeds = list(brokers.config.addresses)
        self._wanted: set[str] = set()
        self._last: asyncio.Task[Metadata | ConsumerError] | None = None  # the one on its way
        self._next: asyncio.Task[Metadata | ConsumerError] | None = None  # the one to join
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
        """What is known now."""
        return self._metadata

    def learn_seeds(self, addresses: Iterable[Address]) -> None:
        """From now on ask these, and no longer the bootstrap servers, besides brokers we know."""
        self._seeds = list(addresses)

    def leader(self, partition: TopicPartition) -> Leader:
        """Who leads it, as far as is known now, or the BrokerError that says why nobody does."""
        return self._metadata.leader(partition)

    async def refresh(self, topics: Iterable[str] = ()) -> Metadata:
        """Ask for the brokers and these topics. What is wrong with one topic is its `error`.

        A name that cannot even be sent is refused here, for others may join in the request.
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
        """The names of all topics that we may see, in order."""
        answer = await self.ask_any(MetadataRequest(None))
        metadata = read_metadata(answer.to_object(), answer.API_VERSION)
        return sorted(name for name, topic in metadata.topics.items() if topic.error is None)

    async def ask_any(self, message: Request) -> Response:
        """The answer of any broker: those known in random order, then the seeds."""
        errors: list[ConsumerError] = []
        for address in self._candidates():
            try:
                return await self._ask(address, message)
            except ConsumerError as error:
                # wrong credentials are wrong everywhere, and too many tries may lock an account;
                # a certificate is one broker's
                login = isinstance(error, AuthenticationFailed) and not isinstance(error, TlsFailed)
                if login and not error.retriable:
                    raise
                errors.append(error)
        if errors and not any(error.retriable for error in errors):
            raise errors[0]
        raise NoBrokerAnswered(tuple(errors))

    async def _ask(self, address: Address, message: Request) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._brokers.request(
                    address, Traffic.CONTROL, message, timeout=_PATIENCE
                )
        except TimeoutError as error:
            raise RequestTimedOut(address, f"no answer within {_PATIENCE:g} s") from error

    def _candidates(self) -> list[Address]:
        known = [broker.address for broker in self._metadata.brokers.values()]
        seeds = [one for one in self._seeds if one not in known]
        self._randomness.shuffle(known)
        self._randomness.shuffle(seeds)
        # those in trouble last: there may be somebody whom we need not wait for
        return sorted([*known, *seeds], key=self._brokers.reluctance)

    async def _refresh(
        self, last: asyncio.Task[Metadata | ConsumerError] | None
    ) -> Metadata | ConsumerError:
        if last is not None:
            await asyncio.wait({last})
        self._last, self._next = self._next, None
        topics, self._wanted = self._wanted, set()
        try:
            answer = await self.ask_any(MetadataRequest(sorted(topics)))
            values = answer.to_object()
            if code := values.get("error_code", 0):
                return BrokerError.of(code, "the metadata of the cluster")
            told = read_metadata(values, answer.API_VERSION).only(topics)
            self._metadata = self._metadata.updated(told)
        except ConsumerError as error:
            return error
        return self._metadata


def _can_be_sent(topic: str) -> bool:
    try:
        return len(topic.encode()) < 2**15  # what the older versions can carry
    except UnicodeEncodeError:  # half of a pair
        return False

"""The newer KafkaConsumer: a member of a group that Kafka coordinates, or partitions by hand.

async with Consumer("orders", bootstrap_servers="k:9092", group_id="billing") as consumer:
    async for record in consumer:
        await bill(record.value)
"""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Self

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.interceptors import Interceptor, Interceptors
from asyncconsumer.consumer.joined import Given, Joined, StreamKind, join
from asyncconsumer.consumer.lookups import Lookups
from asyncconsumer.consumer.memberships import assignors
from asyncconsumer.consumer.reading import Reading
from asyncconsumer.consumer.wishes import Wish, named, wish_of
from asyncconsumer.errors import ConfigError, SubscriptionConflict
from asyncconsumer.fetch.events import Events, Stalled
from asyncconsumer.fetch.manager import FetchManager, Progress
from asyncconsumer.fetch.session import Session
from asyncconsumer.following import Following
from asyncconsumer.group.subscription import Topics
from asyncconsumer.model import TopicPartition
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.outside import Outside
from asyncconsumer.rebalancer import Rebalancer
from asyncconsumer.streams.messages import Decoder, K, Message, V
from asyncconsumer.streams.routes import PerPartition
from asyncconsumer.streams.stream import Stream
from asyncconsumer.tasks.scope import Scope
from asyncconsumer.wire.messages import EARLIEST, LATEST

_SECONDS_BETWEEN_LOOKS: Final = 0.01


class Consumer(Generic[K, V]):
    """Reads topics as a member of a group, or partitions by hand; ``async for`` within its block.

    A record is finished when the next one is asked for, and committed then and not before. Takes
    the options of Kafka's consumer, in snake case; `offsets` may be an `OffsetStore` of your own.
    """

    def __init__(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: object = None,
        key_deserializer: Decoder[K] | None = None,
        value_deserializer: Decoder[V] | None = None,
        interceptors: Iterable[Interceptor] = (),
        offsets: OffsetStore | None = None,
        outside: Outside | None = None,
        **options: Any,  # noqa: ANN401 - checked by the configs
    ) -> None:
        self.config: Final = ConsumerConfig.of(options)
        self._wish = wish_of(topics, pattern, partitions)
        if self._wish is not None:
            self._check(self._wish)
        assignors(self.config.member)  # what is wrong with them is told now
        told = [] if listener is None else [listener]
        self._given = Given(told, offsets, Interceptors(interceptors), outside or Outside())
        self._deserializers = key_deserializer, value_deserializer
        self._kafka = Session(
            self.config.connection,
            patience_ms=self.config.member.commit_timeout_ms,
            randomness=self._given.outside.randomness,
            opener=self._given.outside.open_broker,
        )
        self._manager = FetchManager(
            self._kafka.brokers,
            self._kafka.cluster,
            self.config.fetch,
            self.config.engine,
            randomness=self._given.outside.randomness,
        )
        self._scope = Scope("consumer")
        self._stack = AsyncExitStack()
        self._joined: Joined | None = None
        self._changing = False  # what is wanted, at the moment

    def _check(self, wish: Wish) -> None:
        if not isinstance(wish, frozenset) and self.config.member.group_id is None:
            raise ConfigError(
                f"{named(wish)} without a group_id: name the group that shares them, or give "
                "partitions"
            )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._kafka)
            await self._kafka.cluster.refresh()  # nobody there, or a wrong password: told at once
            await stack.enter_async_context(self._manager)
            await stack.enter_async_context(self._scope)
            if self._wish is not None:
                await self._want(self._wish)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        try:
            await self.unsubscribe()
        finally:
            await self._stack.__aexit__(kind, error, where)

    @property
    def is_open(self) -> bool:
        """Whether its block is running."""
        return self._scope.is_open

    # --- what to read ----------------------------------------------------------------------------

    def listen(self, listener: object) -> None:
        """Tell this one as well, from the next change on, after those that were there before."""
        self._given.listeners.append(listener)

    async def subscribe(self, *topics: str, pattern: str | re.Pattern[str] | None = None) -> None:
        """Read these topics, or those whose names match, in place of what was subscribed before."""
        wish = wish_of(topics, pattern, None)
        if wish is None:
            raise ConfigError("subscribe() needs topics, or a pattern; `unsubscribe` ends it")
        await self._want(wish)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of those before; no group divides them."""
        await self._want(frozenset(partitions))

    async def unsubscribe(self) -> None:
        """Stop reading, commit what is finished, leave the group. Another wish may follow."""
        if self._joined is not None:
            with self._change():
                try:
                    await self._joined.end()
                finally:
                    self._joined = None

    @property
    def subscription(self) -> Wish | None:
        """What was asked for: `Topics`, a `Pattern`, or a frozenset of partitions."""
        return None if self._joined is None else self._joined.wish

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return frozenset() if self._joined is None else frozenset(self._rebalancer.reading)

    async def assigned(self) -> frozenset[TopicPartition]:
        """What is ours, once that is known for the first time."""
        await self._following.joined()
        return self.assignment

    async def _want(self, wish: Wish) -> None:
        self._scope.check_open()
        self._check(wish)
        with self._change():
            await self._change_to(wish)

    @contextmanager
    def _change(self) -> Iterator[None]:
        if self._changing:
            raise SubscriptionConflict("a subscription that is just being changed", "another")
        self._changing = True
        try:
            yield
        finally:
            self._changing = False

    async def _change_to(self, wish: Wish) -> None:
        if isinstance(wish, Topics):
            await self._check_access(wish)
        there = self._joined
        if there is None:
            self._joined = await join(
                wish, self.config, self._given, self._kafka, self._manager, self._scope
            )
            return
        there.following.check()
        self._joined = there.wanting(wish)

    async def _check_access(self, topics: Topics) -> None:
        """A topic that is not there yet may come; one that we may not read is told of now."""
        found = (await self._kafka.cluster.refresh(topics.names)).topics
        for name in sorted(topics.names & found.keys()):
            error = found[name].error
            if error is not None and not error.retriable:
                raise error

    # --- records ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Records, or with deserializers messages. Choose this or `chunks`, and stay with it."""
        return aiter(Reading(self._reading, *self._deserializers, self._given.interceptors))

    @property
    def records(self) -> Stream:
        """The stream of records as they are: its `chunks()` and `arrow()` are cheaper."""
        return self._reading

    def by_partition(self, kind: StreamKind = Stream) -> PerPartition:
        """Have each partition read by a stream of its own, of that kind; for those who build on it.

        Its `opened()` tells of each as it appears. Say so before anything is read.
        """
        there = self._there
        if there.stream.is_read:
            raise ConfigError("the consumer is being read with `async for`: choose one way")
        streams = PerPartition(lambda: there.open_stream(kind))
        there.following.rebalancer.route(streams)
        return streams

    @property
    def _reading(self) -> Stream:
        return self._there.stream

    # --- offsets ---------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """Commit what is finished, or these offsets, of what is ours; returns what was committed.

        A partition that a rebalance took is left out: whoever has it now reads on from the last
        commit. An `asyncconsumer.Offset` may carry a text to be kept beside it.
        """
        self._check_commits()
        return await self._following.commit(offsets)

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed, of these partitions or of all that are ours."""
        self._check_commits()
        wanted = self.assignment if partitions is None else partitions
        return await self._following.committer.load(wanted)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out."""
        while (found := self.position_now(partition)) is None:
            self._following.check()
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return found

    def position_now(self, partition: TopicPartition) -> int | None:
        """The same, or None while it is being looked up."""
        return self._rebalancer.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there; nothing that was fetched before is handed out any more."""
        if offset < 0:
            raise ConfigError(
                f"seek to {offset!r} of {partition}: give an offset from 0 on; for the ends there "
                "are seek_to_beginning and seek_to_end"
            )
        self._rebalancer.seek({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these, or all that are ours, from the first record there is."""
        self._rebalancer.seek(dict.fromkeys(partitions or self.assignment, EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read of these, or of all that are ours, only what is written from now on."""
        self._rebalancer.seek(dict.fromkeys(partitions or self.assignment, LATEST))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; rebalances do not change that."""
        self._rebalancer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        self._rebalancer.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Those of ours that are paused."""
        return frozenset() if self._joined is None else self._rebalancer.paused

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition has."""
        return await self._lookups.ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have."""
        return await self._lookups.ends(partitions, LATEST)

    async def offsets_for_times(
        self, moments: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment, in ms since 1970; None if none is as new."""
        return await self._lookups.for_times(moments)

    @property
    def _lookups(self) -> Lookups:
        self._scope.check_open()
        return Lookups(self._kafka.leaders, committed_only=self.config.fetch.committed_only)

    # --- how it stands ---------------------------------------------------------------------------

    @property
    def events(self) -> Events:
        """What was skipped, truncated, re-created, stalls, or moves again: counted, and told."""
        self._scope.check_open()
        return self._manager.events

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Partitions of ours that should move and do not, each with the reason: is it healthy?"""
        self._scope.check_open()
        return self._manager.stalled()

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """How far each partition of ours is fetched, the end of its log, and its broker."""
        self._scope.check_open()
        return self._manager.progress()

    @property
    def commits(self) -> bool:
        """Whether there is a place to keep offsets: a group's, or a store of your own."""
        return self._given.commits(self.config)

    @property
    def _there(self) -> Joined:
        self._scope.check_open()
        if self._joined is None:
            raise ConfigError("nothing is subscribed: give topics, or `await consumer.subscribe()`")
        return self._joined

    @property
    def _following(self) -> Following:
        return self._there.following

    @property
    def _rebalancer(self) -> Rebalancer:
        return self._following.rebalancer

    def _check_commits(self) -> None:
        if not self.commits:
            raise ConfigError("without a group_id there is no place to keep offsets: name one")

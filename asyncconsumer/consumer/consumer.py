"""The newer KafkaConsumer: a member of a group, whoever coordinates it, or partitions by hand.

async with Consumer("orders", bootstrap_servers="k:9092", group_id="billing") as consumer:
    async for record in consumer:
        await bill(record.value)
"""

import re
import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.weak_method import weakly
from asyncconsumer.config import ConsumerConfig, whole_number
from asyncconsumer.consumer.environment import Environment
from asyncconsumer.consumer.health import Health, HealthState, health_of, status_of, with_topics
from asyncconsumer.consumer.interceptors import Interceptor, Interceptors
from asyncconsumer.consumer.listener import ListenerList, checked
from asyncconsumer.consumer.membership_factory import assignors
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.poison_policy import PoisonPolicy
from asyncconsumer.consumer.progress_bar import check_terminal
from asyncconsumer.consumer.refetch import RefetchPolicy
from asyncconsumer.consumer.resources import connect
from asyncconsumer.consumer.stream import ConsumerStream, DeliveryPolicy, RecordLimit
from asyncconsumer.consumer.subscribe_operations import SubscribeOperations
from asyncconsumer.consumer.subscription import Collaborators, S, StreamKind
from asyncconsumer.consumer.subscription_spec import ManualPartitions, ToAssign, parse_subscription
from asyncconsumer.consumer.transactions import TransactionalProducer
from asyncconsumer.errors import ConfigError, brief
from asyncconsumer.events import EventStream, Stalled
from asyncconsumer.fetch.manager import Progress
from asyncconsumer.offsets.store import OffsetStore, check_store
from asyncconsumer.rebalance import Streams
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps
from asyncconsumer.serdes import Deserializable, make_deserializer
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.messages import K, Message, V
from asyncconsumer.streams.routes import PartitionRoutes, SharedRoutes, TopicRoutes
from asyncconsumer.types import TopicPartition
from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.status import Status

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(SubscribeOperations, WebMixin, Generic[K, V]):
    """Reads topics as a member of a group, or partitions by hand; ``async for`` within its block.

    A record is finished when the next one is asked for, and committed then and not before. Takes
    the options of Kafka's consumer, in snake case; `offsets` may be an `OffsetStore` of your own.
    """

    def __init__(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        partitions: ToAssign | None = None,
        listener: object = None,
        key_deserializer: Deserializable[K] | None = None,
        value_deserializer: Deserializable[V] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        offsets: OffsetStore | None = None,
        environment: Environment | None = None,
        companions: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401 - checked by the configs
    ) -> None:
        told = ListenerList(None if listener is None else checked(listener))
        if offsets is not None:
            check_store(offsets)
        config, intercepted = ConsumerConfig.of(options), Interceptors(interceptors or ())
        given = Collaborators(
            told, offsets, intercepted, environment or Environment(), companions or {}
        )
        super().__init__(config, given)
        self._wish = parse_subscription(topics, pattern, partitions)
        if self.config.zookeeper is None:
            assignors(self.config.member)  # what is wrong with them is told now
        if self.config.reading.progress:
            check_terminal()
        self._deserializers = (
            make_deserializer(key_deserializer),
            make_deserializer(value_deserializer),
        )
        self._stack = AsyncExitStack()
        self._reading: ConsumerStream[K, V] | None = (
            None  # of what is joined: a record may be in work
        )
        self._limit = (
            None if (most := self.config.reading.max_records) is None else RecordLimit(most)
        )
        self._was_open = False

    async def __aenter__(self) -> Self:
        if self._scope.is_over and not self._was_open:
            self._scope = Scope("consumer")  # it failed to open, and may be tried again
        async with AsyncExitStack() as stack:
            self._connected = await connect(stack, self.config, self._given.environment)
            await stack.enter_async_context(self._scope)
            if self._connected.zookeeper is not None:
                self._connected.zookeeper.follow_brokers(self._connected.kafka, self._scope)
            if self._wish is not None:
                await self._want(self._wish)
            self._stack = stack.pop_all()
        self._was_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if kind is None and self._joined is not None:
            self._joined.following.acknowledge_at_exit()
        try:
            await self._changes.rest()  # another task may be about to want something else
            await self._leave()
        finally:
            await self._stack.__aexit__(kind, error, where)

    def __del__(self) -> None:
        if hasattr(self, "_scope") and self._scope.is_open:  # what was refused has none
            warnings.warn(
                f"unclosed {self!r}: it was opened and its `async with` block was never left, so "
                "its group waits for a session timeout",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    @property
    def is_open(self) -> bool:
        """Whether its block is running."""
        return self._scope.is_open

    # --- records ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Records, or with deserializers messages. Choose one way to read, and stay with it."""
        return aiter(self._whole)

    def batches(
        self, max_records: int = 500, max_wait_ms: int = 100
    ) -> AsyncIterator[list[Message[K, V]]]:
        """Lists of up to so many, of any partitions; one that has begun waits so long for more.

        All of a batch is finished when the next one is asked for.
        """
        return self._whole.batches(max_records, max_wait_ms)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """Return the records that are there, by partition; wait so long if there are none.

        With `partitions`, only these are read, until the next call. What a call returned is
        acknowledged by the next call, or by `commit`.
        """
        self._check_callable("getmany()")
        return await self._whole.getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """Return the next record, of these partitions if any are given.

        The next call acknowledges it, and so does `commit`.
        """
        self._check_callable("getone()")
        return await self._whole.getone(*partitions)

    def _check_callable(self, name: str) -> None:
        self.config.reading.refuse(name, "max_records", "idle_timeout_ms", "stop_at")

    def chunks(self) -> AsyncIterator[decoding.Records]:
        """What each fetch brought of a partition, as raw records, for a plain ``for``: cheaper."""
        return self._whole.chunks()

    def arrow(
        self,
        *,
        copy: bool = True,
        max_rows: int | None = None,
        columns: Sequence[str] = COLUMNS,
        timestamps: Timestamps = "ms",
    ) -> AsyncIterator["pa.RecordBatch"]:
        """Arrow batches, each of one partition, made without an object per record.

        With ``copy=False`` keys and values point into the buffers of the fetch and keep them alive.
        """
        return self._whole.arrow(
            copy=copy, max_rows=max_rows, columns=columns, timestamps=timestamps
        )

    def streams(self, number: int) -> list[ConsumerStream[K, V]]:
        """So many streams that divide what is ours, to be read by as many tasks.

        With `stop_at` those without any end with the last, for a rebalance may bring one.
        """
        whole_number("the number of streams", number, 1)
        self.config.reading.refuse("streams()", "max_records", "idle_timeout_ms")
        there = self._there
        streams = [there.open_stream(there.kind) for _ in range(number)]
        self._route(SharedRoutes(streams))
        if isinstance(there.wish, ManualPartitions) and self.config.reading.stop_at is not None:
            for without in streams[len(there.wish) :]:  # nothing more will come
                without.channel.finish()
        return [self._reading_of(one) for one in streams]

    def partitions(self) -> AsyncIterator[ConsumerStream[K, V]]:
        """A stream for each partition, as it becomes ours; it ends when it is ours no more."""
        self.config.reading.refuse("partitions()", "max_records", "idle_timeout_ms", "stop_at")
        opened = self.by_partition(self._there.kind).opened()

        async def take() -> ConsumerStream[K, V] | None:
            found = await anext(opened, None)
            return None if found is None else self._reading_of(found[1], found[0])

        return CancelSafeIterator(take)

    def by_partition(self, kind: StreamKind[S]) -> PartitionRoutes[S]:
        """The same with a kind of streams of your own, for those who build on it."""
        there = self._there
        streams = PartitionRoutes(lambda: there.open_stream(kind))
        self._route(streams)
        return streams

    def _route(self, streams: Streams) -> None:
        self._check_undivided()
        if self._there.stream.is_read:
            raise ConfigError("the consumer is being read in another way already: choose one")
        self._rebalancer.route(streams)

    def _check_undivided(self) -> None:
        if type(self._rebalancer.streams) is not TopicRoutes:
            raise ConfigError(
                "streams() or partitions() has divided what is read: go on with those"
            )

    @property
    def _whole(self) -> ConsumerStream[K, V]:
        self._check_undivided()
        assert self._reading is not None
        return self._reading

    def _read_from(self, stream: BatchedStream | None) -> None:
        self._reading = None if stream is None else self._reading_of(stream)

    def _reading_of(
        self, stream: BatchedStream, partition: TopicPartition | None = None
    ) -> ConsumerStream[K, V]:
        reading, skip_to = self.config.reading, weakly(self._skip_to)
        aiter(stream).recover = RefetchPolicy(stream.position, skip_to).recover
        how = DeliveryPolicy(
            *self._deserializers,
            self._given.interceptors,
            PoisonPolicy(
                reading.on_poison,
                self._connected.manager.events,
                skip_to,
                self._connected.letters,
                self.config.member.group_id or "",
            ),
            weakly(self.commit) if reading.commit_policy == "manual" else None,
            self._limit,
            read_again=weakly(self._read_again),
            select=weakly(self._select),
        )
        return ConsumerStream(stream, how, partition)

    def _skip_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        ours = self.assignment
        self._there.transactions.back_to({})  # which then knows where they began
        self._rebalancer.seek({one: at for one, at in offsets.items() if one in ours})

    def _read_again(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._skip_to(self._there.transactions.back_to(offsets))

    def _select(self, partitions: Collection[TopicPartition] | None) -> bool:
        if partitions:
            self._check_undivided()
        return self._rebalancer.select(partitions)

    def _go_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._rebalancer.seek(offsets)
        self._there.transactions.moved(offsets)

    def transaction(self, producer: TransactionalProducer) -> AbstractAsyncContextManager[None]:
        """``async with consumer.transaction(producer)``: offsets are committed with what is sent.

        All that was handed out by its end is done with once it is committed; if it is aborted, that
        comes again. The producer is aiokafka's, started with a ``transactional_id``.
        """
        config = self.config
        if config.reading.commit_policy != "manual" or config.zookeeper is not None:
            raise ConfigError(
                "a transaction commits offsets to the group in Kafka, and nobody else may: set "
                "commit_policy='manual', and not group_protocol='zookeeper'"
            )
        self._check_commits()
        self._check_undivided()
        return self._there.transactions.transaction(producer)

    # --- how it stands ---------------------------------------------------------------------------

    def health(self) -> Health:
        """How it stands: in one word, why, and what is behind."""
        if not self._scope.is_open:
            return Health(state=HealthState.CLOSED, reason="it is not open")
        if self._joined is None:
            return Health(state=HealthState.IDLE, reason="nothing is subscribed")
        if (failure := self._following.failure) is not None:
            return Health(state=HealthState.CLOSED, reason=brief(failure))
        found = health_of(self._joined.membership, self._rebalancer, self._connected.manager)
        return with_topics(found, self._joined.topics)

    def status(self) -> Status:
        """The same as plain values: this is what the pages of `asgi` show."""
        counts = self.counts if self._scope.is_open else {}
        return status_of(self.health(), counts, self.config.member.group_id)

    def events(self) -> EventStream:
        """What happens from now on, to iterate over: rebalances, what was skipped, what stalls."""
        self._scope.check_open()
        return self._connected.manager.events.listen()

    @property
    def counts(self) -> Mapping[str, int]:
        """How often what happened so far, by the names of events; and "dropped commits"."""
        self._scope.check_open()
        return self._connected.manager.events.counts

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Partitions of ours that should move and do not, each with the reason: is it healthy?"""
        self._scope.check_open()
        return self._connected.manager.stalled()

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """How far each partition of ours is fetched, the ends of its log, its broker, and when."""
        self._scope.check_open()
        return self._connected.manager.progress()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the log as a fetch last told it; None until then."""
        return self._end_of(partition, "high_watermark")

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Up to where no transaction is open, as a fetch last told it; None until then."""
        return self._end_of(partition, "last_stable_offset")

    def _end_of(self, partition: TopicPartition, which: str) -> int | None:
        known = self.progress().get(partition)
        found: int = -1 if known is None else getattr(known, which)
        return found if found >= 0 else None

    @property
    def _lookups(self) -> OffsetQueries:
        self._scope.check_open()
        committed_only = self.config.fetch.committed_only
        return OffsetQueries(self._connected.kafka.leaders, committed_only=committed_only)

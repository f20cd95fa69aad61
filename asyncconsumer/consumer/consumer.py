"""The `Consumer`: a member of a group in Kafka or ZooKeeper, or a reader of chosen partitions.

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
    """A consumer that reads topics as a member of a group, or partitions assigned manually.

    Read it with ``async for`` within its ``async with`` block. Asking for the next record
    acknowledges the one before, which may be committed only then. The options are those of
    Kafka's consumer, in snake case. `offsets` may be a custom `OffsetStore`.
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
            assignors(self.config.member)  # raises here if they are not valid
        if self.config.reading.progress:
            check_terminal()
        self._deserializers = (
            make_deserializer(key_deserializer),
            make_deserializer(value_deserializer),
        )
        self._stack = AsyncExitStack()
        self._reading: ConsumerStream[K, V] | None = (
            None  # of the current subscription: it may hold a pending record
        )
        self._limit = (
            None if (most := self.config.reading.max_records) is None else RecordLimit(most)
        )
        self._was_open = False

    async def __aenter__(self) -> Self:
        if self._scope.is_over and not self._was_open:
            self._scope = Scope("consumer")  # opening failed, and may be tried again
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
            await self._changes.rest()  # another task may be changing the subscription
            await self._leave()
        finally:
            await self._stack.__aexit__(kind, error, where)

    def __del__(self) -> None:
        if hasattr(self, "_scope") and self._scope.is_open:  # absent if the constructor raised
            warnings.warn(
                f"unclosed {self!r}: it was opened and its `async with` block was never left, so "
                "its group waits for a session timeout",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    @property
    def is_open(self) -> bool:
        """Whether the ``async with`` block is running."""
        return self._scope.is_open

    # --- records ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Return an iterator over records, or over messages if there are deserializers.

        A consumer is read in one way only.
        """
        return aiter(self._whole)

    def batches(
        self, max_records: int = 500, max_wait_ms: int = 100
    ) -> AsyncIterator[list[Message[K, V]]]:
        """Return an iterator over lists of up to `max_records` records, of any partitions.

        After its first record, a batch waits up to `max_wait_ms` for more. Asking for the next
        batch acknowledges the whole batch.
        """
        return self._whole.batches(max_records, max_wait_ms)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """Return the buffered records, by partition; wait up to `timeout_ms` if there are none.

        With `partitions`, only these are read, until the next call. The next call or `commit`
        acknowledges the returned records.
        """
        self._check_callable("getmany()")
        return await self._whole.getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """Return the next record, of these partitions if any are given.

        The next call or `commit` acknowledges it.
        """
        self._check_callable("getone()")
        return await self._whole.getone(*partitions)

    def _check_callable(self, name: str) -> None:
        self.config.reading.refuse(name, "max_records", "idle_timeout_ms", "stop_at")

    def chunks(self) -> AsyncIterator[decoding.Records]:
        """Return an iterator over chunks: the raw records of a partition that one fetch returned.

        A chunk is iterated with a plain ``for``, which is cheaper than ``async for``.
        """
        return self._whole.chunks()

    def arrow(
        self,
        *,
        copy: bool = True,
        max_rows: int | None = None,
        columns: Sequence[str] = COLUMNS,
        timestamps: Timestamps = "ms",
    ) -> AsyncIterator["pa.RecordBatch"]:
        """Return an iterator over Arrow batches, each of one partition.

        No object is created per record. With ``copy=False`` keys and values point into the fetch
        buffers and keep them alive.
        """
        return self._whole.arrow(
            copy=copy, max_rows=max_rows, columns=columns, timestamps=timestamps
        )

    def streams(self, number: int) -> list[ConsumerStream[K, V]]:
        """Return `number` streams that divide the assignment, to be read by as many tasks.

        With `stop_at`, a stream without partitions ends with the last stream, because a rebalance
        may assign one to it.
        """
        whole_number("the number of streams", number, 1)
        self.config.reading.refuse("streams()", "max_records", "idle_timeout_ms")
        there = self._there
        streams = [there.open_stream(there.kind) for _ in range(number)]
        self._route(SharedRoutes(streams))
        if isinstance(there.wish, ManualPartitions) and self.config.reading.stop_at is not None:
            for without in streams[len(there.wish) :]:  # manual assignments get no more
                without.channel.finish()
        return [self._reading_of(one) for one in streams]

    def partitions(self) -> AsyncIterator[ConsumerStream[K, V]]:
        """Return an iterator over streams, one for each partition when it is assigned.

        A stream ends when its partition is revoked or lost.
        """
        self.config.reading.refuse("partitions()", "max_records", "idle_timeout_ms", "stop_at")
        opened = self.by_partition(self._there.kind).opened()

        async def take() -> ConsumerStream[K, V] | None:
            found = await anext(opened, None)
            return None if found is None else self._reading_of(found[1], found[0])

        return CancelSafeIterator(take)

    def by_partition(self, kind: StreamKind[S]) -> PartitionRoutes[S]:
        """Return the routes of one stream per partition, opened by `kind`.

        `ConsumerApp` uses this with its own class of streams.
        """
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
        self._there.transactions.back_to({})  # records where each partition began
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
        """Return an ``async with`` block that commits offsets in a transaction of the producer.

        The transaction covers all records delivered by the end of the block. If it is aborted,
        they are redelivered. The producer is aiokafka's, started with a ``transactional_id``.
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

    # --- monitoring ------------------------------------------------------------------------------

    def health(self) -> Health:
        """Return the health: the state, its reason, the lag and the last activity."""
        if not self._scope.is_open:
            return Health(state=HealthState.CLOSED, reason="it is not open")
        if self._joined is None:
            return Health(state=HealthState.IDLE, reason="nothing is subscribed")
        if (failure := self._following.failure) is not None:
            return Health(state=HealthState.CLOSED, reason=brief(failure))
        found = health_of(self._joined.membership, self._rebalancer, self._connected.manager)
        return with_topics(found, self._joined.topics)

    def status(self) -> Status:
        """Return the health as plain values, as the pages of `asgi` show it."""
        counts = self.counts if self._scope.is_open else {}
        return status_of(self.health(), counts, self.config.member.group_id)

    def events(self) -> EventStream:
        """Return an iterator over events from now on: rebalances, skipped offsets and stalls."""
        self._scope.check_open()
        return self._connected.manager.events.listen()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of events so far by event name, plus ``dropped commits``."""
        self._scope.check_open()
        return self._connected.manager.events.counts

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Return the assigned partitions that should make progress and do not, with the reason."""
        self._scope.check_open()
        return self._connected.manager.stalled()

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """Return the fetch position, log end, broker and last fetch of each assigned partition."""
        self._scope.check_open()
        return self._connected.manager.progress()

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch response; None before the first one."""
        return self._end_of(partition, "high_watermark")

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the last fetch response; None before the first one."""
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

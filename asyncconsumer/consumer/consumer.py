"""The `Consumer`: a member of a group in Kafka or ZooKeeper, or a reader of chosen partitions.

async with Consumer("orders", bootstrap_servers="k:9092", group_id="billing") as consumer:
    async for record in consumer:
        await bill(record.value)
"""

import re
import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, Unpack

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.weak_method import weak_method
from asyncconsumer.config import (
    ConsumerConfig,
    ConsumerOptions,
    document_options,
    refuse_both,
    whole_number,
)
from asyncconsumer.config.external import ExternalOptions, StrPath
from asyncconsumer.consumer.health import Health, HealthState, health_of, status_of, with_topics
from asyncconsumer.consumer.interceptors import Interceptor, Interceptors
from asyncconsumer.consumer.listener import ListenerList, checked
from asyncconsumer.consumer.measuring import measurements_of
from asyncconsumer.consumer.membership_factory import assignors
from asyncconsumer.consumer.monitoring import MonitoringOperations
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.poison_policy import PoisonPolicy
from asyncconsumer.consumer.progress_bar import check_terminal
from asyncconsumer.consumer.resources import open_resources
from asyncconsumer.consumer.spans import ItemSpans, check_tracing
from asyncconsumer.consumer.stream import ConsumerStream, DeliveryPolicy
from asyncconsumer.consumer.subscribe_operations import SubscribeOperations
from asyncconsumer.consumer.subscription import Collaborators, S, StreamKind
from asyncconsumer.consumer.subscription_spec import (
    ManualPartitions,
    ToAssign,
    describe,
    parse_subscription,
)
from asyncconsumer.consumer.transactions import TransactionalProducer
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError, brief
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.fetch.refetch import RefetchPolicy
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.offsets.store import OffsetStore, check_store
from asyncconsumer.producer.producer import Producer
from asyncconsumer.rebalance import Streams
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps
from asyncconsumer.serdes import Deserializable, make_deserializer
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.messages import K, Message, V
from asyncconsumer.streams.routes import PartitionRoutes, SharedRoutes, TopicRoutes
from asyncconsumer.types import GroupMetadata, TopicPartition
from asyncconsumer.web.mixin import WebMixin
from asyncconsumer.web.pages import Asgi
from asyncconsumer.web.status import Status

if TYPE_CHECKING:
    import pyarrow as pa


@document_options(ConsumerOptions)
class Consumer(SubscribeOperations, MonitoringOperations, WebMixin, Generic[K, V]):
    """A consumer that reads topics as a member of a group, or partitions assigned manually.

    Read it with ``async for`` within its ``async with`` block. Asking for the next record
    acknowledges the one before, which may be committed only then. `offsets` may be a custom
    `OffsetStore`. Options are keyword arguments, or a `config`.
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
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        environment = Environment.current()
        refuse_both(config, options)
        config = config or ConsumerConfig.from_options(**options)
        listeners = ListenerList(None if listener is None else checked(listener))
        if offsets is not None:
            check_store(offsets)
        intercepted = Interceptors(interceptors or ())
        recorder = Recorder(environment.now_ms)
        collaborators = Collaborators(listeners, offsets, intercepted, environment, recorder)
        super().__init__(config, collaborators)
        self._spec = parse_subscription(topics, pattern, partitions)
        if self.config.zookeeper is None:
            assignors(self.config.member)  # raises ConfigError for invalid names
        if self.config.delivery.progress:
            check_terminal()
        if self.config.delivery.tracing:
            check_tracing()
        self._deserializers = (
            make_deserializer(key_deserializer),
            make_deserializer(value_deserializer),
        )
        self._reading: ConsumerStream[K, V] | None = None  # the stream of the current subscription
        self._remaining = self.config.delivery.max_records  # records to deliver; None: no limit
        self._was_open = False

    @classmethod
    def from_env(
        cls,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        partitions: ToAssign | None = None,
        listener: object = None,
        key_deserializer: Deserializable[K] | None = None,
        value_deserializer: Deserializable[V] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        offsets: OffsetStore | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Self:
        """Return a consumer with options from variables such as ``ASYNCCONSUMER_GROUP_ID``.

        ``ASYNCCONSUMER_CONFIG`` is the path of a file with more options. Keywords override
        variables, which override the file.
        """
        return cls.from_config(
            None,
            *topics,
            pattern=pattern,
            partitions=partitions,
            listener=listener,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            offsets=offsets,
            **options,
        )

    @classmethod
    def from_config(
        cls,
        path: StrPath | None,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        partitions: ToAssign | None = None,
        listener: object = None,
        key_deserializer: Deserializable[K] | None = None,
        value_deserializer: Deserializable[V] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        offsets: OffsetStore | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Self:
        """Return a consumer with options from a TOML file or a Java properties file.

        Keywords override environment variables, which override the file. None stands for the path
        in ``ASYNCCONSUMER_CONFIG``, as in `from_env`.
        """
        external = ExternalOptions.read(options, path)
        with external.named_in_errors():
            return cls(
                *topics,
                pattern=pattern,
                partitions=partitions,
                listener=listener,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                interceptors=interceptors,
                offsets=offsets,
                **external.options,
            )

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._scope.is_over and not self._was_open:
            self._scope = Scope("consumer")  # opening failed, and may be tried again
        self._resources = await open_resources(
            stack, self.config, self._collaborators.environment, self.recorder
        )
        await stack.enter_async_context(self._scope)
        if self._resources.zookeeper is not None:
            self._resources.zookeeper.follow_brokers(self._resources.kafka, self._scope)
        if self._spec is not None:
            await self._change_subscription(self._spec)
        self._was_open = True

    async def _before_close(self, error: BaseException | None) -> None:
        if error is None and self._current is not None:
            self._current.runner.acknowledge_at_exit()
        await self._changes.wait_free(5.0)  # another task may be changing the subscription
        await self._leave()

    def __del__(self) -> None:
        if hasattr(self, "_scope") and self._scope.is_open:  # absent if the constructor raised
            warnings.warn(
                f"unclosed {self!r}: its `async with` block was never left, so its group waits for "
                "the session timeout",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def __repr__(self) -> str:
        spec = self._spec if self._current is None else self._current.spec
        reads = "no subscription" if spec is None else describe(spec)
        state = f"{len(self.assignment)} partitions assigned" if self.is_open else "not open"
        return (
            f"<{type(self).__name__} of {reads}, group_id={self.config.member.group_id!r}, {state}>"
        )

    @property
    def is_open(self) -> bool:
        """Whether the ``async with`` block of the consumer is running."""
        return self._scope.is_open

    def _dashboard(self, http_hosts: Iterable[str]) -> Asgi:
        from asyncconsumer.consumer.dashboard_actions import ConsumerActions  # only for web apps
        from asyncconsumer.dashboard.sites import site_of_consumer

        actions = ConsumerActions(self._checked_open)
        return site_of_consumer(self.config, self.status_by_worker, http_hosts, actions)

    def _checked_open(self) -> Self:
        self._scope.check_open()
        return self

    # --- records ---------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Return an iterator over records, or over messages if there are deserializers.

        A consumer is read in only one way: with ``async for``, `batches`, `getmany`, `getone`,
        `chunks`, `arrow`, `streams` or `partitions`.
        """
        return aiter(self._whole)

    def batches(
        self, max_records: int = 500, max_wait_ms: int = 100
    ) -> AsyncIterator[list[Message[K, V]]]:
        """Return an iterator over lists of up to `max_records` records, which mix partitions.

        After its first record, a batch waits up to `max_wait_ms` for more. Asking for the next
        batch acknowledges the whole batch.
        """
        return self._whole.batches(max_records, max_wait_ms)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """Return up to `max_records` buffered records by partition.

        If none are buffered, wait up to `timeout_ms`, and return an empty mapping after that. With
        `partitions`, only records of these are returned. The next call or `commit` acknowledges the
        returned records.
        """
        self._check_callable("getmany()")
        return await self._whole.getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """Wait for the next record and return it.

        With `partitions`, return a record of one of these. The next call or `commit` acknowledges
        the record.
        """
        self._check_callable("getone()")
        return await self._whole.getone(*partitions)

    def _check_callable(self, name: str) -> None:
        self.config.delivery.refuse(name, "max_records", "idle_timeout_ms", "stop_at")

    def chunks(self) -> AsyncIterator[decoding.Records]:
        """Return an iterator over chunks, each with the raw records of a partition from one fetch.

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

        With the option `stop_at`, all streams end together. A stream without partitions waits for
        the others, because a rebalance may assign a partition to it.
        """
        whole_number("number", number, 1)
        self.config.delivery.refuse("streams()", "max_records", "idle_timeout_ms")
        active = self._active
        streams = [active.open_stream(active.kind) for _ in range(number)]
        self._route(SharedRoutes(streams))
        if isinstance(active.spec, ManualPartitions) and self.config.delivery.stop_at is not None:
            for empty in streams[len(active.spec) :]:  # manual assignments get no more
                empty.channel.finish()
        return [self._consumer_stream(stream) for stream in streams]

    def partitions(self) -> AsyncIterator[ConsumerStream[K, V]]:
        """Return an iterator over streams, one for each partition when the partition is assigned.

        A stream ends when its partition is revoked or lost.
        """
        self.config.delivery.refuse("partitions()", "max_records", "idle_timeout_ms", "stop_at")
        opened = self.by_partition(self._active.kind).opened()

        async def take() -> ConsumerStream[K, V] | None:
            if (stream := await anext(opened, None)) is None:
                return None
            tp, partition_stream = stream
            return self._consumer_stream(partition_stream, tp)

        return CancelSafeIterator(take)

    def by_partition(self, kind: StreamKind[S]) -> PartitionRoutes[S]:
        """Divide this consumer into one stream for each assigned partition. Return the streams.

        `kind` is called to create each stream. `ConsumerApp` passes its own class of streams.
        """
        active = self._active
        streams = PartitionRoutes(lambda: active.open_stream(kind))
        self._route(streams)
        return streams

    def _route(self, streams: Streams) -> None:
        self._check_undivided()
        if self._active.stream.is_read:
            raise ConfigError(
                "this consumer is already being read in another way. Read it in one way only"
            )
        self._rebalancer.route(streams)

    def _check_undivided(self) -> None:
        if type(self._rebalancer.streams) is not TopicRoutes:
            raise ConfigError(
                "streams() or partitions() has divided this consumer. Read the streams that it "
                "returned"
            )

    @property
    def _whole(self) -> ConsumerStream[K, V]:
        self._check_undivided()
        assert self._reading is not None
        return self._reading

    def _read_from(self, stream: BatchedStream | None) -> None:
        if self._reading is not None:
            self._remaining = self._reading.remaining
            self._reading.end_span()
        self._reading = None if stream is None else self._consumer_stream(stream)

    def _consumer_stream(
        self, stream: BatchedStream, partition: TopicPartition | None = None
    ) -> ConsumerStream[K, V]:
        delivery, seek_past = self.config.delivery, weak_method(self._seek_past)
        aiter(stream).recover = RefetchPolicy(stream.position, seek_past).recover
        policy = DeliveryPolicy(
            *self._deserializers,
            self._collaborators.interceptors,
            PoisonPolicy(
                delivery.on_poison,
                self._resources.manager.events,
                seek_past,
                self._resources.dead_letters,
                self.config.member.group_id or "",
            ),
            weak_method(self.commit) if delivery.commit_policy == "manual" else None,
            read_again=weak_method(self._rewind),
            select=weak_method(self._select),
            spans=partial(ItemSpans, self.config.member.group_id) if delivery.tracing else None,
        )
        policy = self._adapt(stream, policy)
        stream.remaining = self._remaining
        return ConsumerStream(stream, policy, partition)

    def _adapt(self, stream: BatchedStream, policy: DeliveryPolicy) -> DeliveryPolicy:
        """Return the delivery policy to use for `stream`, which is `policy` by default.

        Subclasses that deliver other types of records override this.
        """
        return policy

    def _seek_past(self, offsets: Mapping[TopicPartition, int]) -> None:
        assigned = self.assignment
        self._active.transactions.back_to({})  # records where each partition began
        self._rebalancer.seek({tp: offset for tp, offset in offsets.items() if tp in assigned})

    def _rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._seek_past(self._active.transactions.back_to(offsets))

    def _select(self, partitions: Collection[TopicPartition] | None) -> bool:
        if partitions:
            self._check_undivided()
            self._rebalancer.check_assigned(partitions)
        return self._rebalancer.select(partitions)

    def _user_seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._rebalancer.seek(offsets)
        self._active.transactions.moved(offsets)

    def group_metadata(self) -> GroupMetadata:
        """Return the group and this member, for `send_offsets` of a producer's transaction."""
        self._check_commits()
        return self._active.transactions.group_metadata()

    def transaction(
        self, producer: Producer | TransactionalProducer
    ) -> AbstractAsyncContextManager[None]:
        """Return an async context manager that commits offsets in a transaction of the producer.

        The transaction covers all records delivered by the end of the block. If it is aborted, they
        are redelivered. The producer needs a ``transactional_id``. It may be aiokafka's producer.
        """
        config = self.config
        if config.delivery.commit_policy != "manual" or config.zookeeper is not None:
            raise ConfigError(
                "a transaction commits offsets itself, to a group in Kafka. Set "
                "`commit_policy='manual'`, and do not set `group_protocol='zookeeper'`"
            )
        self._check_commits()
        self._check_undivided()
        return self._active.transactions.transaction(producer)

    # --- monitoring ------------------------------------------------------------------------------

    def health(self) -> Health:
        """Return a Health object: the state, its reason, the lag and the last activity."""
        if not self._scope.is_open:
            return Health(state=HealthState.CLOSED, reason="the consumer is not open")
        if self._current is None:
            return Health(state=HealthState.IDLE, reason="nothing is subscribed", started=True)
        if (failure := self._runner.failure) is not None:
            return Health(state=HealthState.CLOSED, reason=brief(failure))
        health = health_of(self._current.membership, self._rebalancer, self._resources.manager)
        return with_topics(health, self._current.topics)

    def status(self) -> Status:
        """Return the consumer's health as plain values, as the health pages show it."""
        health, group_id = self.health(), self.config.member.group_id
        if not self._scope.is_open:
            return status_of(health, {}, group_id)
        rebalancer = None if self._current is None else self._rebalancer
        measurements = measurements_of(self._fetch_manager(), rebalancer, health.lag)
        return status_of(health, self.counts, group_id, measurements)

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms."""
        return self._collaborators.recorder

    def _fetch_manager(self) -> FetchManager:
        return self._resources.manager

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark in the last fetch response, or None before the first one."""
        return self._end_of(partition, "high_watermark")

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset in the last fetch response.

        Return None before the first response.
        """
        return self._end_of(partition, "last_stable_offset")

    def _end_of(self, partition: TopicPartition, policy: str) -> int | None:
        progress = self.progress().get(partition)
        offset: int = -1 if progress is None else getattr(progress, policy)
        return offset if offset >= 0 else None

    @property
    def _lookups(self) -> OffsetQueries:
        self._scope.check_open()
        committed_only = self.config.fetch.committed_only
        return OffsetQueries(self._resources.kafka.leaders, committed_only=committed_only)

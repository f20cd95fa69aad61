"""The `Producer`: an idempotent writer of records, with batches, back-pressure and serializers.

async with Producer(bootstrap_servers="k:9092") as producer:
    delivery = await producer.send("orders", b"value", key=b"key")
    print((await delivery).offset)
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from random import Random
from typing import Any, Final, Generic, Self, TypeAlias, Unpack

from typing_extensions import TypeVar

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.config import (
    ProducerConfig,
    ProducerOptions,
    SendConfig,
    document_options,
    refuse_both,
)
from asyncconsumer.config.external import ExternalOptions, StrPath
from asyncconsumer.config.option_docs import option_docs
from asyncconsumer.environment import Environment
from asyncconsumer.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConsumerError,
    UnknownTopicOrPartition,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Topic
from asyncconsumer.net.pool import BrokerOpener, BrokerPool
from asyncconsumer.producer.batch import RecordDelivery, RecordMetadata
from asyncconsumer.producer.partitioner import TopicPartitioner
from asyncconsumer.producer.send_buffer import SendBuffer
from asyncconsumer.producer.sender import Sender
from asyncconsumer.producer.transaction_requests import TransactionRequests
from asyncconsumer.producer.transactions import ProducerTransactions, Transaction
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import RecordContext, Serializable, Serializer, make_serializer
from asyncconsumer.types import TopicPartition

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
SendHeaders: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Headers of a record to send. Names may repeat in a sequence of pairs."""

_MOST_UNKNOWN_MS: Final = 5_000  # after this time a topic that does not exist is an error

_log: Final = logging.getLogger(__name__)


def pairs(headers: SendHeaders) -> Headers:
    """Return `headers`, which may be a mapping, as a tuple of (name, value) pairs."""
    return tuple(headers.items() if isinstance(headers, Mapping) else headers)


@document_options(ProducerOptions)
class Producer(AsyncResource, Generic[K, V]):
    """An idempotent producer, open for its ``async with`` block. Any number of tasks may send.

    A record counts as written when all in-sync replicas have it. Retriable errors are retried for
    `delivery_timeout_ms`. Retries neither write a record twice nor change the order within a
    partition.

    Without serializers, the type of each key and value selects the encoding: bytes, text, or JSON
    for models, dataclasses, dicts and lists. See `asyncconsumer.serdes.make_serializer`.
    """

    def __init__(
        self,
        *,
        key_serializer: Serializable[K] | None = None,
        value_serializer: Serializable[V] | None = None,
        config: ProducerConfig | None = None,
        randomness: Random | None = None,
        opener: BrokerOpener | None = None,
        now_ms: Callable[[], int] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        refuse_both(config, options)
        self.config: Final = config or ProducerConfig.from_options(**options)
        sending = self.config.sending
        self._write_key: Final[Serializer] = make_serializer(key_serializer)
        self._write_value: Final[Serializer] = make_serializer(value_serializer)
        environment = Environment.current()
        self._randomness = randomness or environment.randomness  # for jitter and partitions
        self._now_ms = now_ms or environment.now_ms
        self._brokers = BrokerPool(
            self.config.connection,
            randomness=self._randomness,
            opener=opener or environment.open_broker,
        )
        self._cluster = Cluster(self._brokers, randomness=self._randomness)
        self._buffer = SendBuffer(sending.max_buffered_bytes)
        self._sender = Sender(
            self._brokers, self._cluster, sending, self._randomness, self._buffer.free
        )
        self._partitioners: dict[str, TopicPartitioner] = {}
        self._transactions = self._make_transactions(sending)
        self._sender.gate = self._transactions

    def _make_transactions(self, sending: SendConfig) -> ProducerTransactions | None:
        if sending.transactional_id is None:
            return None
        requests = TransactionRequests(
            sending.transactional_id,
            self._brokers,
            self._cluster,
            timeout_ms=sending.transaction_timeout_ms,
            patience_ms=sending.delivery_timeout_ms,
            randomness=self._randomness,
        )
        return ProducerTransactions(requests, _TransactionSender(self))

    @classmethod
    def from_env(
        cls,
        *,
        key_serializer: Serializable[K] | None = None,
        value_serializer: Serializable[V] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Self:
        """Return a producer with options from variables such as ``ASYNCCONSUMER_LINGER_MS``.

        Variables and settings of consumers are left out, so both may share them.
        """
        return cls.from_config(
            None, key_serializer=key_serializer, value_serializer=value_serializer, **options
        )

    @classmethod
    def from_config(
        cls,
        path: StrPath | None,
        *,
        key_serializer: Serializable[K] | None = None,
        value_serializer: Serializable[V] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Self:
        """Return a producer with options from a TOML file or a Java properties file.

        Keywords override environment variables, which override the file. None stands for the path
        in ``ASYNCCONSUMER_CONFIG``, as in `from_env`.
        """
        external = ExternalOptions.read(options, path, own=option_docs(ProducerOptions))
        with external.named_in_errors():
            return cls(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                **external.options,
            )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._brokers)
        await stack.enter_async_context(self._cluster)
        await stack.enter_async_context(self._sender)
        if self._transactions is not None:
            await stack.enter_async_context(self._transactions.scope)
        stack.callback(self._close_buffer)
        self._buffer.open()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: SendHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordDelivery:
        """Add a record to a batch, and return its delivery, which may be awaited.

        Wait while unwritten records use up `max_buffered_bytes`, or until the partitions of a new
        topic are known. Without `partition`, the key selects one, as in Java's producer.
        """
        headers = pairs(headers)
        context = RecordContext(topic, "value", headers)
        data = self._write_value(value, context)
        if not (data is None or isinstance(data, bytes)):
            data = await data
        key_data: bytes | None = None
        if key is not None:
            made = self._write_key(key, context._replace(part="key"))
            key_data = made if made is None or isinstance(made, bytes) else await made
        return self.send_now(
            topic, key_data, data, headers, partition, timestamp_ms
        ) or await self.send_bytes(topic, key_data, data, headers, partition, timestamp_ms)

    def send_now(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordDelivery | None:
        """Add a serialized record to a batch and return its delivery, if no wait is needed.

        Return None if the buffer is full or the partitions of the topic are unknown. The caller
        should then await `send_bytes`.
        """
        partitioner = self._partitioners.get(topic)
        if (
            partitioner is None
            or self._cluster.metadata.topics.get(topic) is not partitioner.topic
            or self._buffer.is_full
        ):
            return None
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        return self._append(partitioner, (key, value, headers), partition, timestamp_ms)

    async def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordDelivery:
        """Add a serialized record to a batch, and return its delivery. Wait as `send` does."""
        partitioner = await self._find_partitions(topic)
        if self._buffer.is_full:
            await self._buffer.wait_room()
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        return self._append(partitioner, (key, value, headers), partition, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: SendHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait until it is written."""
        return await (
            await self.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Return an async context manager of a transaction, which commits at the end of its block.

        Either all records sent in the block are committed, or none. If the block raises an
        exception, or if a record fails, the transaction is aborted. A producer has one transaction
        at a time.

        Raise ProducerFenced if another producer has the same `transactional_id`,
        TransactionAborted if a record or an offset failed, and TransactionInDoubt if the commit was
        not answered.
        """
        if self._transactions is None:
            raise ConfigError(
                "a transaction needs a name that outlives the process: set `transactional_id`"
            )
        return self._transactions.transaction()

    @property
    def has_unfinished_transaction(self) -> bool:
        """Whether the last transaction is open, or its end was not confirmed by the broker.

        The broker aborts such a transaction after its timeout, and then rejects this producer.
        """
        return self._transactions is not None and self._transactions.is_unfinished

    def take_over(self) -> None:
        """Begin the next transaction with a new epoch, even if this producer was fenced.

        The new epoch fences the other producer. Use this after a transaction has timed out, if no
        other producer can have the same `transactional_id`.
        """
        if self._transactions is not None:
            self._transactions.forget_identity()

    async def flush(self) -> None:
        """Wait until all records sent before this call are written or have failed.

        Raise the error of the first record that failed meanwhile.
        """
        self._sender.check_open()
        batches = self._sender.batches()
        self._sender.flushing += 1
        self._sender.activate_all()
        try:
            for batch in batches:
                await batch.wait()
        finally:
            self._sender.flushing -= 1
        for batch in batches:
            if (error := batch.first_error()) is not None:
                raise error

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic. Failed requests are not retried.

        A broker with automatic topic creation creates the topic. Raise UnknownTopicOrPartition if
        it does not exist.
        """
        self._sender.check_open()
        known = self._cluster.metadata.topics.get(topic)
        if known is None or known.error is not None or not known.partitions:
            try:
                known = await self._request_topic(topic)
            except UnknownTopicOrPartition:  # the topic may be created now
                known = await self._request_topic(topic)
        return sorted(known.partitions)

    def last_error(self, topic: str) -> ConsumerError | None:
        """Return why records of a topic are not written yet, or None if no attempt has failed."""
        return self._sender.last_error(topic)

    def withdraw(self, delivery: RecordDelivery) -> None:
        """Do not send a record any more, unless it is already written or in flight.

        The delivery of a withdrawn record fails. Raise ConfigError for a producer with
        transactions, because their records can only be dropped by an abort.
        """
        if self._transactions is not None:
            raise ConfigError(
                "a record of a transaction cannot be withdrawn: abort the transaction"
            )
        self._sender.withdraw(delivery)

    async def _before_close(self, error: BaseException | None) -> None:
        seconds = self.config.sending.close_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await self.flush()
        except TimeoutError:
            _log.warning("not all records were written within %g s (`close_timeout_ms`)", seconds)
        except ConsumerError as failure:
            _log.warning("failed to write a record before the producer was closed: %s", failure)

    def _close_buffer(self) -> None:
        self._buffer.close()
        count = self._sender.give_up_all(
            ClosedError("the producer was closed before it had written this record")
        )
        if count:
            _log.warning("the producer was closed before it had written %d records", count)

    def _append(
        self,
        partitioner: TopicPartitioner,
        record: tuple[bytes | None, bytes | None, Headers],
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordDelivery:
        if self._transactions is not None:
            self._transactions.check_open()
        topic = partitioner.topic.name
        if partition is None:
            if record[0] is None:
                partition = partitioner.sticky
                if not self._sender.queue(topic, partition).has_open:
                    partition = partitioner.move_on()
            else:
                partition = partitioner.of_key(record[0])
        elif partition not in partitioner.topic.partitions:
            raise UnknownTopicOrPartition(f"{topic}[{partition}]")
        queue = self._sender.queue(topic, partition)
        delivery, size, is_due = queue.append(record, timestamp_ms)
        self._buffer.used += size
        if is_due:
            self._sender.activate(queue)
        return delivery

    async def _find_partitions(self, topic: str) -> TopicPartitioner:
        """Return the partitioner of a topic. Request the topic's metadata if it is not known.

        A broker with automatic topic creation creates the topic.
        """
        self._sender.check_open()
        known = self._cluster.metadata.topics.get(topic)
        partitioner = self._partitioners.get(topic)
        if partitioner is not None and known is partitioner.topic:
            return partitioner
        retries = RetryDeadline(self.config.sending.delivery_timeout_ms, self._randomness)
        missing = RetryDeadline(_MOST_UNKNOWN_MS, self._randomness)
        while known is None or known.error is not None or not known.partitions:
            try:
                known = await self._request_topic(topic)
            except UnknownTopicOrPartition as error:
                await missing.wait_or_raise(error)
            except ConsumerError as error:
                await retries.wait_or_raise(error)
        self._sender.use(topic)
        partitioner = self._partitioners[topic] = TopicPartitioner(
            known, self._cluster.metadata, self._randomness
        )
        return partitioner

    async def _request_topic(self, name: str) -> Topic:
        metadata = await self._cluster.refresh([name])
        topic = metadata.topics.get(name)
        if topic is not None and topic.error is None and topic.partitions:
            return topic
        if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
            await self._cluster.ask_any(MetadataRequest([name], create=True))
            raise UnknownTopicOrPartition(f"topic {name!r}")
        raise topic.error or BrokerError.from_code(5, f"topic {name!r}")


class _TransactionSender:
    """The `BatchSender` of a producer, for its transactions."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer
        self._sender = producer._sender  # noqa: SLF001 - of the same module
        self.flush: Final = producer.flush
        self.restart: Final = self._sender.restart

    def give_up(self, error: ConsumerError) -> None:
        """Fail all records that are not written yet with `error`."""
        self._sender.give_up_all(error)

    def activate(self, tp: TopicPartition) -> None:
        """Wake the sender, because batches of a partition may be sent now."""
        self._sender.activate(self._sender.queue(*tp))

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return self._sender.is_idle

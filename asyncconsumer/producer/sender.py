"""The task that sends batches to the leaders of their partitions."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from random import Random
from typing import Final, Protocol, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import SendConfig
from asyncconsumer.errors import ConsumerError, LeaderNotAvailable
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.producer.batch import ProducerBatch, RecordDelivery, withdraw
from asyncconsumer.producer.partition_queue import PartitionQueue
from asyncconsumer.producer.producer_id import ProducerIds
from asyncconsumer.producer.stale_topics import StaleTopics
from asyncconsumer.protocol.produce import ProduceRequest, Written, read_produce_response
from asyncconsumer.records.batch_encoder import BatchProducer
from asyncconsumer.types import Address, TopicPartition

_MAX_REQUESTS: Final = 5  # requests in flight to one broker
_MAX_REQUEST_BYTES: Final = 8 * 2**20
# The broker's wait for replicas ends, with an error, before the request times out here.
_TIMEOUT_FACTOR: Final = 0.7
_SECONDS_BETWEEN_IDS: Final = 0.2


class Gate(Protocol):
    """The interface of a transaction, which decides the partitions that the sender may send to."""

    @property
    def transactional_id(self) -> str:
        """The transactional id of the producer."""

    def admits(self, tp: TopicPartition) -> bool:
        """Return whether batches of a partition may be sent now."""

    def fail(self, error: ConsumerError) -> None:
        """Handle the failure of a batch with `error`, which fails the transaction."""


_Batches: TypeAlias = dict[TopicPartition, ProducerBatch]

_log: Final = logging.getLogger(__name__)


class Sender(AsyncResource):
    """The queues of all partitions, and the task that sends their batches.

    `on_free` is called with the number of bytes that batches free in the send buffer, when they are
    written or have failed.
    """

    def __init__(
        self,
        brokers: BrokerPool,
        cluster: Cluster,
        config: SendConfig,
        randomness: Random,
        on_free: Callable[[int], None],
    ) -> None:
        self.queues: Final[dict[tuple[str, int], PartitionQueue]] = {}
        self.flushing = 0  # callers that wait until everything is written
        self.gate: Gate | None = None  # only for a transactional producer
        self._brokers = brokers
        self._cluster = cluster
        self._new_queue = partial(PartitionQueue, config=config, randomness=randomness)
        self._on_free = on_free
        self._ids = ProducerIds(cluster)
        # queues that may send now or at a later time; the other queues wait for a response
        self._active: dict[PartitionQueue, None] = {}
        self._requests: Counter[Address] = Counter()  # number of requests in flight to each broker
        self._stale = StaleTopics(cluster)
        self._wakeup = asyncio.Event()
        self._scope = Scope("the producer")
        self._log = RateLimitedLogger(_log)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._scope)
        self._scope.start(self._run(), "send batches")
        self._scope.start(self._stale.run(self._wakeup.set), "find leaders")

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition. It is created at the first call."""
        queue = self.queues.get((topic, partition))
        if queue is None:
            tp = TopicPartition(topic, partition)
            queue = self.queues[tp] = self._new_queue(tp)
            queue.producer = self._ids.latest
        return queue

    def restart(self, producer: BatchProducer) -> None:
        """Use another producer id or epoch for all partitions. All queues must be empty."""
        self._ids.latest = producer
        for queue in self.queues.values():
            queue.restart(producer)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not any(self._requests.values())

    def activate(self, queue: PartitionQueue) -> None:
        """Wake the sending task, because `queue` may have a batch to send."""
        self._active[queue] = None
        self._wakeup.set()

    def check_open(self) -> None:
        """Raise ClosedError if the ``async with`` block is not running."""
        self._scope.check_open()

    def use(self, topic: str) -> None:
        """Request the metadata of a topic regularly from now on."""
        self._stale.use(topic)

    def batches(self) -> list[ProducerBatch]:
        """Return all batches that are neither written nor failed."""
        return [batch for queue in self.queues.values() for batch in queue.batches()]

    def activate_all(self) -> None:
        """Activate all queues with batches to send, because a flush has begun.

        During a flush no batch waits for more records.
        """
        for queue in self.queues.values():
            if queue.is_waiting:
                self.activate(queue)

    def last_error(self, topic: str) -> ConsumerError | None:
        """Return why records of a topic are not written yet, or None if no attempt has failed."""
        for queue in self.queues.values():
            tp = queue.tp
            if tp.topic == topic and queue.batches():
                if queue.last_error is not None:
                    return queue.last_error
                if self._cluster.metadata.find_leader(tp) is None:
                    return LeaderNotAvailable(str(tp))
                if queue.lacks_id and self._ids.last_error is not None:
                    return self._ids.last_error
        return None

    def withdraw(self, delivery: RecordDelivery) -> None:
        """Do not send a record any more, unless it is already written or in flight."""
        if delivery.done():
            return
        batch = withdraw(delivery)
        queue = self.queues[batch.tp]
        self._on_free(queue.drop_withdrawn(batch))
        self.activate(queue)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = self._send_ready(loop.time())
            timer = None if due == inf else loop.call_at(due, self._wakeup.set)
            try:
                await self._wakeup.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            self._wakeup.clear()

    def _send_ready(self, now: float) -> float:
        """Send all batches that may be sent. Return the time of the next check.

        A response or a new record may cause an earlier check.
        """
        while True:
            due, requests = self._collect(now)
            if not requests:
                break
            for broker, batches in requests.items():
                self._requests[broker] += 1
                self._scope.start(self._produce(broker, batches), f"produce to {broker}")
        if (
            self.gate is None
            and not self._ids.pending
            and any(queue.lacks_id for queue in self._active)
        ):
            self._ids.pending = True
            self._scope.start(self._provide_id(), "producer id")
        return due

    def _collect(self, now: float) -> tuple[float, dict[Address, _Batches]]:
        """Return the loop time of the next check, and the batches to send to each leader.

        A leader gets at most one batch of each partition.
        """
        due, flush = inf, self.flushing > 0
        requests: dict[Address, _Batches] = {}
        sizes: Counter[Address] = Counter()
        for queue in list(self._active):
            if freed := queue.expire(now):
                self._on_free(freed)
                self._note_failure(queue.last_error)
            if self.gate is not None and queue.is_waiting and not self.gate.admits(queue.tp):
                due = min(due, queue.due(now, flush=flush))
                continue  # the partition is not yet part of the transaction
            address = self._free_leader(queue, sizes)
            batch = None if address is None else queue.take(now, flush=flush)
            if batch is not None and address is not None:
                requests.setdefault(address, {})[queue.tp] = batch
                sizes[address] += len(batch.data)
                continue
            due = min(due, queue.due(now, flush=flush))
            if queue.in_flight or not queue.is_waiting:
                del self._active[queue]  # a response or a new record activates it
        return due, requests

    def _free_leader(self, queue: PartitionQueue, sizes: Counter[Address]) -> Address | None:
        """Return the address of a partition's leader, or None if no batch can be sent to it now.

        If the leader is unknown, request the metadata of the topic. `sizes` has the bytes that are
        about to be sent to each leader.
        """
        leader = self._cluster.metadata.find_leader(queue.tp)
        if leader is None:
            self._stale.add(queue.tp.topic)
            return None
        address = leader[0].address
        if self._requests[address] >= _MAX_REQUESTS or sizes[address] >= _MAX_REQUEST_BYTES:
            return None
        return address

    async def _produce(self, address: Address, batches: _Batches) -> None:
        request = ProduceRequest(
            {tp: batch.data for tp, batch in batches.items()},
            timeout_ms=int(self._brokers.config.request_timeout_ms * _TIMEOUT_FACTOR),
            transactional_id=None if self.gate is None else self.gate.transactional_id,
        )
        outcomes: dict[TopicPartition, Written | ConsumerError]
        try:
            connection = await self._brokers.connection(address, Traffic.PRODUCE)
            outcomes = read_produce_response(await connection.request(request), batches)
        except ConsumerError as error:
            outcomes = dict.fromkeys(batches, error)
        finally:
            self._requests[address] -= 1
        now, freed = asyncio.get_running_loop().time(), 0
        for tp, batch in batches.items():
            queue, outcome = self.queues[tp], outcomes[tp]
            if batch.done:  # the batch was given up meanwhile
                continue
            if isinstance(outcome, ConsumerError):
                freed += self._failed(queue, batch, outcome, now)
            else:
                freed += queue.written(batch, *outcome)
            self._active[queue] = None
        self._on_free(freed)
        self._wakeup.set()

    def _failed(
        self, queue: PartitionQueue, batch: ProducerBatch, error: ConsumerError, now: float
    ) -> int:
        count = batch.encoder.count
        if error.retriable:
            self._stale.add(queue.tp.topic)
        freed = queue.failed(batch, error, now)
        if batch.error is not None:
            self._log.warning("failed to write %d records to %s: %s", count, queue.tp, error)
            self._note_failure(batch.error)
        return freed

    def _note_failure(self, error: ConsumerError | None) -> None:
        if self.gate is not None and error is not None:
            self.gate.fail(error)

    async def _provide_id(self) -> None:
        """Request a producer id for the queues that lack one."""
        try:
            producer = await self._ids.request()
        except ConsumerError as error:
            self._ids.last_error = error
            if error.retriable:  # a broker that has just started issues none yet
                self._log.info("failed to get a producer id: %s; trying again", error)
            else:
                self._log.warning(
                    "failed to get a producer id, so the waiting records have failed: %s", error
                )
                self._give_up(self._lacking(), error)
            await asyncio.sleep(_SECONDS_BETWEEN_IDS)
        else:
            self._ids.last_error = None
            for queue in self._lacking():
                queue.producer = producer
        self._ids.pending = False
        self._wakeup.set()

    def _lacking(self) -> list[PartitionQueue]:
        return [queue for queue in self.queues.values() if queue.lacks_id]

    def give_up_all(self, error: ConsumerError) -> int:
        """Fail all records that are not written yet. Return the number of these records."""
        count = sum(batch.encoder.count for batch in self.batches())
        self._give_up(self.queues.values(), error)
        return count

    def _give_up(self, queues: Iterable[PartitionQueue], error: ConsumerError) -> None:
        self._on_free(sum(queue.give_up(error) for queue in queues))

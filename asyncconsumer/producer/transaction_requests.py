"""The requests of one transactional producer to the coordinators of its transactions.

They are InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Final

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.aiokafka_parts import Request, Response
from asyncconsumer.errors import (
    BrokerError,
    ConcurrentTransactions,
    ConsumerError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProducerFenced,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.produce import InitProducerIdRequest
from asyncconsumer.protocol.transactions import (
    AddOffsetsRequest,
    AddPartitionsRequest,
    CommitInTransactionRequest,
    EndTransactionRequest,
    TransactionalIdentity,
    check_partitions,
)
from asyncconsumer.records.batch_encoder import BatchProducer
from asyncconsumer.types import GroupMetadata, TopicPartition

_SECONDS_TO_COMPLETE: Final = 0.02  # between tries while brokers complete the last transaction


class TransactionRequests:
    """The requests of a transactional producer. Each is retried for `patience_ms`."""

    def __init__(
        self,
        transactional_id: str,
        brokers: BrokerPool,
        cluster: Cluster,
        *,
        timeout_ms: int,
        patience_ms: int,
        randomness: Random,
    ) -> None:
        self.transactional_id: Final = transactional_id
        self._brokers = brokers
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._coordinator = Coordinator(transactional_id, brokers, cluster, transactional=True)
        self._groups: dict[str, Coordinator] = {}
        self._identity: TransactionalIdentity | None = None

    async def init(self) -> BatchProducer:
        """Return the producer id with a new epoch. The coordinator aborts an open transaction.

        Raise ProducerFenced if another producer has requested the transactional id since the last
        call.
        """
        known = self._identity
        message = InitProducerIdRequest(
            self.transactional_id,
            self._timeout_ms,
            producer_id=-1 if known is None else known.producer_id,
            producer_epoch=-1 if known is None else known.producer_epoch,
        )
        response = await self._ask(self._coordinator, lambda: message)
        row = response.to_object()
        self._identity = TransactionalIdentity(
            self.transactional_id, row["producer_id"], row["producer_epoch"]
        )
        return BatchProducer(row["producer_id"], row["producer_epoch"], 0)

    def forget_identity(self) -> None:
        """Forget the producer id, so that the next `init` succeeds even after a fencing."""
        self._identity = None

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the open transaction."""
        message = AddPartitionsRequest(self._known, partitions)
        await self._ask(
            self._coordinator,
            lambda: message,
            lambda response: check_partitions(response, partitions),
        )

    async def add_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, int], *, is_new: bool
    ) -> None:
        """Commit offsets of a group as a part of the open transaction.

        `is_new` means that these are the first offsets of the group in the transaction.
        """
        if is_new:
            announcement = AddOffsetsRequest(self._known, group.group_id)
            await self._ask(self._coordinator, lambda: announcement)
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = Coordinator(group.group_id, self._brokers, self._cluster)
            self._groups[group.group_id] = coordinator
        message = CommitInTransactionRequest(self._known, group, offsets)
        await self._ask(
            coordinator, lambda: message, lambda response: check_partitions(response, offsets)
        )

    async def end(self, *, commit: bool, on_lost: Callable[[], None] = lambda: None) -> None:
        """Commit or abort the open transaction.

        `on_lost` is called when the response to an attempt is lost. The error of a later attempt
        then does not tell whether the transaction was committed.
        """
        message = EndTransactionRequest(self._known, commit=commit)
        await self._ask(self._coordinator, lambda: message, on_lost=on_lost)

    @property
    def _known(self) -> TransactionalIdentity:
        assert self._identity is not None
        return self._identity

    async def _ask(
        self,
        coordinator: Coordinator,
        message: Callable[[], Request],
        check: Callable[[Response], None] | None = None,
        *,
        on_lost: Callable[[], None] = lambda: None,
    ) -> Response:
        """Send the request that `message` makes, until it succeeds or an error is permanent.

        Stop with the last error after `patience_ms`. `check` raises an error that the response
        contains. `on_lost` is called when the response to an attempt is lost.
        """
        deadline = RetryDeadline(self._patience_ms, self._randomness)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_ms / 1000
        while True:
            try:
                async with coordinator.reached(Traffic.GROUP) as connection:
                    response = await connection.request(message())
                    (check or self._check)(response)
                    return response
            except ConcurrentTransactions:
                if loop.time() >= end:
                    raise
                await asyncio.sleep(_SECONDS_TO_COMPLETE)
            except (InvalidProducerEpoch, ProducerFenced) as error:
                raise ProducerFenced(f"transactional id {self.transactional_id!r}") from error
            except InvalidProducerIdMapping:
                # the producer id has expired, and the next `init` gets a new one
                self.forget_identity()
                raise
            except ConsumerError as error:
                if not isinstance(error, BrokerError):
                    on_lost()
                await deadline.wait_or_raise(error)

    def _check(self, response: Response) -> None:
        if code := response.to_object()["error_code"]:
            raise BrokerError.from_code(code, f"transactional id {self.transactional_id!r}")

"""The transaction coordinators of a fake cluster, and producer ids."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from asyncconsumer.protocol.produce import INIT_PRODUCER_ID
from asyncconsumer.protocol.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
)
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.log import Aborted, ProducerState, Writer, make_marker
from asyncconsumer.testing.fake_kafka.state import View
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.types import TopicPartition

Row: TypeAlias = dict[str, Any]
OffsetRows: TypeAlias = dict[TopicPartition, Row]

_FENCED_BY_NAME: Final = 2  # the first version with the error code PRODUCER_FENCED


@dataclass(slots=True, eq=False)
class TransactionalId:
    """The state of a transactional id: its producer id and epoch, and its open transaction."""

    producer: int
    timeout: float  # seconds
    epoch: int = -1
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: dict[str, OffsetRows] = field(default_factory=dict)
    ended: bool | None = None  # how the last transaction ended: True for a commit
    timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.partitions or self.groups)


class FakeTransactions:
    """The transactional ids of a cluster. They keep their state when their coordinator changes.

    The coordinator of all ids is the live broker with the smallest node id. When a transaction with
    offsets is committed, `commit_offsets` is called with each group and its offsets.
    """

    def __init__(
        self,
        view: View,
        now_ms: Callable[[], int],
        commit_offsets: Callable[[str, OffsetRows], None],
    ) -> None:
        self.ids: dict[str, TransactionalId] = {}
        self._view = view
        self._now_ms = now_ms
        self._commit_offsets = commit_offsets
        self._next_producer = 1000

    @property
    def handlers(self) -> dict[int, Handler]:
        """The handlers by API key, for `FakeCluster(handlers=...)`."""
        return {
            INIT_PRODUCER_ID.key: handler(INIT_PRODUCER_ID, self._init),
            ADD_PARTITIONS_TO_TXN.key: handler(ADD_PARTITIONS_TO_TXN, self._add_partitions),
            ADD_OFFSETS_TO_TXN.key: handler(ADD_OFFSETS_TO_TXN, self._add_offsets),
            END_TXN.key: handler(END_TXN, self._end),
        }

    def coordinator(self) -> int:
        """Return the id of the broker that coordinates transactions, or -1 if none is alive."""
        return min(self._view.endpoints, default=-1)

    def may_write(self, producer: int, tp: TopicPartition) -> bool:
        """Return whether a partition was added to the open transaction of a producer id."""
        return any(tp in each.partitions for each in self.ids.values() if each.producer == producer)

    def is_pending(self, group: str, tp: TopicPartition) -> bool:
        """Return whether an open transaction has an uncommitted offset of the group for `tp`."""
        return any(tp in each.groups.get(group, {}) for each in self.ids.values())

    def add_offsets(self, received: Row, offsets: OffsetRows, version: int) -> int:
        """Add offsets of a group to an open transaction. Return the error code, or 0.

        `received` has the fields of the request, and `version` is its version.
        """
        known = self.ids.get(received["transactional_id"])
        if code := _refusal(known, received, version):
            return code
        assert known is not None
        if received["group_id"] not in known.groups:
            return INVALID_TXN_STATE
        known.groups[received["group_id"]] |= offsets
        return NONE

    def time_out(self, name: str) -> None:
        """Abort the open transaction of the transactional id `name`, and fence its producer.

        The timer of the transaction calls this method.
        """
        self._fence(self.ids[name])

    def close(self) -> None:
        """Cancel all timers."""
        for known in self.ids.values():
            _rest(known)

    # --- requests --------------------------------------------------------------------------------

    def _elsewhere(self, request: Request) -> int:
        is_coordinator = request.broker.node_id == self.coordinator()
        return request.code or (NONE if is_coordinator else NOT_COORDINATOR)

    def _init(self, request: Request, received: Row) -> Row:
        name = received["transactional_id"]
        code = request.code if name is None else self._elsewhere(request)
        producer, epoch = -1, -1
        if not code and name is None:
            producer, epoch = self._new_producer(), 0
        elif not code:
            known = self.ids.get(name)
            if known is None:
                known = self.ids[name] = TransactionalId(self._new_producer(), 0.0)
            code = _replaced(known, received)
            if not code:
                known.timeout = received["transaction_timeout_ms"] / 1000
                self._fence(known)
                producer, epoch = known.producer, known.epoch
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "producer_id": producer,
            "producer_epoch": epoch,
        }

    def _new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer

    def _add_partitions(self, request: Request, received: Row) -> Row:
        known = self.ids.get(received["transactional_id"])
        version = request.received.version
        code = self._elsewhere(request) or _refusal(known, received, version)
        asked = [
            TopicPartition(topic["name"], number)
            for topic in received["topics"]
            for number in topic["partitions"]
        ]
        missing = {tp for tp in asked if self._view.find(*tp) is None}
        if not code and not missing:
            assert known is not None
            self._begin(received["transactional_id"], known)
            known.partitions.update(asked)

        def outcome(tp: TopicPartition) -> int:
            if code or not missing:
                return code
            return UNKNOWN_TOPIC_OR_PARTITION if tp in missing else OPERATION_NOT_ATTEMPTED

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition": number,
                        "error_code": outcome(TopicPartition(topic["name"], number)),
                    }
                    for number in topic["partitions"]
                ],
            }
            for topic in received["topics"]
        ]
        return {"throttle_time_ms": 0, "topics": topics}

    def _add_offsets(self, request: Request, received: Row) -> Row:
        known = self.ids.get(received["transactional_id"])
        code = self._elsewhere(request) or _refusal(known, received, request.received.version)
        if not code:
            assert known is not None
            self._begin(received["transactional_id"], known)
            known.groups.setdefault(received["group_id"], {})
        return {"throttle_time_ms": 0, "error_code": code}

    def _end(self, request: Request, received: Row) -> Row:
        known = self.ids.get(received["transactional_id"])
        code = self._elsewhere(request) or _refusal(known, received, request.received.version)
        if not code:
            assert known is not None
            if known.is_open:
                self._finish(known, commit=received["committed"])
            elif known.ended is not received["committed"]:
                code = INVALID_TXN_STATE
        return {"throttle_time_ms": 0, "error_code": code}

    # --- transactions ----------------------------------------------------------------------------

    def _begin(self, name: str, known: TransactionalId) -> None:
        if not known.is_open:
            loop = asyncio.get_running_loop()
            known.timer = loop.call_later(known.timeout, self.time_out, name)

    def _fence(self, known: TransactionalId) -> None:
        """Fence the producer by a new epoch, and abort its open transaction, if there is one."""
        known.epoch += 1
        if known.is_open:
            self._finish(known, commit=False)
        known.ended = None

    def _finish(self, known: TransactionalId, *, commit: bool) -> None:
        _rest(known)
        for tp in sorted(known.partitions):
            self._mark(known, tp, commit=commit)
        groups, known.groups, known.partitions = known.groups, {}, set()
        known.ended = commit
        for group, offsets in groups.items():
            if commit:
                self._commit_offsets(group, offsets)

    def _mark(self, known: TransactionalId, tp: TopicPartition, *, commit: bool) -> None:
        """Write the control record that commits or aborts a transaction to a partition."""
        partition = self._view.find(*tp)
        if partition is None:
            return
        log, incarnation = partition.log, self._view.topic(tp.topic).incarnation
        first = log.open.pop(known.producer, None)
        if first is not None and not commit:
            log.aborted.append(Aborted(known.producer, first, log.end))
        writer = Writer(*tp, partition.epoch, incarnation, known.producer, known.epoch)
        log.add(make_marker(writer, log.end, self._now_ms(), commit=commit))
        log.high = log.end
        state = log.producers.get(known.producer)
        if state is None or state.epoch != known.epoch:
            log.producers[known.producer] = ProducerState(known.epoch)
        partition.changed()


def _refusal(known: TransactionalId | None, received: Row, version: int) -> int:
    """Return the error code if the producer of a request is unknown or fenced, otherwise 0.

    `known` is the state of its transactional id, or None if the id is unknown.
    """
    if known is None or known.producer != received["producer_id"]:
        return INVALID_PRODUCER_ID_MAPPING
    if known.epoch != received["producer_epoch"]:
        return PRODUCER_FENCED if version >= _FENCED_BY_NAME else INVALID_PRODUCER_EPOCH
    return NONE


def _replaced(known: TransactionalId, received: Row) -> int:
    """Return the error code if another producer uses the transactional id now, otherwise 0."""
    producer, epoch = received.get("producer_id", -1), received.get("producer_epoch", -1)
    if producer < 0 or (known.producer, known.epoch) == (producer, epoch):
        return NONE
    return PRODUCER_FENCED


def _rest(known: TransactionalId) -> None:
    if known.timer is not None:
        known.timer.cancel()
        known.timer = None

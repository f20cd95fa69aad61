"""A fake cluster that supports all requests of consumers, producers and transactions."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from asyncconsumer.protocol.consumer_group import CONSUMER_GROUP_HEARTBEAT
from asyncconsumer.protocol.transactions import TXN_OFFSET_COMMIT
from asyncconsumer.records.decoding import Record, Records
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.consumer_groups import ConsumerGroups
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.fake_kafka.producing import FakeProducing
from asyncconsumer.testing.fake_kafka.state import View
from asyncconsumer.testing.fake_kafka.tables import Reply, later
from asyncconsumer.testing.fake_kafka.topic_admin import topic_handlers
from asyncconsumer.testing.fake_kafka.transactions import FakeTransactions, OffsetRows
from asyncconsumer.types import TopicPartition

_TRANSACTION: Final = 1  # the key type of a transactional id in FindCoordinator


class CompleteCluster(GroupCluster):
    """A GroupCluster that also serves producers, transactions and KIP-848 groups.

    A client's first metadata request for a missing topic creates the topic with `topic_partitions`
    partitions. If that is None, no topic is created automatically. On an event loop with real time,
    records get the system's time of day as their timestamp.
    """

    def __init__(
        self,
        randomness: Random,
        *,
        topic_partitions: int | None = 1,
        **options: Any,  # noqa: ANN401 - FakeCluster checks them
    ) -> None:
        view = View()
        self.transactions = FakeTransactions(view, self.now_ms, self._commit_transaction)
        self.producing = FakeProducing(view, self.transactions.may_write, self.append_batch)
        self.consumer_groups = _ConsumerGroupsOf(randomness, self.coordinator)
        super().__init__(randomness, view=view, **options)
        if topic_partitions is not None:
            self._rules.create_topic = lambda name: self.add_topic(name, topic_partitions)

    def close(self) -> None:
        """Close all connections and cancel all timers."""
        self.consumer_groups.close()
        self.transactions.close()
        super().close()

    def now_ms(self) -> int:
        """Return the time of day in milliseconds, which is virtual on a virtual event loop."""
        if getattr(asyncio.get_running_loop(), "virtual_time", False):
            return super().now_ms()
        return int(datetime.now(UTC).timestamp() * 1000)

    # --- for tests -------------------------------------------------------------------------------

    def committed_records(self, tp: TopicPartition, start: int = 0) -> Iterator[Record]:
        """Return the records of a partition from the offset `start` on.

        Leave out records of open and of aborted transactions.
        """
        log = self.view.partition(tp).log
        start, end = max(start, log.start), log.stable
        if start >= end:
            return iter(())
        data = log.read(start, sys.maxsize, at_least_one=True, end=end)
        aborted = log.aborted_between(start, end)
        return Records(
            data, topic=tp.topic, partition=tp.partition, offset=start, end=end, aborted=aborted
        )

    def topics_by_group(self) -> dict[str, set[str]]:
        """Return, by group, the topics to which it is subscribed or has committed an offset."""
        topics: dict[str, set[str]] = {}
        for name, offsets in self.storage.offsets.items():
            topics[name] = {topic for topic, _ in offsets}
        for name, group in self.groups.items():
            topics.setdefault(name, set()).update(group.subscribed())
        for name, of_kip848 in self.consumer_groups.groups.items():
            topics.setdefault(name, set()).update(of_kip848.subscribed(self.view.topics))
        return {name: subscribed for name, subscribed in topics.items() if subscribed}

    def expire_members(self, group: str) -> int:
        """Remove all members of a group, as if their sessions had timed out.

        Return their number.
        """
        return self.consumer_groups.expire(group) + (
            self.groups[group].expire() if group in self.groups else 0
        )

    # --- requests --------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Handler]:
        of_consumer_groups = self.consumer_groups.handlers
        return {
            **super()._handlers(),
            CONSUMER_GROUP_HEARTBEAT.key: of_consumer_groups[CONSUMER_GROUP_HEARTBEAT.key],
            **self.producing.handlers,
            **topic_handlers(self),
            **self.transactions.handlers,
            TXN_OFFSET_COMMIT.key: later(TXN_OFFSET_COMMIT, self._commit_in_transaction),
        }

    def _find(self, request: Request, received: dict[str, Any]) -> dict[str, Any]:
        if received.get("key_type", 0) != _TRANSACTION:
            return super()._find(request, received)
        node = self.transactions.coordinator()
        endpoint = self.view.endpoints.get(node)
        return {
            "throttle_time_ms": 0,
            "error_code": request.code or (NONE if endpoint else COORDINATOR_NOT_AVAILABLE),
            "error_message": None,
            "node_id": node,
            "host": endpoint.address.host if endpoint else "",
            "port": endpoint.address.port if endpoint else -1,
        }

    def _may_commit(self, group: str, received: dict[str, Any]) -> int:
        if self.consumer_groups.has(group):
            member, epoch = received["member_id"], received["generation"]
            return self.consumer_groups.refusal(group, member, epoch)
        return super()._may_commit(group, received)

    def _is_pending(self, group: str, tp: TopicPartition) -> bool:
        return self.transactions.is_pending(group, tp)

    def _commit_in_transaction(
        self, request: Request, received: dict[str, Any], reply: Reply
    ) -> None:
        group = received["group_id"]
        code = self._refusal(request, group)
        if not code and received.get("member_id"):
            code = self._may_commit(group, received)
        offsets = {
            TopicPartition(topic["name"], row["partition"]): row
            for topic in received["topics"]
            for row in topic["partitions"]
        }
        missing = {tp for tp in offsets if self.view.find(*tp) is None}
        if not code:
            known = {tp: row for tp, row in offsets.items() if tp not in missing}
            code = self.transactions.add_offsets(received, known, request.received.version)

        def outcome(tp: TopicPartition) -> int:
            return code or (UNKNOWN_TOPIC_OR_PARTITION if tp in missing else NONE)

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition": row["partition"],
                        "error_code": outcome(TopicPartition(topic["name"], row["partition"])),
                    }
                    for row in topic["partitions"]
                ],
            }
            for topic in received["topics"]
        ]
        reply({"throttle_time_ms": 0, "topics": topics})

    def _commit_transaction(self, group: str, offsets: OffsetRows) -> None:
        for tp, row in offsets.items():
            self.storage.on_commit(group, "", tp, row["offset"])
            self.storage.offsets.setdefault(group, {})[tp] = row


class _ConsumerGroupsOf(ConsumerGroups):
    """KIP-848 groups whose coordinators are those that the function `coordinator` returns."""

    def __init__(self, randomness: Random, coordinator: Callable[[str], int]) -> None:
        super().__init__(randomness, interval=1.0)
        self._coordinator_of = coordinator

    def coordinator(self, view: View, group_id: str) -> int:
        """Return the id of the broker that coordinates a group, or -1 if there is none."""
        return self._coordinator_of(group_id)

    def expire(self, group_id: str) -> int:
        """Remove all members of a group, and return their number."""
        members = list(self.groups[group_id].members.values()) if self.has(group_id) else []
        for member in members:
            self._forget(group_id, member)
        return len(members)

    def has(self, group_id: str) -> bool:
        """Return whether a group has members."""
        return group_id in self.groups and bool(self.groups[group_id].members)

"""Membership in a ZooKeeper group, in which each member computes the assignment from znodes.

The steps follow Kafka's `ZookeeperConsumerConnector`, so both can be members of one group. There
are three compatible differences. Partitions that stay assigned are not released in between. A
conflicting owner node is watched, not only polled. Offsets are loaded after partitions are
claimed, when no previous owner can commit any more.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from typing import Final

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import (
    ConnectionLoss,
    ConsumerError,
    ConsumerRebalanceFailed,
    MemberExists,
    NodeExists,
    NoNode,
    SessionExpired,
)
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.assignors import (
    STRATEGIES,
    GroupInfo,
    OwnerByPartition,
    consumer_of,
)
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.roster import Roster
from asyncconsumer.group.zookeeper.subscribers import Subscribers
from asyncconsumer.group.zookeeper.topic_source import TopicSource
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import (
    create_ephemeral_owned,
    delete_ephemeral_owned,
    ensure_path,
)
from asyncconsumer.zookeeper.session import ZooKeeperSession

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperMemberConfig:
    """The options of one member of a ZooKeeper group."""

    group_id: str
    consumer_id: str  # the name of the registration znode: the group id, a `_` and more
    subscription: StreamSubscription
    registered_ms: int  # milliseconds since 1970; informational only
    strategy: str = "range"
    max_retries: int = 4
    backoff_ms: int = 2_000
    exclude_internal_topics: bool = True


class ZooKeeperMembership:
    """A member of a ZooKeeper group.

    The event `wakeup` is set whenever the assignment may have changed.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        topics: TopicSource,
        config: ZooKeeperMemberConfig,
        wakeup: asyncio.Event,
    ) -> None:
        self.rebalances = 0
        self._session = session
        self._config = config
        self._paths = GroupPaths(config.group_id)
        self._wakeup = wakeup
        self._members = Roster(session, config.group_id, wakeup)
        self._subscribers = Subscribers(
            topics, config.consumer_id, exclude_internal=config.exclude_internal_topics
        )
        self._owned: dict[TopicPartition, str] = {}  # the thread that reads each owned partition
        self._uncertain_owners: set[TopicPartition] = (
            set()
        )  # partitions not owned, for which this member may have created an owner node
        self._seen: dict[str, set[int]] = {}  # partitions of each topic when first seen
        self._yielded = False  # the current assignment was yielded
        self._claimed = False  # all partitions due to this member are claimed
        # the epoch of the session in which this member is registered
        self._epoch: int | None = None

    # --- state -----------------------------------------------------------------------------------

    @property
    def consumer_id(self) -> str:
        """The consumer id under which this member is registered in ZooKeeper."""
        return self._config.consumer_id

    @property
    def epoch(self) -> int | None:
        """The epoch of the session in which this member is registered, or None.

        Partitions are claimed and offsets committed only in this session.
        """
        return self._epoch

    @property
    def lost(self) -> bool:
        """Whether this member is not registered, or the session of its registration is over."""
        return self._epoch is None or self._session.is_over(self._epoch)

    @property
    def awaiting_assignment(self) -> bool:
        """Whether there is no session yet in which to claim partitions."""
        return self.lost

    @property
    def is_current(self) -> bool:
        """Whether the session is alive, and this member has claimed all its partitions.

        The subscription is not compared, because it never changes.
        """
        return self._claimed and not self.lost

    @property
    def settles_after(self) -> float:
        """The value 0, because an empty assignment is final at once in a ZooKeeper group."""
        return 0.0

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics that were found so far."""
        config = self._config
        excluded = config.exclude_internal_topics
        return frozenset(config.subscription.topics(self._seen, exclude_internal=excluded))

    @property
    def deadline(self) -> float:
        """The loop time until which the session is certainly alive."""
        return -inf if self.lost else self._session.certain_until

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the session's last response, or -inf if this member is lost."""
        return -inf if self.lost else self._session.last_answer

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of this member forever. Register again after a lost session."""
        while True:
            try:
                await self._register()
                async for assignment in self._run():
                    yield assignment
            except SessionExpired:
                self._epoch, self._yielded, self._claimed = None, False, False
                lost, self._owned = frozenset(self._owned), {}
                self._uncertain_owners.clear()
                _log.warning(
                    "the ZooKeeper session of %s has expired; it lost %d partitions",
                    *(self.consumer_id, len(lost)),
                )
                yield Assignment(lost=lost)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                _log.warning(
                    "%s cannot reach ZooKeeper and tries again: %s", self.consumer_id, error
                )
                await asyncio.sleep(min(1.0, self._config.backoff_ms / 1000))

    def rebalance_pending(self) -> bool:
        """Return whether the assignment may have changed since the last one that was yielded.

        After a call that returned True, `assignments` yields again even if the partitions are the
        same.
        """
        self._yielded = self._yielded and not self._wakeup.is_set()
        return not self._yielded

    # --- registering -----------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register this member in the current session, unless it is registered in it already.

        Raise `SessionExpired` if the session of the last registration is over.
        """
        session = self._session
        await session.connected.wait()
        epoch = session.epoch
        if self._epoch is not None:
            self._check_session(self._epoch)  # an error makes `assignments` report the loss
            return
        await self._register_member(epoch)
        self._epoch = epoch

    async def _register_member(self, epoch: int) -> None:
        path = self._paths.member(self.consumer_id)
        data = registration.write(self._config.subscription, self._config.registered_ms)
        await ensure_path(self._session, self._paths.ids, b"")
        try:
            await create_ephemeral_owned(self._session, path, data, epoch=epoch)
        except NodeExists:
            raise MemberExists(self._config.group_id, self.consumer_id) from None

    # --- rebalancing -----------------------------------------------------------------------------

    async def _run(self) -> AsyncIterator[Assignment]:
        """Yield this member's assignments whenever they change, while the session lives."""
        assert self._epoch is not None
        tries = 0
        while True:
            self._wakeup.clear()
            self._check_session(self._epoch)
            await self._delete_stale_owners(self._epoch)
            everyone = await self._compute_assignment()
            owned = {
                tp: thread
                for tp, thread in everyone.items()
                if consumer_of(thread) == self.consumer_id
            }
            keep = {tp: thread for tp, thread in self._owned.items() if owned.get(tp) == thread}
            self._claimed = keep == owned
            if keep != self._owned:
                yield self._assignment(keep, everyone)
                revoked = self._owned.keys() - keep.keys()
                self._owned = keep
                await self._release(revoked, self._epoch)
            elif self._yielded and self._claimed:
                await self._wait_for_change(everyone)
                continue
            self.rebalances += 1
            conflicts = await self._claim(
                {tp: thread for tp, thread in owned.items() if tp not in keep}, self._epoch
            )
            if not conflicts:
                self._owned, tries, self._yielded, self._claimed = owned, 0, True, True
                yield self._assignment(owned, everyone)
                await self._wait_for_change(everyone)
                continue
            if not await self._wait_for_owners(conflicts):
                tries += 1
            if tries == self._config.max_retries:
                failure = ConsumerRebalanceFailed(self.consumer_id, tries, _describe(conflicts))
                yield self._assignment(keep, everyone, failure)
                tries = 0

    async def _wait_for_change(self, everyone: OwnerByPartition) -> None:
        """Wait until the assignment may have changed.

        `everyone` is the assignment of the whole group.

        With the `sticky` assignor, members that read the previous owners at different times may
        disagree. Partitions then stay unclaimed. So the owners are checked until all partitions are
        claimed.
        """
        partitions: dict[str, list[int]] = defaultdict(list)
        for tp in everyone if self._config.strategy == "sticky" else ():
            partitions[tp.topic].append(tp.partition)
        if partitions:
            if await wait_set(self._wakeup, self._config.backoff_ms / 1000):
                return
            if len(await self._read_owners(partitions)) < len(everyone):
                return
        await self._wakeup.wait()

    def _assignment(
        self,
        owned: Mapping[TopicPartition, str],
        everyone: OwnerByPartition,
        failure: ConsumerError | None = None,
    ) -> Assignment:
        return Assignment(
            {tp: int(thread.rpartition("-")[2]) for tp, thread in owned.items()},
            fresh=frozenset(tp for tp in owned if tp.partition not in self._seen[tp.topic]),
            owners=everyone,
            failure=failure,
        )

    async def _compute_assignment(self) -> OwnerByPartition:
        """Compute the group's assignment from the current znodes."""
        subscriptions = await self._members.read()
        if self.consumer_id not in subscriptions:
            # the registration was deleted by hand, but the session and its claims are intact
            assert self._epoch is not None
            await self._register_member(self._epoch)
            subscriptions = {**subscriptions, self.consumer_id: self._config.subscription}
        members, partitions = await self._subscribers.read(subscriptions)
        for topic, numbers in partitions.items():
            # all partitions of a topic that does not exist yet will be fresh
            self._seen.setdefault(topic, set(numbers))
        strategy = self._config.strategy
        owners = await self._read_owners(partitions) if strategy == "sticky" else {}
        return STRATEGIES[strategy](GroupInfo(members, partitions, owners))

    async def _read_owners(
        self, partitions: Mapping[str, Collection[int]]
    ) -> dict[TopicPartition, str]:
        tps = [TopicPartition(topic, n) for topic, numbers in partitions.items() for n in numbers]
        nodes = await self._session.get_many([self._paths.owner(tp) for tp in tps])
        return {
            tp: node.data.decode(errors="replace")
            for tp, node in zip(tps, nodes, strict=True)
            if node is not None and node.data
        }

    def _check_session(self, epoch: int) -> None:
        self._session.check_epoch(epoch, self._paths.ids)

    async def leave(self) -> None:
        """Release all partitions and delete the registration. Claim nothing afterwards.

        Znodes that cancelled operations may have created are deleted as well.
        """
        registered, self._epoch = self._epoch, None
        owned, self._owned = self._owned, {}
        self._members.close()
        epoch = self._session.epoch if registered is None else registered
        if self._session.is_over(epoch):
            return
        await self._release(owned, epoch)
        await self._delete_stale_owners(epoch)
        path, sure = self._paths.member(self.consumer_id), registered is not None
        await delete_ephemeral_owned(self._session, path, epoch=epoch, sure=sure)

    # --- owners ----------------------------------------------------------------------------------

    async def _release(
        self, partitions: Collection[TopicPartition], epoch: int, *, sure: bool = True
    ) -> None:
        """Delete the owner znodes of the partitions. With `sure=False` the znodes may not exist.

        If the call is cancelled, the partitions stay in `_uncertain_owners`.
        """

        async def release(tp: TopicPartition) -> None:
            path = self._paths.owner(tp)
            await delete_ephemeral_owned(self._session, path, epoch=epoch, sure=sure)

        self._uncertain_owners.update(partitions)
        await for_each(partitions, release)
        self._uncertain_owners.difference_update(partitions)

    async def _delete_stale_owners(self, epoch: int) -> None:
        """Delete owner nodes that cancelled claims and releases may have left."""
        await self._release(list(self._uncertain_owners), epoch, sure=False)

    async def _claim(
        self, threads: Mapping[TopicPartition, str], epoch: int
    ) -> dict[TopicPartition, NodeExists]:
        """Claim all partitions, or none of them if another member owns one.

        Return the partitions that other members own, each with its `NodeExists` error. `threads`
        maps each partition to the thread that reads it.
        """
        conflicts: dict[TopicPartition, NodeExists] = {}
        claimed: list[TopicPartition] = []

        async def claim(tp: TopicPartition) -> None:
            try:
                await self._own(tp, threads[tp], epoch)
                claimed.append(tp)
            except NodeExists as error:
                conflicts[tp] = error

        self._uncertain_owners.update(threads)
        await for_each(threads, claim)
        if conflicts:
            await self._release(claimed, epoch)
        self._uncertain_owners.difference_update(threads)
        return conflicts

    async def _own(self, partition: TopicPartition, thread: str, epoch: int) -> None:
        path = self._paths.owner(partition)
        while True:
            try:
                await create_ephemeral_owned(self._session, path, thread.encode(), epoch=epoch)
            except NoNode:
                await ensure_path(self._session, self._paths.topic_owners(partition.topic))
            except ConnectionLoss:
                self._check_session(epoch)
            else:
                return

    async def _wait_for_owners(self, conflicts: Collection[TopicPartition]) -> bool:
        """Wait until another member releases a conflicting partition or the group changes.

        Return False after a timeout.
        """
        with ExitStack() as stack:
            for tp in conflicts:
                watch = self._session.watch_exists(self._paths.owner(tp), self._wakeup)
                stack.enter_context(watch)
                if await watch.read() is None:
                    return True
            return await wait_set(self._wakeup, self._config.backoff_ms / 1000)


def _describe(conflicts: Mapping[TopicPartition, NodeExists]) -> str:
    tp, error = next(iter(conflicts.items()))
    others = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return f"another member owns {tp}{others} ({error.reason})"

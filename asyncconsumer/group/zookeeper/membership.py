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

from asyncconsumer.aio.concurrency import each
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
from asyncconsumer.group.zookeeper.assignors import Assignment as Shares
from asyncconsumer.group.zookeeper.assignors import GroupInfo, consumer_of
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.roster import Roster
from asyncconsumer.group.zookeeper.strategies import STRATEGIES
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
    consumer_id: str  # as in ZooKeeper, prefixed with the group id
    subscription: StreamSubscription
    registered_ms: int  # since the epoch; informational only
    strategy: str = "range"
    max_retries: int = 4
    backoff_ms: int = 2_000
    exclude_internal_topics: bool = True


class ZooKeeperMembership:
    """A member of a ZooKeeper group. `bell` is set whenever the assignment may have changed."""

    def __init__(
        self,
        session: ZooKeeperSession,
        topics: TopicSource,
        config: ZooKeeperMemberConfig,
        bell: asyncio.Event,
    ) -> None:
        self.rebalances = 0
        self._session = session
        self._config = config
        self._paths = GroupPaths(config.group_id)
        self._bell = bell
        self._members = Roster(session, config.group_id, bell)
        self._subscribers = Subscribers(
            topics, config.consumer_id, exclude_internal=config.exclude_internal_topics
        )
        self._owned: dict[TopicPartition, str] = {}  # by the thread that reads it
        self._uncertain_owners: set[TopicPartition] = (
            set()
        )  # other owner nodes that this member may have created
        self._seen: dict[str, set[int]] = {}  # partitions of each topic when first seen
        self._told = False  # the current assignment was yielded
        self._epoch: int | None = None  # of the session of the registration

    # --- state -----------------------------------------------------------------------------------

    @property
    def consumer_id(self) -> str:
        """The consumer id in ZooKeeper."""
        return self._config.consumer_id

    @property
    def epoch(self) -> int | None:
        """The epoch of the session that holds the claims, for operations valid only in it."""
        return self._epoch

    @property
    def lost(self) -> bool:
        """Whether there is no registration, or its session is over."""
        return self._epoch is None or self._session.is_over(self._epoch)

    @property
    def awaiting_assignment(self) -> bool:
        """Whether there is no session yet in which to claim partitions."""
        return self.lost

    @property
    def is_current(self) -> bool:
        """Whether the session is alive. The subscription of this membership never changes."""
        return not self.lost

    @property
    def settles_after(self) -> float:
        """0: an empty assignment is taken as final, because claims normally precede it."""
        return 0.0

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics that were seen so far."""
        config = self._config
        there = config.subscription.topics(
            self._seen, exclude_internal=config.exclude_internal_topics
        )
        return frozenset(there)

    @property
    def deadline(self) -> float:
        """The loop time until which the session is certainly alive."""
        return -inf if self.lost else self._session.certain_until

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the last response of the session; -inf if the member is lost."""
        return -inf if self.lost else self._session.last_answer

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of this member forever, and register again after lost sessions."""
        while True:
            try:
                await self._register()
                async for assignment in self._shares():
                    yield assignment
            except SessionExpired:
                self._epoch, self._told = None, False
                lost, self._owned = frozenset(self._owned), {}
                self._uncertain_owners.clear()
                _log.warning("%s lost its session: %d partitions", self._who, len(lost))
                yield Assignment(lost=lost)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                _log.warning("%s has no connection to ZooKeeper: %s", self._who, error)
                await asyncio.sleep(min(1.0, self._config.backoff_ms / 1000))

    def rebalance_pending(self) -> bool:
        """Return whether the assignment may have changed since the last one.

        If so, the next assignment is yielded even if its partitions are the same.
        """
        self._told = self._told and not self._bell.is_set()
        return not self._told

    @property
    def _who(self) -> str:
        return self._config.consumer_id

    # --- registering -----------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register in the current session, unless that is done."""
        session = self._session
        await session.connected.wait()
        epoch = session.epoch
        if self._epoch is not None:
            self._check_session(self._epoch)  # raises if it is over, so that the loss is reported
            return
        await self._register_member(epoch)
        self._epoch = epoch

    async def _register_member(self, epoch: int) -> None:
        path = self._paths.member(self._who)
        data = registration.write(self._config.subscription, self._config.registered_ms)
        await ensure_path(self._session, self._paths.ids, b"")
        try:
            await create_ephemeral_owned(self._session, path, data, epoch=epoch)
        except NodeExists:
            raise MemberExists(self._config.group_id, self._who) from None

    # --- rebalancing -----------------------------------------------------------------------------

    async def _shares(self) -> AsyncIterator[Assignment]:
        """Yield this member's assignments in the current session whenever they change."""
        assert self._epoch is not None
        tries = 0
        while True:
            self._bell.clear()
            self._check_session(self._epoch)
            await self._tidy(self._epoch)
            everyone = await self._divide()
            mine = {one: who for one, who in everyone.items() if consumer_of(who) == self._who}
            keep = {one: who for one, who in self._owned.items() if mine.get(one) == who}
            if keep != self._owned:
                yield self._assignment(keep, everyone)
                let_go = self._owned.keys() - keep.keys()
                self._owned = keep
                await self._release(let_go, self._epoch)
            elif self._told and keep == mine:
                await self._wait_for_change(everyone)
                continue
            self.rebalances += 1
            in_the_way = await self._claim(
                {one: who for one, who in mine.items() if one not in keep}, self._epoch
            )
            if not in_the_way:
                self._owned, tries, self._told = mine, 0, True
                yield self._assignment(mine, everyone)
                await self._wait_for_change(everyone)
                continue
            if not await self._wait_for(in_the_way):
                tries += 1
            if tries == self._config.max_retries:
                failure = ConsumerRebalanceFailed(self._who, tries, _whose(in_the_way))
                yield self._assignment(keep, everyone, failure)
                tries = 0

    async def _wait_for_change(self, everyone: Shares) -> None:
        """Wait until the assignment may have changed.

        With `sticky`, members that read the previous owners at different times may disagree.
        Partitions then stay unclaimed. So the owners are checked until all partitions are claimed.
        """
        partitions: dict[str, list[int]] = defaultdict(list)
        for one in everyone if self._config.strategy == "sticky" else ():
            partitions[one.topic].append(one.partition)
        while partitions:
            try:
                async with asyncio.timeout(self._config.backoff_ms / 1000):
                    await self._bell.wait()
                    return
            except TimeoutError:
                if len(await self._read_owners(partitions)) < len(everyone):
                    return
                break
        await self._bell.wait()

    def _assignment(
        self,
        shares: Mapping[TopicPartition, str],
        everyone: Shares,
        failure: ConsumerError | None = None,
    ) -> Assignment:
        return Assignment(
            {one: int(thread.rpartition("-")[2]) for one, thread in shares.items()},
            fresh=frozenset(one for one in shares if one.partition not in self._seen[one.topic]),
            owners=everyone,
            failure=failure,
        )

    async def _divide(self) -> Shares:
        """Compute the group's assignment from the current znodes."""
        subscriptions = await self._members.read()
        if self._who not in subscriptions:
            # it was deleted manually, but the session and its claims are intact
            assert self._epoch is not None
            await self._register_member(self._epoch)
            subscriptions = {**subscriptions, self._who: self._config.subscription}
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
        every = [TopicPartition(topic, n) for topic, of in partitions.items() for n in of]
        nodes = await self._session.get_many([self._paths.owner(one) for one in every])
        return {
            one: node.data.decode(errors="replace")
            for one, node in zip(every, nodes, strict=True)
            if node is not None and node.data
        }

    def _check_session(self, epoch: int) -> None:
        if self._session.is_over(epoch):
            raise SessionExpired(self._paths.ids, f"the session of epoch {epoch} is over")

    async def leave(self) -> None:
        """Release all partitions and delete the registration. Nothing is claimed again.

        Nodes that cancelled operations may have created are deleted as well.
        """
        registered, self._epoch = self._epoch, None
        owned, self._owned = self._owned, {}
        self._members.close()
        epoch = self._session.epoch if registered is None else registered
        if self._session.is_over(epoch):
            return
        await self._release(owned, epoch)
        await self._tidy(epoch)
        path, sure = self._paths.member(self._who), registered is not None
        await delete_ephemeral_owned(self._session, path, epoch=epoch, sure=sure)

    # --- owners ----------------------------------------------------------------------------------

    async def _release(
        self, partitions: Collection[TopicPartition], epoch: int, *, sure: bool = True
    ) -> None:
        """Delete the owner nodes; if cancelled, they stay in `_uncertain_owners`."""

        async def let_go(one: TopicPartition) -> None:
            path = self._paths.owner(one)
            await delete_ephemeral_owned(self._session, path, epoch=epoch, sure=sure)

        self._uncertain_owners.update(partitions)
        await each(partitions, let_go)
        self._uncertain_owners.difference_update(partitions)

    async def _tidy(self, epoch: int) -> None:
        """Delete owner nodes that cancelled claims and releases may have left."""
        await self._release(list(self._uncertain_owners), epoch, sure=False)

    async def _claim(
        self, shares: Mapping[TopicPartition, str], epoch: int
    ) -> dict[TopicPartition, NodeExists]:
        """Claim all partitions or none, and return those that other members own."""
        in_the_way: dict[TopicPartition, NodeExists] = {}
        claimed: list[TopicPartition] = []

        async def claim(one: TopicPartition) -> None:
            try:
                await self._own(one, shares[one], epoch)
                claimed.append(one)
            except NodeExists as error:
                in_the_way[one] = error

        self._uncertain_owners.update(shares)
        await each(shares, claim)
        if in_the_way:
            await self._release(claimed, epoch)
        self._uncertain_owners.difference_update(shares)
        return in_the_way

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

    async def _wait_for(self, in_the_way: Collection[TopicPartition]) -> bool:
        """Wait until an owner node is gone or the group changes; return False on timeout."""
        with ExitStack() as stack:
            for one in in_the_way:
                watch = self._session.watch_exists(self._paths.owner(one), self._bell)
                stack.enter_context(watch)
                if await watch.read() is None:
                    return True
            try:
                async with asyncio.timeout(self._config.backoff_ms / 1000):
                    await self._bell.wait()
            except TimeoutError:
                return False
        return True


def _whose(in_the_way: Mapping[TopicPartition, NodeExists]) -> str:
    one, error = next(iter(in_the_way.items()))
    others = f" and {len(in_the_way) - 1} more" if len(in_the_way) > 1 else ""
    return f"{one}{others} is owned by another ({error.reason})"

"""A membership that uses KIP-848 if the coordinator supports it, otherwise the classic protocol."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final, TypeAlias

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.errors import ConsumerProtocolUnsupported
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import Subscription
from asyncconsumer.types import Address, MemberIdentity

_log: Final = logging.getLogger(__name__)

GroupMembership: TypeAlias = ConsumerGroupMembership | ClassicMembership


class FallbackMembership(AsyncResource):
    """A KIP-848 membership that becomes a classic one if the coordinator lacks KIP-848."""

    def __init__(
        self,
        kip848: ConsumerGroupMembership,
        classic: Callable[[Subscription], ClassicMembership],
        subscription: Subscription,
    ) -> None:
        self._current: GroupMembership = kip848
        self._create_classic = classic
        self._subscription = subscription

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._current)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of the KIP-848 membership.

        If the coordinator lacks KIP-848, join with the classic protocol and yield its assignments.
        """
        try:
            async for assignment in self._current.assignments():
                yield assignment
        except ConsumerProtocolUnsupported as error:
            _log.warning("%s; continuing with the classic protocol", error)
        else:
            return
        owned_partitions = not self._current.lost
        self._current = await self._stack.enter_async_context(
            self._create_classic(self._subscription)
        )
        if owned_partitions:
            yield Assignment()  # all is lost now: others may own it before the classic join
        async for assignment in self._current.assignments():
            yield assignment

    def rebalance_pending(self) -> bool:
        """Return whether a newer assignment is due."""
        return self._current.rebalance_pending()

    @property
    def deadline(self) -> float:
        """The loop time until which this member certainly owns its partitions."""
        return self._current.deadline

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the last confirmed heartbeat."""
        return self._current.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing."""
        return self._current.lost

    @property
    def awaiting_assignment(self) -> bool:
        """Whether this member is waiting for an assignment."""
        return self._current.awaiting_assignment

    @property
    def is_current(self) -> bool:
        """Whether the last assignment was made for the current subscription."""
        return self._current.is_current

    @property
    def settles_after(self) -> float:
        """The seconds for which an empty assignment must last until it counts as final."""
        return self._current.settles_after

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._current.topics

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and its generation or epoch, for commits, or None if it is in no group."""
        return self._current.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The coordinator's address and the next heartbeat request, or None without partitions.

        Another thread sends the request while the event loop is blocked.
        """
        return self._current.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` successfully at the loop time `sent_at`."""
        self._current.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription of this member."""
        self._subscription = subscription
        self._current.subscribe(subscription)

    async def leave(self) -> None:
        """Leave the group."""
        await self._current.leave()

"""A membership that uses KIP-848 if the coordinator supports it, otherwise the classic protocol."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, TypeAlias

from aiokafka.protocol.api import Request

from asyncconsumer.errors import ConsumerProtocolUnsupported
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import Subscription
from asyncconsumer.types import Address, MemberIdentity

_log: Final = logging.getLogger(__name__)

Kind: TypeAlias = ConsumerGroupMembership | ClassicMembership


class FallbackMembership:
    """A KIP-848 membership that becomes a classic one if the coordinator lacks KIP-848."""

    def __init__(
        self,
        newer: ConsumerGroupMembership,
        classic: Callable[[Subscription], ClassicMembership],
        subscription: Subscription,
    ) -> None:
        self._now: Kind = newer
        self._classic = classic
        self._subscription = subscription
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._now)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, where)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assignments of the current membership, and fall back if it is unsupported."""
        try:
            async for assignment in self._now.assignments():
                yield assignment
        except ConsumerProtocolUnsupported as error:
            _log.warning("%s. Going on with the classic protocol", error)
        else:
            return
        had_something = not self._now.lost
        self._now = await self._stack.enter_async_context(self._classic(self._subscription))
        if had_something:
            yield Assignment()  # `lost` is True now: others may own it before the classic join
        async for assignment in self._now.assignments():
            yield assignment

    def rebalance_pending(self) -> bool:
        """Return whether a newer assignment is due."""
        return self._now.rebalance_pending()

    @property
    def deadline(self) -> float:
        """The loop time until which this member certainly owns its partitions."""
        return self._now.deadline

    @property
    def last_heartbeat(self) -> float:
        """The loop time of the last confirmed heartbeat."""
        return self._now.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether this member owns nothing."""
        return self._now.lost

    @property
    def awaiting_assignment(self) -> bool:
        """Whether the member is waiting for an assignment."""
        return self._now.awaiting_assignment

    @property
    def is_current(self) -> bool:
        """Whether the assignment was made for the current subscription."""
        return self._now.is_current

    @property
    def settles_after(self) -> float:
        """Seconds after which an empty assignment is final."""
        return self._now.settles_after

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._now.topics

    @property
    def identity(self) -> MemberIdentity | None:
        """The member id and generation to commit with, if any."""
        return self._now.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """The heartbeat request that another thread may send, and its address."""
        return self._now.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Record that another thread sent `heartbeat` and received no error."""
        self._now.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        self._subscription = subscription
        self._now.subscribe(subscription)

    async def leave(self) -> None:
        """Leave the group."""
        await self._now.leave()

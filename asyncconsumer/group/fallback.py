"""A member by the newer protocol where the coordinator speaks it, by the classic one where not."""

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
    """Tries to be a member of KIP-848, and is a classic one once it is known that it cannot be."""

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
        """Those of whichever it is."""
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
            yield Assignment()  # which is lost: others may have it before we are a member again
        async for assignment in self._now.assignments():
            yield assignment

    def rebalance_pending(self) -> bool:
        """Whether another one is due."""
        return self._now.rebalance_pending()

    @property
    def deadline(self) -> float:
        """As long as what we have is certainly ours."""
        return self._now.deadline

    @property
    def last_heartbeat(self) -> float:
        """When the coordinator last heard of us."""
        return self._now.last_heartbeat

    @property
    def lost(self) -> bool:
        """Whether nothing is ours."""
        return self._now.lost

    @property
    def awaiting_assignment(self) -> bool:
        """Whether what is ours is yet to be said."""
        return self._now.awaiting_assignment

    @property
    def is_current(self) -> bool:
        """Whether what we have was assigned for what we are subscribed to now."""
        return self._now.is_current

    @property
    def settles_after(self) -> float:
        """Seconds after which an empty assignment is final."""
        return self._now.settles_after

    @property
    def topics(self) -> frozenset[str]:
        """The topics of our subscription."""
        return self._now.topics

    @property
    def identity(self) -> MemberIdentity | None:
        """As whom to commit."""
        return self._now.identity

    @property
    def heartbeat(self) -> tuple[Address, Request] | None:
        """What another thread may send for us."""
        return self._now.heartbeat

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """It did, and was answered well."""
        self._now.heartbeat_from_thread(sent_at)

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else from now on."""
        self._subscription = subscription
        self._now.subscribe(subscription)

    async def leave(self) -> None:
        """Say that we go."""
        await self._now.leave()

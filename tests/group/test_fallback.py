"""The fallback from KIP-848 to the classic protocol, also after a start."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from asyncconsumer.errors import ConsumerProtocolUnsupported
from asyncconsumer.group.fallback import FallbackMembership
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.group.classic.membership import ClassicMembership
    from asyncconsumer.group.kip848.membership import ConsumerGroupMembership

pytestmark = pytest.mark.fast

MINE = Assignment({TopicPartition("t", 0): 0})


class Scripted:
    """A membership that yields these assignments, then finds its protocol unsupported."""

    def __init__(self, *values: Assignment, unsupported: bool = False) -> None:
        self.lost = True
        self._values = values
        self._unsupported = unsupported

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def assignments(self) -> AsyncIterator[Assignment]:
        for assignment in self._values:
            self.lost = False
            yield assignment
        if self._unsupported:
            raise ConsumerProtocolUnsupported("g", "not spoken")


async def received(*newer: Assignment) -> list[tuple[Assignment, bool]]:
    """Return the assignments of a follower, each with whether the previous one is lost."""
    first = cast("ConsumerGroupMembership", Scripted(*newer, unsupported=True))

    def classic(_: Any) -> "ClassicMembership":
        return cast("ClassicMembership", Scripted(MINE))

    async with FallbackMembership(first, classic, TopicSubscription(["t"])) as membership:
        return [(assignment, membership.lost) async for assignment in membership.assignments()]


@simulated([1])
async def test_who_never_was_a_member_has_nothing_to_lose() -> None:
    assert await received() == [(MINE, False)]


@simulated([1])
async def test_what_a_member_had_is_lost_when_it_joins_by_the_other_protocol() -> None:
    """Another may have it for a while, and commit, though it comes back."""
    assert await received(MINE) == [(MINE, False), (Assignment(), True), (MINE, False)]

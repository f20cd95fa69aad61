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
async def test_a_fallback_before_the_first_assignment_loses_no_partition() -> None:
    assert await received() == [(MINE, False)]


@simulated([1])
async def test_a_fallback_after_an_assignment_loses_its_partitions() -> None:
    """Another member may own the partition and commit before it is assigned again."""
    assert await received(MINE) == [(MINE, False), (Assignment(), True), (MINE, False)]

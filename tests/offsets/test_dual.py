"""Two stores as one."""

from collections.abc import Iterable, Mapping

import pytest

from asyncconsumer.errors import (
    ConnectionLoss,
    ConsumerError,
    NoAuth,
    PartlyCommitted,
    TopicAccessDenied,
)
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.store import OffsetStore, commit_error
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

A, B, C = (TopicPartition(topic, 0) for topic in "abc")


class Memory(OffsetStore):
    """A store in memory that refuses some partitions."""

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        refused: Mapping[TopicPartition, ConsumerError] | None = None,
    ) -> None:
        self.offsets = dict(offsets)
        self.refused = refused or {}
        self.asked: list[Mapping[TopicPartition, int]] = []

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self.offsets.get(tp) for tp in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.asked.append(offsets)
        self.offsets |= {tp: offset for tp, offset in offsets.items() if tp not in self.refused}
        if failed := {tp: self.refused[tp] for tp in offsets if tp in self.refused}:
            raise commit_error(offsets, failed)


async def test_the_larger_offset_is_loaded() -> None:
    dual = DualOffsets(Memory({A: 5, B: 1}), Memory({A: 3, C: 0}))
    missing = TopicPartition("d", 0)
    assert await dual.load(iter([A, B, C, missing])) == {A: 5, B: 1, C: 0, missing: None}


async def test_partitions_refused_by_the_first_store_skip_the_second() -> None:
    first, second = Memory({A: 1}, {A: TopicAccessDenied("a")}), Memory({A: 1})
    with pytest.raises(PartlyCommitted) as excinfo:
        await DualOffsets(first, second).commit({A: 2, B: 2})
    assert list(excinfo.value.failed) == [A]
    assert second.asked == [{B: 2}]
    with pytest.raises(TopicAccessDenied):
        await DualOffsets(first, second).commit({A: 2})
    assert len(second.asked) == 1


async def test_partitions_refused_by_the_second_store_are_reported() -> None:
    first, second = Memory({}), Memory({}, {B: NoAuth("/b")})
    with pytest.raises(PartlyCommitted) as excinfo:
        await DualOffsets(first, second).commit({A: 2, B: 2})
    assert list(excinfo.value.failed) == [B]
    assert (first.offsets, second.offsets) == ({A: 2, B: 2}, {A: 2})
    with pytest.raises(NoAuth):
        await DualOffsets(first, second).commit({B: 3})


async def test_the_refusals_of_both_are_reported_together() -> None:
    first = Memory({}, {A: ConnectionLoss("/a")})
    second = Memory({}, {B: NoAuth("/b")})
    with pytest.raises(PartlyCommitted, match=r"a\[0\] and those of 1 more") as excinfo:
        await DualOffsets(first, second).commit({A: 2, B: 2, C: 2})
    assert list(excinfo.value.failed) == [A, B]
    assert not excinfo.value.retriable
    with pytest.raises(NoAuth):  # rather than the retriable error
        await DualOffsets(first, second).commit({A: 2, B: 2})

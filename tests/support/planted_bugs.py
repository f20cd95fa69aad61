"""Bugs that the simulated schedules of every kind of group must find."""

from collections.abc import Collection, Mapping

import pytest

from asyncconsumer.group.membership import Assignment
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


def records_in_flight_count_as_finished(patch: pytest.MonkeyPatch) -> None:
    finished = Stream.finished

    def too_much(self: Stream) -> dict[TopicPartition, int]:
        chunk = self._delivery.chunk
        return {
            tp: chunk.next_offset if chunk is not None and chunk.partition == tp else offset
            for tp, offset in finished(self).items()
        }

    patch.setattr(Stream, "finished", too_much)


def lost_partitions_are_still_read(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Rebalancer, assignment: Assignment) -> None:
        pass

    patch.setattr(Rebalancer, "_revoke", nothing)


def offsets_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    async def load_old_offsets(
        self: Committer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return dict.fromkeys(partitions, 10)

    patch.setattr(Committer, "load", load_old_offsets)

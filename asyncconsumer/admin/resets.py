"""The plan of an offset reset."""

from collections.abc import Mapping

from asyncconsumer.admin.reset_targets import ResetTarget
from asyncconsumer.admin.results import OffsetChange
from asyncconsumer.errors import ConfigError
from asyncconsumer.fetch.leader_client import LeaderClient
from asyncconsumer.fetch.list_offsets import list_offsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition


async def plan_reset(
    leaders: LeaderClient,
    target: ResetTarget | Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int | None],
) -> list[OffsetChange]:
    """Return the old and the new offset of each partition in `committed`.

    A time selects the first record at or after it, or the end of the log. Offsets outside the log
    become its first or last offset.
    """
    ends = await list_offsets(leaders, dict.fromkeys(committed, LATEST))
    if isinstance(target, ResetTarget) and target.timestamp is not None:
        listed = await list_offsets(leaders, dict.fromkeys(committed, target.timestamp))
        return [
            OffsetChange(*tp, committed[tp], (row if row.offset >= 0 else ends[tp]).offset)
            for tp, row in sorted(listed.items())
        ]
    starts = await list_offsets(leaders, dict.fromkeys(committed, EARLIEST))
    plan: list[OffsetChange] = []
    for tp, before in sorted(committed.items()):
        start, end = starts[tp].offset, ends[tp].offset
        requested = _requested(target, tp, before)
        after = min(max(requested, start), end)
        note = "" if after == requested else f"{requested} is outside the log, {start} to {end}"
        plan.append(OffsetChange(*tp, before, after, note))
    return plan


def _requested(
    target: ResetTarget | Mapping[TopicPartition, int], tp: TopicPartition, before: int | None
) -> int:
    if not isinstance(target, ResetTarget):
        return target[tp]
    if target.shift is None:
        assert target.offset is not None
        return target.offset
    if before is None:
        raise ConfigError(
            f"{tp} has no committed offset to count from. Set the target to an offset, a time, "
            "earliest or latest"
        )
    return before + target.shift

"""The conversion of query limits, such as "latest" or a timestamp, to current offsets."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.errors import ConfigError, UnknownTopicOrPartition
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.spark.options.selection import Limit, OffsetBound, StartBound, TimeBound
from asyncconsumer.spark.source.offsets import Offsets
from asyncconsumer.types import TopicPartition


class Log(Protocol):
    """The offset lookups that `resolve` needs, as a protocol."""

    async def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offset of each partition."""

    async def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """Return each partition's first offset at or after its timestamp, or -1 if there is none.

        `times` maps partitions to timestamps, EARLIEST or LATEST.
        """


async def resolve(log: Log, limit: Limit, partitions: Collection[TopicPartition]) -> Offsets:
    """Return the current offset of each partition at `limit`, the start or end of a query.

    The limit is earliest, latest, an offset or a timestamp, for all partitions or for each. If it
    names partitions, they must be exactly `partitions`, see `check_complete`.
    """
    match limit:
        case StartBound(place):
            return await log.list_offsets(dict.fromkeys(partitions, place))
        case OffsetBound(offsets):
            symbolic = {tp: offset for tp, offset in offsets.items() if offset < 0}
            return {**offsets, **await log.list_offsets(symbolic)}
        case TimeBound(times, option, or_latest):
            if isinstance(times, int):
                times = dict.fromkeys(partitions, times)
            offsets = await log.list_offsets(times)
            missing = sorted(tp for tp, offset in offsets.items() if offset < 0)
            if missing and not or_latest:
                raise ConfigError(
                    f"`{option}`: {missing[0]} has no record at or after {times[missing[0]]}. Set "
                    "an earlier time, or set `startingOffsetsByTimestampStrategy` to latest."
                )
            return {**offsets, **await log.list_offsets(dict.fromkeys(missing, LATEST))}


async def drop_missing(
    ask: Callable[[Collection[TopicPartition]], Awaitable[Offsets]],
    partitions: Collection[TopicPartition],
) -> Offsets:
    """Return the result of `ask` for the partitions that exist.

    `ask` looks up offsets, and raises an error if one of its partitions is unknown. In that case it
    is called for each partition alone, and unknown partitions are left out.
    """
    try:
        return await ask(partitions)
    except UnknownTopicOrPartition:
        offsets: Offsets = {}

    async def ask_one(tp: TopicPartition) -> None:
        with contextlib.suppress(UnknownTopicOrPartition):
            offsets.update(await ask([tp]))

    await for_each(partitions, ask_one)
    return offsets


def check_complete(limit: Limit, partitions: Collection[TopicPartition]) -> None:
    """Raise ConfigError unless `limit` has offsets or timestamps for exactly these partitions."""
    if isinstance(limit, OffsetBound):
        named: Collection[TopicPartition] = limit.offsets
    elif isinstance(limit, TimeBound) and not isinstance(limit.times, int):
        named = limit.times
    else:
        return
    if set(named) == set(partitions):
        return
    actual, expected = (", ".join(map(str, sorted(tps))) for tps in (named, partitions))
    raise ConfigError(
        f"`{limit.option}` must name all partitions of the topics and no others; use -1 for latest "
        f"and -2 for earliest. Expected {expected}, got {actual}."
    )

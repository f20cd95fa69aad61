"""The resolution of limits such as "latest" or a timestamp to current offsets."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from asyncconsumer.aio.concurrency import each
from asyncconsumer.errors import ConfigError, UnknownTopicOrPartition
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.spark.options.selection import Limit, OffsetBound, StartBound, TimeBound
from asyncconsumer.spark.source.offsets import Offsets
from asyncconsumer.types import TopicPartition


class Log(Protocol):
    """The offset lookups that `resolve` needs."""

    async def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offset of each partition."""

    async def list_offsets(self, asked: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset at or after each time, or -1. Also EARLIEST or LATEST."""


async def resolve(log: Log, limit: Limit, partitions: Collection[TopicPartition]) -> Offsets:
    """Return the offset of each partition for a limit."""
    match limit:
        case StartBound(place):
            return await log.list_offsets(dict.fromkeys(partitions, place))
        case OffsetBound(offsets, option):
            _check_whole(option, offsets, partitions)
            named = {one: place for one, place in offsets.items() if place < 0}
            return {**offsets, **await log.list_offsets(named)}
        case TimeBound(times, option, or_latest):
            if isinstance(times, int):
                times = dict.fromkeys(partitions, times)
            _check_whole(option, times, partitions)
            found = await log.list_offsets(times)
            missing = sorted(one for one, offset in found.items() if offset < 0)
            if missing and not or_latest:
                raise ConfigError(
                    f"{option}: no record of {missing[0]} is as new as {times[missing[0]]}. Take "
                    "an earlier time, or set startingOffsetsByTimestampStrategy to latest"
                )
            return {**found, **await log.list_offsets(dict.fromkeys(missing, LATEST))}


async def drop_missing(
    ask: Callable[[Collection[TopicPartition]], Awaitable[Offsets]],
    partitions: Collection[TopicPartition],
) -> Offsets:
    """Call `ask` without deleted partitions, one of which would fail it for all."""
    try:
        return await ask(partitions)
    except UnknownTopicOrPartition:
        found: Offsets = {}

    async def ask_one(one: TopicPartition) -> None:
        with contextlib.suppress(UnknownTopicOrPartition):
            found.update(await ask([one]))

    await each(partitions, ask_one)
    return found


def _check_whole(
    option: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    if set(given) == set(partitions):
        return
    named, there = (", ".join(map(str, sorted(each))) for each in (given, partitions))
    raise ConfigError(
        f"{option} must name all partitions, and no others (-1 is latest, -2 is earliest). It "
        f"names {named}; the topics have {there}"
    )

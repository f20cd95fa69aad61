"""Dead letters, sent back to the topics that they came from."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from aiokafka import AIOKafkaProducer

from asyncconsumer.dead_letters import Foreign, original, producing, told_by
from asyncconsumer.errors import ConfigError
from asyncconsumer.wire.accel import Record
from asyncconsumer.work.app import ConsumerApp

SUFFIX: Final = ".replay"
"""Ends the name of the group that remembers up to where letters were sent back."""

_AT_ONCE: Final = 500


class Kind(NamedTuple):
    """Letters that are alike."""

    topic: str  # that they came from
    handler: str
    error: str


class Replayed(NamedTuple):
    """What was found, and sent back if it was to be; `others` are not of this group."""

    found: Counter[Kind]
    others: int


async def replay(app: ConsumerApp, *, send: bool) -> Replayed:
    """Send back the dead letters that were written since the last time, or only count them.

    Each goes to the partition that it was in. If this is cut short, some are sent twice. All groups
    that read the topic get what is sent back.
    """
    topics = sorted(app.dead_letter_topics)
    if not topics:
        raise ConfigError("no handler of this app has a dead_letter_topic: there are no letters")
    found: Counter[Kind] = Counter()
    others = 0
    async with app.reader(SUFFIX) as letters, producing(letters.connection) as producer:
        there = [topic for topic in topics if await letters.partitions_for(topic)]
        if not there:
            return Replayed(found, others)
        await letters.subscribe(*there)
        async for batch in letters.batches(_AT_ONCE):
            ours = [letter for one in batch if _is_of(app.group_id, letter := one.record)]
            others += len(batch) - len(ours)
            found.update(map(_kind, ours))
            if send:
                await _send(producer, ours)
                await letters.commit()
    return Replayed(found, others)


def _is_of(group: str, letter: Record) -> bool:
    try:
        original(letter)
    except Foreign:
        return False
    return told_by(letter).get("group") == group.encode()


def _kind(letter: Record) -> Kind:
    told = told_by(letter)
    return Kind(*(told.get(name, b"").decode() for name in ("topic", "handler", "error.type")))


async def _send(producer: AIOKafkaProducer, letters: Iterable[Record]) -> None:
    """Return when all are written."""
    sent = []
    for one in map(original, letters):
        value = b"" if one.key is None and one.value is None else one.value  # as aiokafka wants it
        sent.append(
            await producer.send(
                one.topic, value, key=one.key, partition=one.partition, headers=list(one.headers)
            )
        )
    for told in sent:
        await told

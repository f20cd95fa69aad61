"""The replay of dead letters to the topics from which they came."""

from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.dead_letters import NotADeadLetter, original, parse_failure_headers
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.app import ConsumerApp
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.decoding import Record

SUFFIX: Final = ".replay"
"""The suffix of the group that commits the dead letters that an app has replayed."""

_AT_ONCE: Final = 500


class ReplayOutcome(NamedTuple):
    """The topic, the handler and the error that several dead letters have in common."""

    topic: str  # the topic of the original records
    handler: str
    error: str


class Replayed(NamedTuple):
    """The numbers of dead letters by topic, handler and error.

    `others` counts dead letters of other groups, and of partitions that no handler of the app
    reads. These are not sent back.
    """

    counts: Counter[ReplayOutcome]
    others: int


async def replay(app: ConsumerApp, *, send: bool) -> Replayed:
    """Send back the dead letters written since the last replay. Without `send`, only count them.

    Each record goes to its original partition. If a replay is interrupted, the next one sends some
    records again. All groups that read the topic get the replayed records.
    """
    topics = sorted(app.dead_letter_topics)
    if not topics:
        raise ConfigError(
            "no handler of this app has a `dead_letter_topic`: there are no dead letters to replay"
        )
    counts: Counter[ReplayOutcome] = Counter()
    others = 0
    async with app.reader(SUFFIX) as reader, app.producer(reader.connection) as producer:
        existing = [topic for topic in topics if await reader.partitions_for(topic)]
        if not existing:
            return Replayed(counts, others)
        known = _Known(app, reader)
        await reader.subscribe(*existing)
        async for batch in reader.batches(_AT_ONCE):
            own = [
                dead_letter
                for message in batch
                if await known.replays(dead_letter := message.record)
            ]
            others += len(batch) - len(own)
            counts.update(map(_kind, own))
            if send:
                await send_all(producer, [original(dead_letter) for dead_letter in own])
                await reader.commit()
    return Replayed(counts, others)


class _Known:
    """A check whether the handlers of an app read a partition.

    The check is necessary because the headers of a dead letter may name any partition.
    """

    def __init__(self, app: ConsumerApp, reader: Consumer) -> None:
        self._app = app
        self._reader = reader
        self._partitions: dict[str, frozenset[int]] = {}

    async def replays(self, dead_letter: Record) -> bool:
        """Return whether a record is a dead letter of this app from a partition that it reads."""
        try:
            record = original(dead_letter)
        except NotADeadLetter:
            return False
        if parse_failure_headers(dead_letter).get("group") != self._app.group_id.encode():
            return False
        return record.partition in await self._of(record.topic)

    async def _of(self, topic: str) -> frozenset[int]:
        if not self._app.reads(topic):
            return frozenset()
        if topic not in self._partitions:
            partitions = await self._reader.partitions_for(topic)
            self._partitions[topic] = frozenset(tp.partition for tp in partitions)
        return self._partitions[topic]


def _kind(dead_letter: Record) -> ReplayOutcome:
    fields = parse_failure_headers(dead_letter)
    names = ("topic", "handler", "error.type")
    return ReplayOutcome(
        *(fields.get(name, b"").decode(errors="backslashreplace") for name in names)
    )


async def send_all(
    producer: Producer, records: Collection[Record], topic: str | None = None
) -> None:
    """Write records to their partitions, and wait until all are written.

    With `topic`, write them to that topic, to the partitions that their keys select. Raise the
    first error. The producer retries retriable errors until its `delivery_timeout_ms`.
    """
    deliveries = [
        await producer.send_bytes(
            topic or record.topic,
            record.key,
            record.value,
            record.headers,
            record.partition if topic is None else None,
        )
        for record in records
    ]
    await producer.flush()
    for delivery in deliveries:
        await delivery

"""A producer that writes records whose processing failed to a dead letter or retry topic."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.clock import wall_clock_ms
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig, ProducerConfig, SendConfig
from asyncconsumer.errors import ConsumerError, DeserializationFailed, UnknownTopicOrPartition
from asyncconsumer.errors.tracebacks import traceback_text
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.pool import BrokerOpener
from asyncconsumer.producer.producer import Producer
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers

PREFIX: Final = "dlt."
"""The prefix of the headers that describe the failure. Their values are text."""

_LONGEST_MESSAGE: Final = 1_000  # characters of an error
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0

_NEVER_MS: Final = 2**31 - 1  # 24 days
# A batch is never given up: brokers drop a repetition only if it has the same sequence number.
_SENDING: Final = SendConfig(delivery_timeout_ms=_NEVER_MS, close_timeout_ms=0)

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that made a record a dead letter, and the group and handler where it occurred."""

    error: BaseException
    attempts: int = 1
    group: str = ""
    handler: str = ""


@dataclass(slots=True, eq=False)
class _PendingDeadLetter:
    """A failed record, and the task that writes it and returns its offset."""

    record: Record
    headers: Headers
    partition: int | None
    writing: "asyncio.Task[int] | None" = None
    callers: int = 0  # callers of `write` that wait for the record

    @property
    def is_parked(self) -> bool:
        """Whether the record is written to a retry topic, to a given `partition`."""
        return self.partition is not None


_RecordIdentity: TypeAlias = tuple[str, int, int, int, bytes | None, bytes | None]
"""The identity of a record. A re-created topic has other records at the same offsets."""


class _ProducerEnvironment(NamedTuple):
    """The parts of the environment that a producer uses."""

    randomness: Random
    opener: BrokerOpener
    now_ms: Callable[[], int]


class NotADeadLetter(Exception):
    """An error for a record without failure headers, which another program must have written."""


class DeadLetterWriter(Protocol):
    """The interface of a writer of failed records."""

    @property
    def topic(self) -> str:
        """The topic of the failed records."""

    @property
    def trouble(self) -> str | None:
        """The reason why records cannot be written now, or None."""

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Set the options for connections to the brokers. Call this before the first `write`."""

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Write a failed record. Return its offset, or -1 if it is not known yet."""


class DeadLetterProducer(AsyncResource):
    """A writer of failed records, with headers about the failure, to a topic.

    The producer is opened for the first record. A failed write is retried until it succeeds. Until
    then the caller waits, so the original record is not acknowledged or committed.
    """

    def __init__(
        self,
        topic: str,
        connection: ConnectionConfig,
        *,
        randomness: Random,
        opener: BrokerOpener = open_connection,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.topic: Final = topic
        self.last_error: str | None = None  # None after a successful write
        self._connection = connection
        self._environment = _ProducerEnvironment(randomness, opener, now_ms)
        self._scope = Scope(f"dead letters to {topic}")
        # records that are not written yet; a repeated request for a record joins the first one
        self._pending: dict[_RecordIdentity, _PendingDeadLetter] = {}
        self._to_check = False  # whether to check that the topic exists
        self._requested = asyncio.Event()
        self._opened = asyncio.Event()
        self._producer: Producer | None = None
        self._log = RateLimitedLogger(_log)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._scope)
        self._scope.start(self._run(), f"dead letters to {self.topic}")

    @property
    def trouble(self) -> str | None:
        """The reason why dead letters cannot be written now, or None."""
        if self.last_error is None:
            return None
        if self._pending:
            return (
                f"{len(self._pending)} records cannot be written to {self.topic}: {self.last_error}"
            )
        if self._to_check:
            return f"records could not be written to {self.topic}: {self.last_error}"
        return None

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Set the options for connections to the brokers.

        The constructor's options have no addresses if a ZooKeeper group is used. The addresses are
        read from ZooKeeper when the consumer opens.
        """
        self._connection = connection

    def check_topic(self) -> None:
        """Start to check in the background whether the topic exists.

        While it does not exist, `trouble` reports that.
        """
        self._to_check = True
        self._requested.set()

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Write a record to all in-sync replicas of its topic. Return its offset.

        This waits without a limit until the write succeeds. Without `partition`, the record's key
        selects the partition.

        If the wait is cancelled, a record with a `partition` is withdrawn. Its source partition was
        revoked, and the new owner may have processed the record, and later ones, already.
        """
        self._scope.check_open()
        identity = _identity(record)
        dead_letter = self._pending.get(identity)
        if dead_letter is None:
            headers = dead_letter_headers(record, failure)
            dead_letter = _PendingDeadLetter(record, headers, partition)
            self._pending[identity] = dead_letter
        if dead_letter.writing is None:
            writing = self._write(dead_letter)
            dead_letter.writing = self._scope.start(writing, f"dead letter to {self.topic}")
            self._requested.set()
        dead_letter.callers += 1
        try:
            return await self._scope.outcome(dead_letter.writing)
        finally:
            dead_letter.callers -= 1
            if dead_letter.is_parked and not dead_letter.callers:
                dead_letter.writing.cancel()
                self._forget(dead_letter)

    async def _run(self) -> None:
        """Open the producer when it is needed, and check the topic on request."""
        await self._requested.wait()
        config = ProducerConfig(self._connection, _SENDING)
        async with Producer(config=config, **self._environment._asdict()) as producer:
            self._producer = producer
            self._opened.set()
            while True:
                await self._requested.wait()
                self._requested.clear()
                if self._to_check:
                    await self._check(producer)

    async def _check(self, producer: Producer) -> None:
        """Wait until the topic exists. Until then, `trouble` reports that it is missing."""
        for delay in self._delays():
            try:
                await producer.partitions_for(self.topic)
            except ConsumerError as error:
                self._note(error)
                await asyncio.sleep(delay)
            else:
                self._note_success()
                return

    def _delays(self) -> Iterator[float]:
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._environment.randomness)

    async def _write(self, dead_letter: _PendingDeadLetter) -> int:
        """Write a dead letter, and return its offset. Retry after every error."""
        await self._opened.wait()
        assert self._producer is not None
        delays = self._delays()
        while True:
            try:
                offset = await self._write_once(self._producer, dead_letter)
            except ConsumerError as error:
                self._note(error, dead_letter)
                await asyncio.sleep(next(delays))
            else:
                break
        self._note_success()
        self._forget(dead_letter)
        return offset

    async def _write_once(self, producer: Producer, dead_letter: _PendingDeadLetter) -> int:
        """Write a dead letter, and return its offset. Only retriable errors are retried."""
        await producer.partitions_for(self.topic)
        record = dead_letter.record
        delivery = await producer.send_bytes(
            self.topic, record.key, record.value, dead_letter.headers, dead_letter.partition
        )
        delays = self._delays()
        try:
            while not delivery.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(next(delays)):
                        await delivery
                if (error := producer.last_error(self.topic)) is not None:
                    self._note(error, dead_letter)
                    if isinstance(error, UnknownTopicOrPartition):  # deleted meanwhile
                        await producer.partitions_for(self.topic)
            return (await delivery).offset
        finally:
            producer.withdraw(delivery)

    def _forget(self, dead_letter: _PendingDeadLetter) -> None:
        identity = _identity(dead_letter.record)
        if self._pending.get(identity) is dead_letter:
            del self._pending[identity]

    def _note_success(self) -> None:
        self.last_error, self._to_check = None, False

    def _note(self, error: ConsumerError, dead_letter: _PendingDeadLetter | None = None) -> None:
        """Store `error` as the reason why no record can be written to the topic, and log it."""
        before = self.last_error
        if isinstance(error, UnknownTopicOrPartition):
            self.last_error = "the topic is not there, and the brokers do not create it: create it"
        else:
            self.last_error = f"{type(error).__name__}: {error}"
        if dead_letter is not None:
            self._log.warning(
                "failed to write %d dead letters to %s, one of them for %s: %s; they are retried "
                "and not committed",
                len(self._pending),
                self.topic,
                _place(dead_letter.record),
                self.last_error,
            )
        elif self.last_error != before:
            self._log.warning("failed to write dead letters to %s: %s", self.topic, self.last_error)


def _without_failure_headers(headers: Headers) -> Headers:
    """Return the headers of a record without the headers of an earlier failure."""
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def dead_letter_headers(record: Record, failure: Failure) -> Headers:
    """Return the headers of a dead letter: those of `record`, then those of its failure.

    Failure headers of an earlier failure are left out.
    """
    return (*_without_failure_headers(record.headers), *failure_headers(record, failure))


def failure_headers(record: Record, failure: Failure) -> list[tuple[str, bytes]]:
    """Return the headers of a dead letter, which name the original record and its failure."""
    error = failure.error
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "error.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "error.message": _message(error)[:_LONGEST_MESSAGE],
        "error.traceback": traceback_text(error),
        "attempts": failure.attempts,
        "group": failure.group,
        "handler": failure.handler,
    }
    return [
        (f"{PREFIX}{name}", str(text).encode(errors="backslashreplace"))
        for name, text in fields.items()
    ]


def _message(error: BaseException) -> str:
    """Return the text of an error. For a deserialization error, add the text of its cause."""
    if isinstance(error, DeserializationFailed) and error.__cause__ is not None:
        return f"{error.__cause__!r} ({error})"
    return str(error)


def parse_failure_headers(record: Record) -> dict[str, bytes]:
    """Return the values of the headers that `failure_headers` wrote, by name."""
    return {
        name.removeprefix(PREFIX): text or b""
        for name, text in record.headers
        if name.startswith(PREFIX)
    }


def original(record: Record) -> Record:
    """Return the original record of a record in a dead letter topic or a retry topic.

    Raise NotADeadLetter if the headers do not name it.
    """
    fields = parse_failure_headers(record)
    try:
        partition, offset, timestamp = (
            int(fields[name]) for name in ("partition", "offset", "timestamp")
        )
        topic = fields["topic"].decode()
    except (KeyError, ValueError):
        raise NotADeadLetter("its headers do not name the original record") from None
    return Record(
        topic,
        partition,
        offset,
        timestamp,
        key=record.key,
        value=None if "no_value" in fields else record.value,
        headers=_without_failure_headers(record.headers),
    )


def _identity(record: Record) -> _RecordIdentity:
    place = record.topic, record.partition, record.offset
    return *place, record.timestamp, record.key, record.value


def _place(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.offset}"

"""The writing of records that could not be processed to a dead letter topic or a retry topic."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol, TypeAlias

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError, DeserializationFailed, UnknownTopicOrPartition
from asyncconsumer.errors.tracebacks import traceback_text
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.partition_writer import ProducerRecord
from asyncconsumer.net.pool import BrokerOpener
from asyncconsumer.net.record_writer import RecordWriter
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers

PREFIX: Final = "dlt."
"""The prefix of the headers that describe the failure. Their values are text."""

_LONGEST_MESSAGE: Final = 1_000  # characters of an error
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that made a record a dead letter, and where it occurred."""

    error: BaseException
    attempts: int = 1
    group: str = ""
    handler: str = ""


@dataclass(slots=True, eq=False)
class _PendingDeadLetter:
    record: Record
    outgoing: ProducerRecord  # the record to write
    written: asyncio.Event = field(default_factory=asyncio.Event)
    offset: int = -1
    waiting: int = 0  # callers that wait until it is written

    @property
    def is_parked(self) -> bool:
        """Whether the record is written to a retry topic. Then its partition is given."""
        return self.outgoing.partition is not None

    def has(self, offset: int) -> None:
        """Mark the record as written at `offset` of its topic."""
        self.offset = offset
        self.written.set()

    async def wait_written(self) -> None:
        """Wait until the record is written to its topic."""
        self.waiting += 1
        try:
            await self.written.wait()
        finally:
            self.waiting -= 1


_RecordIdentity: TypeAlias = tuple[str, int, int, int, bytes | None, bytes | None]
"""The identity of a record. A re-created topic has other records at the same offsets."""


class NotADeadLetter(Exception):
    """The record has no failure headers, so another program wrote it."""


class DeadLetterWriter(Protocol):
    """The interface of a writer of failed records."""

    @property
    def topic(self) -> str:
        """The topic of the failed records."""

    @property
    def trouble(self) -> str | None:
        """The reason why records cannot be written now, or None."""

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Set the connection options, before the first record."""

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Write a failed record. Return its offset, or -1 if it is not known yet."""


class DeadLetterProducer(AsyncResource):
    """A writer of failed records, to which it adds failure headers. The first record opens it.

    A failed write is retried until it succeeds. Until then the caller waits, so the original record
    is not acknowledged or committed. One task owns the producer.
    """

    def __init__(
        self,
        topic: str,
        connection: ConnectionConfig,
        *,
        randomness: Random,
        opener: BrokerOpener = open_connection,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.topic: Final = topic
        self.written = 0
        self.last_error: str | None = None  # None after a successful write
        self._connection = connection
        self._network = opener, now_ms
        self._randomness = randomness
        self._scope = Scope(f"dead letters to {topic}")
        # not written yet, or awaited; a repeated request for the same record joins the first
        self._pending: dict[_RecordIdentity, _PendingDeadLetter] = {}
        self._to_check = False  # whether the topic is there
        self._asked = asyncio.Event()
        self._producer: RecordWriter | None = None
        self._log = RateLimitedLogger(_log)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._scope)
        self._scope.start(self._run(), f"dead letters to {self.topic}")

    @property
    def trouble(self) -> str | None:
        """The reason why dead letters cannot be written now, or None."""
        if self.last_error is None:
            return None
        if waiting := self.waiting:
            return f"{waiting} records cannot be written to {self.topic}: {self.last_error}"
        if self._to_check:
            return f"records could not be written to {self.topic}: {self.last_error}"
        return None

    @property
    def waiting(self) -> int:
        """The number of records that are not written yet."""
        return sum(not dead_letter.written.is_set() for dead_letter in self._pending.values())

    def reach_by(self, connection: ConnectionConfig) -> None:
        """Set the connection options. The brokers may become known only after the constructor."""
        self._connection = connection

    def check_topic(self) -> None:
        """Check in the background whether the topic exists.

        If it does not, `trouble` tells that.
        """
        self._to_check = True
        self._asked.set()

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Write a record to all in-sync replicas of its topic. Return its offset.

        This waits without a limit until the write succeeds. Without `partition`, the record's key
        selects the partition.
        """
        self._scope.check_open()
        identity = _identity(record)
        dead_letter = self._pending.get(identity)
        if dead_letter is None:
            headers = dead_letter_headers(record, failure)
            outgoing = ProducerRecord(self.topic, record.key, record.value, headers, partition)
            dead_letter = self._pending[identity] = _PendingDeadLetter(record, outgoing)
            self._asked.set()
        try:
            await dead_letter.wait_written()
        finally:
            self._tidy(dead_letter)
        return dead_letter.offset

    def _tidy(self, dead_letter: _PendingDeadLetter) -> None:
        """Forget a dead letter if it is written and no caller waits for it."""
        if dead_letter.written.is_set() and not dead_letter.waiting:
            self._pending.pop(_identity(dead_letter.record), None)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            await self._asked.wait()
            delays = self._delays()
            producer = await self._opened(stack)
            while True:
                await self._asked.wait()
                self._asked.clear()
                dead_letters = self._unwritten()
                failed = await self._write(producer, dead_letters) if dead_letters else []
                if not failed and await self._is_checked(producer):
                    delays = self._delays()
                    continue
                self._asked.set()
                if failed:
                    self._warn(failed)
                await asyncio.sleep(next(delays))

    def _delays(self) -> Iterator[float]:
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)

    async def _opened(self, stack: AsyncExitStack) -> RecordWriter:
        opener, now_ms = self._network
        producer = RecordWriter(
            self._connection, randomness=self._randomness, opener=opener, now_ms=now_ms
        )
        return await stack.enter_async_context(producer)

    async def _is_checked(self, producer: RecordWriter) -> bool:
        """Return whether the topic exists, or no check was requested."""
        if not self._to_check:
            return True
        try:
            await producer.find_topic(self.topic)
        except ConsumerError as error:
            before = self.last_error
            self._note(error)
            if self.last_error != before:
                self._log.warning(
                    "failed to write dead letters to %s: %s", self.topic, self.last_error
                )
            return False
        self._to_check, self.last_error = False, None
        return True

    def _warn(self, failed: list[_PendingDeadLetter]) -> None:
        self._log.warning(
            "failed to write %d dead letters to %s, the first for %s: %s; they are retried and not "
            "committed",
            len(failed),
            self.topic,
            _place(failed[0].record),
            self.last_error,
        )

    def _unwritten(self) -> list[_PendingDeadLetter]:
        """Return the records to write. Drop records for retry topics without a waiting caller.

        The source partition of a dropped record was revoked. Its new owner may have processed the
        record, and later ones, already.
        """
        self._pending = {
            identity: dead_letter
            for identity, dead_letter in self._pending.items()
            if dead_letter.waiting or not dead_letter.is_parked
        }
        return [
            dead_letter
            for dead_letter in self._pending.values()
            if not dead_letter.written.is_set()
        ]

    async def _write(
        self, producer: RecordWriter, dead_letters: list[_PendingDeadLetter]
    ) -> list[_PendingDeadLetter]:
        """Write dead letters. Return those that could not be written."""
        outcomes = await producer.send([dead_letter.outgoing for dead_letter in dead_letters])
        failed = []
        for dead_letter in dead_letters:
            outcome = outcomes[dead_letter.outgoing]
            if isinstance(outcome, ConsumerError):
                failed.append(dead_letter)
                self._note(outcome)
                continue
            dead_letter.has(outcome)
            self.written += 1
            self._tidy(dead_letter)  # its caller may have been cancelled
        if not failed:
            self.last_error, self._to_check = None, False
        return failed

    def _note(self, error: ConsumerError) -> None:
        if isinstance(error, UnknownTopicOrPartition):
            self.last_error = "the topic is not there, and the brokers do not create it: create it"
        else:
            self.last_error = f"{type(error).__name__}: {error}"


def _without_failure_headers(headers: Headers) -> Headers:
    """Return the headers of a record without the headers of an earlier failure."""
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def dead_letter_headers(record: Record, failure: Failure) -> Headers:
    """Return all headers of a dead letter."""
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
    """Return the original record of a record in a dead letter topic or a retry topic."""
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

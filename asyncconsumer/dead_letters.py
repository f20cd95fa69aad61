"""Records that nobody could deal with, written to a topic of their own, and never lost."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.tasks.backoff import backoff
from asyncconsumer.tasks.quiet import QuietLog
from asyncconsumer.tasks.scope import Scope
from asyncconsumer.wire.accel import Record
from asyncconsumer.wire.record import Headers

PREFIX: Final = "dlt."
"""How the names of the headers begin that tell of the failure; what they tell is text."""

_LONGEST_MESSAGE: Final = 1_000  # characters of an error
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
_SECONDS_TO_CLOSE: Final = 5.0
_LARGEST: Final = 1 << 30  # bytes of a request: the broker says what is too much

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record is a dead letter."""

    error: BaseException
    attempts: int = 1
    group: str = ""
    handler: str = ""


@dataclass(slots=True, eq=False)
class _Letter:
    record: Record
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    written: asyncio.Event = field(default_factory=asyncio.Event)
    offset: int = -1
    waiting: int = 0  # those who want to know that it is written

    @property
    def is_parked(self) -> bool:
        """It is no dead letter: it comes again, to whoever has the partition of that number."""
        return self.partition is not None

    def has(self, offset: int) -> None:
        """It is written, and has this offset there."""
        self.offset = offset
        self.written.set()

    async def heard(self) -> None:
        """Return once it is written."""
        self.waiting += 1
        try:
            await self.written.wait()
        finally:
            self.waiting -= 1


_Same: TypeAlias = tuple[str, int, int, int, bytes | None, bytes | None]
"""By what a record is known: a topic that was made anew has others at the same places."""


class Foreign(Exception):
    """It does not tell which record it was: others wrote it there."""


class DeadLetters:
    """Writes records to a topic, with what went wrong. A producer is opened by the first one.

    A write that fails is tried again until it succeeds: whoever waits for it has not finished the
    record, so it is not committed. One task owns the producer; all others wait for it.
    """

    def __init__(self, topic: str, connection: ConnectionConfig, *, randomness: Random) -> None:
        self.topic: Final = topic
        self.written = 0
        self.failures = 0  # of writes, each of which was tried again
        self.last_error: str | None = None  # since the last one that was written
        self._connection = connection
        self._randomness = randomness
        self._scope = Scope(f"dead letters to {topic}")
        # not written yet, or somebody waits for them: asked for again, they are not new ones
        self._letters: dict[_Same, _Letter] = {}
        self._asked = asyncio.Event()
        self._producer: AIOKafkaProducer | None = None
        self._log = QuietLog(_log)

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._scope.start(self._run(), f"dead letters to {self.topic}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        try:
            await self._scope.__aexit__(kind, error, where)
        finally:
            await self._close()

    @property
    def trouble(self) -> str | None:
        """Why letters wait to be written, if some do."""
        waiting = sum(not one.written.is_set() for one in self._letters.values())
        if not waiting or self.last_error is None:
            return None
        return f"{waiting} records cannot be written to {self.topic}: {self.last_error}"

    def reach_by(self, connection: ConnectionConfig) -> None:
        """From now on: where brokers are may be known only after this was made."""
        self._connection = connection

    async def write(self, record: Record, failure: Failure, *, partition: int | None = None) -> int:
        """Return once the record is written, to all replicas in sync; however long that takes.

        To a partition that its key chooses, if none is given; returns the offset it has there.
        """
        self._scope.check_open()
        same = _same(record)
        letter = self._letters.get(same)
        if letter is None:
            headers = [*_kept(record.headers), *told_of(record, failure)]
            letter = self._letters[same] = _Letter(record, headers, partition)
            self._asked.set()
        try:
            await letter.heard()
        finally:
            self._tidy(letter)
        return letter.offset

    def _tidy(self, letter: _Letter) -> None:
        """Forget it, if it is written and nobody waits to hear so."""
        if letter.written.is_set() and not letter.waiting:
            self._letters.pop(_same(letter.record), None)

    async def _run(self) -> None:
        delays = backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)
        while True:
            await self._asked.wait()
            self._asked.clear()
            failed = await self._write(letters) if (letters := self._unwritten()) else []
            if not failed:
                delays = backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)
                continue
            self._asked.set()
            self._log.warning(
                "%d dead letters were not written to %s, the first of them %s: %s. They are tried "
                "again, and not committed",
                len(failed),
                self.topic,
                _place(failed[0].record),
                self.last_error,
            )
            await asyncio.sleep(next(delays))

    def _unwritten(self) -> list[_Letter]:
        """What is to be written. Not what was to wait for another try, if nobody waits any more.

        Its partition went to another, who may be done with it by now, and with what comes after it.
        """
        self._letters = {
            same: one for same, one in self._letters.items() if one.waiting or not one.is_parked
        }
        return [one for one in self._letters.values() if not one.written.is_set()]

    async def _write(self, letters: list[_Letter]) -> list[_Letter]:
        """Those that could not be written."""
        try:
            producer = await self._opened()
        except Exception as error:  # noqa: BLE001 - as below
            self._note(error)
            return letters
        sent = [(letter, await self._send(producer, letter)) for letter in letters]
        failed = [letter for letter, told in sent if not await self._is_written(letter, told)]
        if failed:
            await self._close()  # a producer whose sequence is broken does not get well again
        return failed

    async def _send(
        self, producer: AIOKafkaProducer, letter: _Letter
    ) -> asyncio.Future[Any] | None:
        key, value = letter.record.key, letter.record.value
        if key is None and value is None:
            value = b""  # aiokafka refuses a record of nothing; a header tells
        try:
            told: asyncio.Future[Any] = await producer.send(
                self.topic, value, key=key, partition=letter.partition, headers=letter.headers
            )
        except Exception as error:  # noqa: BLE001 - whatever it is: it is tried again, and told
            self._note(error)
            return None
        told.add_done_callback(_heard)
        return told

    async def _is_written(self, letter: _Letter, told: asyncio.Future[Any] | None) -> bool:
        if told is None:
            return False
        try:
            letter.has((await told).offset)
        except Exception as error:  # noqa: BLE001 - as above
            self._note(error)
            return False
        self.written += 1
        self.last_error = None
        self._tidy(letter)  # who wanted it may have given up
        return True

    async def _opened(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(**_options(self._connection))
            try:
                await producer.start()
            except BaseException:
                await _stopped(producer)
                raise
            self._producer = producer
        return self._producer

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stopped(producer)

    def _note(self, error: BaseException) -> None:
        self.failures += 1
        self.last_error = f"{type(error).__name__}: {error}"


@asynccontextmanager
async def producing(connection: ConnectionConfig) -> AsyncIterator[AIOKafkaProducer]:
    """aiokafka's producer: what it has written is on all replicas in sync."""
    producer = AIOKafkaProducer(**_options(connection))
    try:
        await producer.start()
        yield producer
    finally:
        await _stopped(producer)


async def _stopped(producer: AIOKafkaProducer) -> None:
    """Close it; what it could not write is not waited for, for it is not committed.

    aiokafka would flush first, for ever: what is sent in sequence never expires.
    """
    unsent = producer._message_accumulator  # noqa: SLF001 - nothing public ends it
    unsent.fail_all(KafkaError("given up"))
    for close in (producer.stop, producer.client.close):  # the first may break off
        try:
            async with asyncio.timeout(_SECONDS_TO_CLOSE):
                await close()
        except Exception as error:  # noqa: BLE001 - aiokafka's, of what we told it to fail
            _log.debug("closing a producer: %r", error)


def _heard(told: asyncio.Future[Any]) -> None:
    """If nobody waits for it any more, it is no news that it failed."""
    if not told.cancelled():
        told.exception()


def _options(connection: ConnectionConfig) -> dict[str, Any]:
    """As aiokafka's producer calls them."""
    options = {
        name: getattr(connection, name)
        for name in (
            "client_id",
            "security_protocol",
            "ssl_context",
            "sasl_plain_username",
            "sasl_plain_password",
            "sasl_oauth_token_provider",
            "sasl_kerberos_service_name",
            "sasl_kerberos_domain_name",
            "request_timeout_ms",
            "connections_max_idle_ms",
        )
    }
    return {
        **options,
        "bootstrap_servers": [str(address) for address in connection.addresses],
        "sasl_mechanism": connection.sasl_mechanism or "PLAIN",
        "acks": "all",
        "enable_idempotence": True,
        "max_request_size": _LARGEST,
    }


def _kept(headers: Headers) -> Headers:
    """The record's own, without what was told of an earlier failure."""
    return tuple(one for one in headers if not one[0].startswith(PREFIX))


def told_of(record: Record, failure: Failure) -> list[tuple[str, bytes]]:
    """The headers that tell where a record was, and what went wrong."""
    error = failure.error
    told: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "error.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "error.message": str(error)[:_LONGEST_MESSAGE],
        "attempts": failure.attempts,
        "group": failure.group,
        "handler": failure.handler,
    }
    if record.key is None and record.value is None:
        told["no_value"] = "true"
    return [
        (f"{PREFIX}{name}", str(text).encode(errors="backslashreplace"))
        for name, text in told.items()
    ]


def told_by(record: Record) -> dict[str, bytes]:
    """What the headers tell that `told_of` has written, by name."""
    return {
        name.removeprefix(PREFIX): text or b""
        for name, text in record.headers
        if name.startswith(PREFIX)
    }


def original(record: Record) -> Record:
    """The record as it was before it was written here, or to a retry topic."""
    told = told_by(record)
    try:
        partition, offset, timestamp = (
            int(told[name]) for name in ("partition", "offset", "timestamp")
        )
        topic = told["topic"].decode()
    except (KeyError, ValueError):
        raise Foreign("its headers do not tell which record it was") from None
    return Record(
        topic,
        partition,
        offset,
        timestamp,
        key=record.key,
        value=None if "no_value" in told else record.value,
        headers=_kept(record.headers),
    )


def _same(record: Record) -> _Same:
    at = record.topic, record.partition, record.offset
    return *at, record.timestamp, record.key, record.value


def _place(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.offset}"

"""The dead-letter producer with a fake connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any, Self

import pytest

from asyncconsumer import ClosedError, Record
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer import dead_letters
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure, failure_headers
from asyncconsumer.errors import ConnectFailed, NoBrokerAnswered, RecordTooLarge
from asyncconsumer.errors.tracebacks import LONGEST_TRACEBACK, traceback_text
from asyncconsumer.net.partition_writer import Outcome, ProducerRecord
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address

pytestmark = pytest.mark.fast


WRONG = Failure(ValueError("wrong"), 3, "g", "h")


class Producer:
    """The used part of the package's producer, with faults that a test chooses."""

    down = False
    too_large: frozenset[bytes] = frozenset()
    written: list[bytes]
    reached: list[tuple[Address, ...]]
    open = 0

    def __init__(self, config: ConnectionConfig, **options: Any) -> None:
        assert isinstance(options["randomness"], Random)
        Producer.reached.append(config.addresses)

    async def __aenter__(self) -> Self:
        Producer.open += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        Producer.open -= 1

    async def find_topic(self, topic: str) -> None:
        if Producer.down:
            raise NoBrokerAnswered(())

    async def send(self, records: list[ProducerRecord]) -> dict[ProducerRecord, Outcome]:
        return {record: self._sent(record) for record in records}

    def _sent(self, record: ProducerRecord) -> Outcome:
        value = record.value or b""
        if Producer.down:
            return ConnectFailed("k:1", "nobody there")
        if value in Producer.too_large:
            return RecordTooLarge(record.topic)
        Producer.written.append(value)
        return len(Producer.written)


@contextmanager
def producers() -> Iterator[type[Producer]]:
    """Replace the producer of dead letters."""
    Producer.down, Producer.too_large, Producer.open = False, frozenset(), 0
    Producer.written, Producer.reached = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "RecordWriter", Producer)
        yield Producer
    assert Producer.open == 0


@asynccontextmanager
async def dead_letter_records() -> AsyncIterator[DeadLetterProducer]:
    config = ConnectionConfig(bootstrap_servers="k:1")
    with producers():
        async with DeadLetterProducer("dead", config, randomness=Random(1)) as producer:
            yield producer


def dead_letter(value: bytes, offset: int = 7) -> Record:
    return Record(
        "t", 0, offset, key=b"k", value=value, headers=[("mine", b"1"), ("dlt.topic", b"x")]
    )


@simulated(seeds=range(5))
async def test_a_write_is_tried_until_it_succeeds() -> None:
    async with dead_letter_records() as producer, asyncio.TaskGroup() as group:
        Producer.down = True
        writing = [
            group.create_task(producer.write(dead_letter(b"%d" % n, n), WRONG)) for n in range(3)
        ]
        await asyncio.sleep(3600)
        assert not any(task.done() for task in writing)
        assert "nobody there" in (producer.last_error or "")
        Producer.down = False
        await asyncio.wait(writing)
        assert sorted(Producer.written) == [b"0", b"1", b"2"]
        assert producer.written == 3


@simulated(seeds=range(5))
async def test_one_that_is_refused_holds_up_no_other() -> None:
    async with dead_letter_records() as producer, asyncio.TaskGroup() as group:
        Producer.too_large = frozenset({b"large"})
        large = group.create_task(producer.write(dead_letter(b"large"), WRONG))
        await asyncio.sleep(60)
        await producer.write(dead_letter(b"small", 8), WRONG)
        assert not large.done()
        Producer.too_large = frozenset()  # somebody changed the topic
        await large
        assert Producer.written == [b"small", b"large"]


@simulated(seeds=range(5))
async def test_closing_does_not_wait_for_what_cannot_be_written() -> None:
    async with asyncio.TaskGroup() as group:
        async with dead_letter_records() as producer:
            Producer.down = True
            writing = group.create_task(producer.write(dead_letter(b"x"), WRONG))
            await asyncio.sleep(60)
        writing.cancel()
    with pytest.raises(ClosedError):
        await producer.write(dead_letter(b"y"), WRONG)


@simulated(seeds=range(2))
async def test_dead_letters_that_nobody_waits_for_any_more_are_written_and_forgotten() -> None:
    """Their partition was taken away. Later another topic of that name has others there."""
    async with dead_letter_records() as producer:
        Producer.down = True
        for _ in range(2):
            for n in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await producer.write(dead_letter(b"%d" % n, n), WRONG)
        Producer.down = False
        await asyncio.sleep(60)
        assert sorted(Producer.written) == [b"0", b"1", b"2"]
        assert not producer._pending
        await producer.write(dead_letter(b"another", 1), WRONG)
        assert Producer.written[3:] == [b"another"]
        assert not producer._pending


@simulated(seeds=range(2))
async def test_what_was_to_be_parked_is_not_once_nobody_waits_for_it() -> None:
    """The new owner of the partition would retry it after later records."""
    async with dead_letter_records() as producer:
        Producer.down = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await producer.write(dead_letter(b"parked"), WRONG, partition=0)
        Producer.down = False
        await asyncio.sleep(60)
        assert (Producer.written, producer._pending) == ([], {})
        await producer.write(dead_letter(b"parked"), WRONG, partition=0)
        assert Producer.written == [b"parked"]


@simulated(seeds=range(2))
async def test_two_records_of_one_place_are_two_dead_letters() -> None:
    """The topic was re-created before the first record's dead letter was written."""
    async with dead_letter_records() as producer, asyncio.TaskGroup() as group:
        Producer.down = True
        for value in (b"old", b"new", b"new"):
            group.create_task(producer.write(dead_letter(value), WRONG))
        await asyncio.sleep(1)
        Producer.down = False
    assert Producer.written == [b"old", b"new"]


def test_the_traceback_is_reported_with_its_end_and_bounded_length() -> None:
    def fail(length: int) -> None:
        raise ValueError("x" * length)

    short, long = 10, LONGEST_TRACEBACK
    reported = {}
    for length in (short, long):
        with pytest.raises(ValueError, match="xxx") as caught:
            fail(length)
        headers = dict(failure_headers(dead_letter(b"v"), Failure(caught.value)))
        reported[length] = headers["dlt.error.traceback"].decode()
    assert reported[short].startswith("Traceback (most recent call last)")
    assert "in fail" in reported[short]
    assert len(reported[long]) == LONGEST_TRACEBACK
    assert reported[long].startswith("...\n")
    assert reported[long].endswith("xxx\n")


def test_a_traceback_without_messages_has_the_classes_of_all_causes() -> None:
    try:
        try:
            raise KeyError("4111")  # noqa: TRY301
        except KeyError as inner:
            group = ExceptionGroup("4111", [OSError("4111")])
            group.add_note("4111")
            raise group from inner
    except ExceptionGroup as error:
        text = traceback_text(error, messages=False)
    assert all(kind in text for kind in ("KeyError", "ExceptionGroup", "OSError"))
    assert "4111" not in text.replace('("4111"', "")  # the lines of this test


def test_what_no_text_can_hold_is_reported_all_the_same() -> None:
    """A path that is no UTF-8, for instance, as Python has it."""
    reported = dict(failure_headers(dead_letter(b"v"), Failure(ValueError("\udcff"))))
    assert reported["dlt.error.message"] == b"\\udcff"

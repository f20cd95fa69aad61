"""Dead letters are written, sooner or later."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any, Self

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from asyncconsumer import ClosedError, Record, TopicPartition
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer import dead_letters
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure, failure_headers
from asyncconsumer.errors import ConnectFailed, NoBrokerAnswered, RecordTooLarge
from asyncconsumer.net.partition_writer import Outcome, ProducerRecord
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address
from tests.consumer.members import admin_of
from tests.helpers import until
from tests.work.real import app, offsets, read, send

WRONG = Failure(ValueError("wrong"), 3, "g", "h")


class Producer:
    """Ours, as far as it is used; a test says what goes wrong."""

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
        return {one: self._sent(one) for one in records}

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
    """Those of all letters are such."""
    Producer.down, Producer.too_large, Producer.open = False, frozenset(), 0
    Producer.written, Producer.reached = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "Producer", Producer)
        yield Producer
    assert Producer.open == 0


@asynccontextmanager
async def letters() -> AsyncIterator[DeadLetterProducer]:
    config = ConnectionConfig(bootstrap_servers="k:1")
    with producers():
        async with DeadLetterProducer("dead", config, randomness=Random(1)) as one:
            yield one


def letter(value: bytes, offset: int = 7) -> Record:
    return Record(
        "t", 0, offset, key=b"k", value=value, headers=[("mine", b"1"), ("dlt.topic", b"x")]
    )


@pytest.mark.fast
@simulated(seeds=range(5))
async def test_a_write_is_tried_until_it_succeeds() -> None:
    async with letters() as one, asyncio.TaskGroup() as group:
        Producer.down = True
        writing = [group.create_task(one.write(letter(b"%d" % n, n), WRONG)) for n in range(3)]
        await asyncio.sleep(3600)
        assert not any(task.done() for task in writing)
        assert "nobody there" in (one.last_error or "")
        Producer.down = False
        await asyncio.wait(writing)
        assert sorted(Producer.written) == [b"0", b"1", b"2"]
        assert one.written == 3


@pytest.mark.fast
@simulated(seeds=range(5))
async def test_one_that_is_refused_holds_up_no_other() -> None:
    async with letters() as one, asyncio.TaskGroup() as group:
        Producer.too_large = frozenset({b"large"})
        large = group.create_task(one.write(letter(b"large"), WRONG))
        await asyncio.sleep(60)
        await one.write(letter(b"small", 8), WRONG)
        assert not large.done()
        Producer.too_large = frozenset()  # somebody changed the topic
        await large
        assert Producer.written == [b"small", b"large"]


@pytest.mark.fast
@simulated(seeds=range(5))
async def test_closing_does_not_wait_for_what_cannot_be_written() -> None:
    async with asyncio.TaskGroup() as group:
        async with letters() as one:
            Producer.down = True
            writing = group.create_task(one.write(letter(b"x"), WRONG))
            await asyncio.sleep(60)
        writing.cancel()
    with pytest.raises(ClosedError):
        await one.write(letter(b"y"), WRONG)


@pytest.mark.fast
@simulated(seeds=range(2))
async def test_letters_that_nobody_waits_for_any_more_are_written_and_forgotten() -> None:
    """Their partition was taken away. Later another topic of that name has others there."""
    async with letters() as one:
        Producer.down = True
        for _ in range(2):
            for n in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await one.write(letter(b"%d" % n, n), WRONG)
        Producer.down = False
        await asyncio.sleep(60)
        assert sorted(Producer.written) == [b"0", b"1", b"2"]
        assert not one._letters
        await one.write(letter(b"another", 1), WRONG)
        assert Producer.written[3:] == [b"another"]
        assert not one._letters


@pytest.mark.fast
@simulated(seeds=range(2))
async def test_what_was_to_be_parked_is_not_once_nobody_waits_for_it() -> None:
    """Whoever has its partition now would try it again, after what followed it was done."""
    async with letters() as one:
        Producer.down = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await one.write(letter(b"parked"), WRONG, partition=0)
        Producer.down = False
        await asyncio.sleep(60)
        assert (Producer.written, one._letters) == ([], {})
        await one.write(letter(b"parked"), WRONG, partition=0)
        assert Producer.written == [b"parked"]


@pytest.mark.fast
@simulated(seeds=range(2))
async def test_two_records_of_one_place_are_two_letters() -> None:
    """The topic was made anew while the letter of the first was not written yet."""
    async with letters() as one, asyncio.TaskGroup() as group:
        Producer.down = True
        for value in (b"old", b"new", b"new"):
            group.create_task(one.write(letter(value), WRONG))
        await asyncio.sleep(1)
        Producer.down = False
    assert Producer.written == [b"old", b"new"]


@pytest.mark.fast
def test_what_no_text_can_hold_is_told_all_the_same() -> None:
    """A path that is no UTF-8, for instance, as Python has it."""
    told = dict(failure_headers(letter(b"v"), Failure(ValueError("\udcff"))))
    assert told["dlt.error.message"] == b"\\udcff"


async def test_a_letter_is_the_record_and_what_went_wrong(kafka: KafkaHandle) -> None:
    dead = await kafka.topic()
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    nothing = Record("t", 3, 8, timestamp=5, headers=[("empty", None)])
    async with DeadLetterProducer(dead, config, randomness=Random(1)) as one:
        await one.write(letter(b"v"), WRONG)
        await one.write(nothing, Failure(KeyError("x" * 5000)))
    first, second = await read(kafka, dead, 2)
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers[0] == ("mine", b"1")
    assert [text for name, text in first.headers if name == "dlt.topic"] == [b"t"]
    assert dict(first.headers)["dlt.attempts"] == b"3"
    assert (second.key, second.value, second.headers[0]) == (None, None, ("empty", None))
    assert len(dict(second.headers)["dlt.error.message"]) == 1000


async def test_what_the_topic_does_not_take_is_not_committed_until_it_does(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    dead = await kafka.topic(config={"max.message.bytes": "1000"})
    bad = b"bad" * 1000
    await send(kafka, topic, [bad, b"good"], keys=2)
    seen: list[bytes] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, dead_letter_topic=dead)
    async def handle(value: bytes) -> None:
        seen.append(value)
        if value == bad:
            raise ValueError(len(value))

    at = TopicPartition(topic, 0)
    async with one:
        await until(lambda: "dead letters were not written" in caplog.text)
        assert await one.consumer.commit() == {at: 0}
        async with admin_of(kafka) as admin:
            limit = {"max.message.bytes": "100000"}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, dead, limit)])
        (letter,) = await read(kafka, dead, 1)
        assert letter.value == bad
    assert sorted(seen) == [bad, b"good"]
    assert (await offsets(kafka, group))[at] == 2

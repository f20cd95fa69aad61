"""Random walks over messages: both decoders deliver or skip each record once, in order."""

import asyncio
import contextlib
import random
from types import ModuleType
from typing import Any, Final

import pytest

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

WALKS: Final = 60
BATCHES: Final = 4
KINDS: Final = ("value", "await", "sleep", "bad", "bad later", "retry", "retry later", "interrupt")
STEPS: Final = (
    "next", "next", "next", "cancel", "take", "take", "evict", "late", "park", "unpark",
    "lose", "builder",
)  # fmt: skip


class Bad(Exception):
    pass


class Retriable(Exception):
    retriable = True


class Bodies:
    """An account that lets each body stay in memory."""

    def make_room(self, reader: object) -> None: ...

    def hold(self, reader: object, size: int, again: bool) -> int:
        return size

    def release(self, reader: object) -> None: ...


class Partition:
    """The records of a partition: their kinds, the corrupt ones, and those delivered so far."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.number = number
        self.codec = chance.choice([0, 1])
        self.kinds: dict[int, str] = {}
        self.corrupt: set[int] = set()
        self.data: list[bytes] = []
        first = 0
        for _ in range(BATCHES):
            rows = [Row(first + i, b"%d" % (first + i)) for i in range(chance.randint(1, 6))]
            offsets = range(first, first + len(rows))
            first += len(rows) + chance.randint(0, 2)  # compaction leaves gaps
            data = bytearray(batch(rows, codec=self.codec))
            if chance.random() < 0.15:
                data[-1] ^= 1
                self.corrupt.update(offsets)
            else:
                self.kinds |= {offset: chance.choice(KINDS) for offset in offsets}
            self.data.append(bytes(data))
        self.passed: list[tuple[int, str]] = []  # offsets, and how each record was passed

    @property
    def expected(self) -> list[int]:
        return sorted(self.kinds)

    def first_open(self) -> int:
        """Return the offset of the first record that was neither delivered nor skipped."""
        done = {offset for offset, _ in self.passed}
        return min((offset for offset in self.expected if offset not in done), default=10**6)


class Walk:
    """A random reader of one decoder, and the model of its deliveries."""

    def __init__(self, decoder: ModuleType, seed: int) -> None:
        self.decoder = decoder
        self.chance = random.Random(seed)
        self.partitions = [Partition(number, self.chance) for number in range(2)]
        self.policy = self.chance.choice(["raise", "skip"])
        self.tried: set[tuple[int, int]] = set()  # records whose first try has failed
        self.trace: list[object] = []
        self.parked: list[Any] = []
        self.current: Any = None
        self.sets = [self.records_of(partition) for partition in self.partitions]
        self.chance.shuffle(self.sets)
        self.park = False
        self.raised: tuple[Partition, int] | None = None  # skipped by the next request
        self.stream: Any = decoder.AsyncRecords(self.refill)
        self.stream.unreadable = self.unreadable
        self.set_builder()

    def set_builder(self) -> None:
        self.stream.builder = self.decoder.MessageBuilder(
            value=self.deserialize, value_takes_record=True
        )

    def records_of(self, partition: Partition) -> Any:
        return self.decoder.Records(
            b"".join(partition.data),
            topic="t",
            partition=partition.number,
            offset=min(partition.first_open(), 10**6),
            bodies=Bodies(),
        )

    async def refill(self) -> Any:
        if self.chance.random() < 0.5:
            await asyncio.sleep(0)
        current = self.current
        if current is not None and not current.closed:
            if not self.park:
                return current
            self.parked.append(current)
        self.park = False
        self.current = self.sets.pop(0) if self.sets else None
        if self.current is None and self.parked:
            self.current = self.parked.pop(0)
        return self.current

    # --- deserializer and policy -----------------------------------------------------------------

    def deserialize(self, record: Any) -> object:
        kind = self.partitions[record.partition].kinds[record.offset]
        again = (record.partition, record.offset) in self.tried
        self.tried.add((record.partition, record.offset))
        if kind == "bad":
            raise Bad(record.partition, record.offset)
        if kind == "retry" and not again:
            raise Retriable
        if kind == "interrupt" and not again:
            raise KeyboardInterrupt
        if kind in ("await", "sleep", "bad later", "retry later"):
            return self.later(record, kind, again=again)
        return record.offset

    async def later(self, record: Any, kind: str, *, again: bool) -> int:
        if kind != "await":
            await asyncio.sleep(0)
        if kind == "bad later":
            raise Bad(record.partition, record.offset)
        if kind == "retry later" and not again:
            raise Retriable
        return int(record.offset)

    def unreadable(self, error: Exception) -> Any:
        if isinstance(error, CorruptRecords):
            return self.skip_corrupt()
        return None if self.policy == "raise" else self.skip(error)

    async def skip_corrupt(self) -> None:
        await asyncio.sleep(0)
        self.stream.current.skip_corrupt()

    async def skip(self, error: Exception) -> None:
        assert isinstance(error, Bad)
        if self.chance.random() < 0.7:
            await asyncio.sleep(0)
        number, offset = error.args
        self.pass_record(self.partitions[number], offset, "skipped")

    # --- the model -------------------------------------------------------------------------------

    def pass_record(self, partition: Partition, offset: int, how: str) -> None:
        assert offset == partition.first_open(), (partition.number, partition.passed)
        partition.passed.append((offset, how))
        self.trace.append((partition.number, offset, how))

    def deliver(self, message: Any) -> None:
        partition = self.partitions[message.partition]
        assert partition.kinds[message.offset] not in ("bad", "bad later")
        assert message.value == message.offset
        self.pass_record(partition, message.offset, "delivered")

    def request(self) -> None:
        """Store that a request acknowledges the record whose error was raised."""
        if self.raised is not None:
            self.pass_record(*self.raised, "raised")
            self.raised = None

    def check(self) -> None:
        for records in (self.current, *self.parked):
            if records is not None and not records.closed:
                assert records.next_offset <= self.partitions[records.partition].first_open()

    # --- steps -----------------------------------------------------------------------------------

    async def next(self) -> bool:
        """Request the next message, and return whether the stream has ended."""
        self.request()
        try:
            self.deliver(await anext(self.stream))
        except StopAsyncIteration:
            return True
        except (Retriable, KeyboardInterrupt) as error:
            self.trace.append(type(error).__name__)
        except Bad as error:
            self.raised = self.partitions[error.args[0]], error.args[1]
        return False

    async def cancel(self) -> None:
        """Cancel a request after some rounds of the event loop."""
        self.request()
        step = self.stream.__anext__().__await__()
        try:
            for _ in range(self.chance.randint(1, 3)):
                step.send(None)
                await asyncio.sleep(0)
            step.throw(asyncio.CancelledError())
        except StopIteration as stop:
            self.deliver(stop.value)
        except Bad as error:
            self.raised = self.partitions[error.args[0]], error.args[1]
        except (Retriable, KeyboardInterrupt, StopAsyncIteration, asyncio.CancelledError) as error:
            self.trace.append(type(error).__name__)

    def take(self) -> None:
        items: list[Any] = []
        if self.raised is not None:
            return  # only a request acknowledges it
        self.stream.remaining = limit = self.chance.choice([-1, 0, 3])
        with contextlib.suppress(KeyboardInterrupt):
            self.stream.take(items, self.chance.randint(1, 8))
        assert limit < 0 or self.stream.remaining == limit - len(items)
        self.stream.remaining = -1
        for item in items:
            self.deliver(item)

    def lose(self) -> None:
        """Lose the partition and get it again, with its records fetched again."""
        current = self.current
        if current is None or current.closed:
            return
        partition = self.partitions[current.partition]
        if self.raised is not None and self.raised[0] is partition:
            return  # the error would be raised again
        current.close()
        self.sets.append(self.records_of(partition))

    async def step(self) -> bool:
        step = self.chance.choice(STEPS)
        if step == "next":
            return await self.next()
        if step == "cancel":
            await self.cancel()
        elif step == "evict" and self.current is not None:
            self.current.evict()
        elif step == "late":
            self.stream.deadline = self.chance.choice([0.0, float("inf")])
        elif step == "park":
            self.park = True
            self.stream.deadline = 0.0
        elif step == "unpark" and self.parked:
            self.sets.append(self.parked.pop())
        elif step == "builder" and self.raised is None:
            self.set_builder()
        elif step in ("take", "lose"):
            getattr(self, step)()
        return False

    async def run(self) -> list[object]:
        for _ in range(5000):
            ended = await self.step()
            self.check()
            if ended:
                break
        for partition in self.partitions:
            assert [offset for offset, _ in partition.passed] == partition.expected
        return self.trace


@pytest.mark.parametrize("seed", range(WALKS))
async def test_each_record_is_delivered_or_skipped_once(decoder: ModuleType, seed: int) -> None:
    await Walk(decoder, seed).run()


@pytest.mark.skipif(len(decoding.available()) < 2, reason="one decoder is present")
@pytest.mark.parametrize("seed", range(WALKS))
async def test_the_decoders_agree(seed: int) -> None:
    first, second = [decoding.load(name)[1] for name in decoding.available()]
    assert await Walk(first, seed).run() == await Walk(second, seed).run()

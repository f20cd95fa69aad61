"""Guarantees of asyncio under every seed, and orders that it does not guarantee.

The first half would fail if the simulation reported bugs in correct code; the second plants bugs.
"""

import asyncio
import collections
import random

import pytest

from asyncconsumer.testing.virtual_time import run, simulated

pytestmark = pytest.mark.fast

every_seed = simulated(seeds=range(300))
every_seed_and_late = simulated(seeds=range(300), lag=0.01)


@every_seed
async def test_a_queue_loses_and_repeats_no_item() -> None:
    queue: asyncio.Queue[tuple[str, int]] = asyncio.Queue(3)
    received: dict[str, list[int]] = collections.defaultdict(list)

    async def produce(name: str) -> None:
        for number in range(10):
            await queue.put((name, number))

    async def consume() -> None:
        while True:
            name, number = await queue.get()
            received[name].append(number)
            await asyncio.sleep(0)
            queue.task_done()

    async with asyncio.TaskGroup() as group:
        consumers = [group.create_task(consume()) for _ in range(3)]
        async with asyncio.TaskGroup() as producers:
            for name in "abc":
                producers.create_task(produce(name))
        await queue.join()
        for consumer in consumers:
            consumer.cancel()
    assert received == {name: list(range(10)) for name in "abc"}


@every_seed_and_late
async def test_a_get_that_times_out_loses_no_item() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    received: list[int] = []
    delays = random.Random(1)

    async def consume() -> None:
        while len(received) < 20:
            try:
                async with asyncio.timeout(0.1 + delays.random() / 100):
                    received.append(await queue.get())
            except TimeoutError:
                pass

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(consume())
        for number in range(20):
            await asyncio.sleep(0.1 + delays.random() / 100)
            queue.put_nowait(number)
    assert sorted(received) == list(range(20))


@every_seed
async def test_an_event_wakes_every_waiter() -> None:
    event = asyncio.Event()
    woken = 0

    async def wait(rounds: int) -> None:
        nonlocal woken
        for _ in range(rounds):
            await asyncio.sleep(0)
        await event.wait()
        woken += 1

    async def flip() -> None:
        for _ in range(4):
            event.set()
            await asyncio.sleep(0)
            event.clear()
        event.set()

    async with asyncio.TaskGroup() as group:
        for rounds in range(10):
            group.create_task(wait(rounds))
        group.create_task(flip())
    assert woken == 10


@every_seed_and_late
async def test_a_failed_task_ends_all_tasks_of_its_group() -> None:
    ended: list[float] = []

    async def child(delay: float) -> None:
        try:
            await asyncio.sleep(delay)
            if delay > 0.5:
                raise ValueError(delay)
        finally:
            ended.append(delay)

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(child(delay))

    delays = [0.1, 0.5, 0.501, 0.502, 0.502, 9.0]
    with pytest.raises(ExceptionGroup) as caught:
        await parent()
    assert caught.group_contains(ValueError, match=r"0\.501")
    assert sorted(ended) == delays


@every_seed_and_late
async def test_nested_timeouts_leave_no_pending_cancellation() -> None:
    task = asyncio.current_task()
    assert task is not None
    for inner, outer in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.001), (1.001, 1.0)):
        expired = []
        try:
            async with asyncio.timeout(outer):
                try:
                    async with asyncio.timeout(inner):
                        await asyncio.sleep(5)
                except TimeoutError:
                    expired.append("inner")
                await asyncio.sleep(1)
        except TimeoutError:
            expired.append("outer")
        assert expired
        if outer < 2:
            assert expired[-1] == "outer"
        assert task.cancelling() == 0


@every_seed_and_late
async def test_a_cancellation_at_a_timeout_is_not_lost() -> None:
    async def child() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(5)
        except TimeoutError:
            await asyncio.sleep(5)
        return "not cancelled"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(child())
        await asyncio.sleep(1)
        task.cancel()
    assert task.cancelled()


@every_seed
async def test_a_semaphore_admits_no_more_than_its_number() -> None:
    semaphore = asyncio.Semaphore(2)
    inside = maximum = passed = 0

    async def enter(number: int) -> None:
        nonlocal inside, maximum, passed
        await asyncio.sleep(number % 3)
        async with semaphore:
            inside += 1
            maximum = max(maximum, inside)
            try:
                await asyncio.sleep(0)
            finally:
                inside -= 1
        passed += 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(enter(number)) for number in range(12)]
        await asyncio.sleep(1)
        tasks[4].cancel()
        tasks[5].cancel()
    assert maximum == 2
    assert passed + sum(task.cancelled() for task in tasks) == 12


@every_seed
async def test_a_condition_wakes_a_waiter_for_each_notification() -> None:
    condition = asyncio.Condition()
    stock = 0
    taken = 0

    async def take() -> None:
        nonlocal stock, taken
        async with condition:
            await condition.wait_for(lambda: stock > 0)
            stock -= 1
            taken += 1

    async def bring() -> None:
        nonlocal stock
        for _ in range(6):
            async with condition:
                stock += 1
                condition.notify()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(take())
        group.create_task(bring())
    assert (stock, taken) == (0, 6)


@every_seed
async def test_a_barrier_waits_for_all_parties() -> None:
    barrier = asyncio.Barrier(4)
    arrived = 0

    async def party(rounds: int) -> None:
        nonlocal arrived
        for turn in range(1, 4):
            for _ in range(rounds):
                await asyncio.sleep(0)
            arrived += 1
            await barrier.wait()
            assert arrived >= 4 * turn

    async with asyncio.TaskGroup() as group:
        for rounds in range(4):
            group.create_task(party(rounds))


class Wire(asyncio.Transport):
    """A transport that passes written data by `call_soon`, like the transports of asyncio."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._loop.call_soon(self._protocol.data_received, bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self._loop.call_soon(self._protocol.eof_received)
        self._loop.call_soon(self._protocol.connection_lost, None)


@every_seed
async def test_bytes_of_several_tasks_arrive_in_the_order_of_writes() -> None:
    reader = asyncio.StreamReader()
    wire = Wire(asyncio.StreamReaderProtocol(reader))
    written = b""

    async def write(name: str) -> None:
        nonlocal written
        for number in range(5):
            data = f"{name}{number} ".encode()
            written += data
            wire.write(data)
            await asyncio.sleep(0)

    async def read() -> bytes:
        return await reader.read()

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        async with asyncio.TaskGroup() as writers:
            for name in "abc":
                writers.create_task(write(name))
        wire.close()
    assert reading.result() == written


# ---------------------------------------------------------------- planted bugs


async def oversold() -> bool:
    """Check, await, act. The await allows two tasks to take the same seat."""
    seats = 1

    async def book(rounds: int) -> None:
        nonlocal seats
        for _ in range(rounds):
            await asyncio.sleep(0)
        if seats:
            await asyncio.sleep(0)
            seats -= 1

    async with asyncio.TaskGroup() as group:
        group.create_task(book(0))
        group.create_task(book(1))
    return seats < 0


async def lost_at_timeout(seed: int) -> bool:
    """A result is lost when its timeout fires after its arrival and before it is read."""
    loop = asyncio.get_running_loop()
    slot: asyncio.Future[str] = loop.create_future()
    loop.call_later(1 - random.Random(seed).random() / 1000, slot.set_result, "record")
    try:
        async with asyncio.timeout(1):
            await slot
    except TimeoutError:
        return slot.done() and not slot.cancelled()
    return False


def test_a_planted_check_then_act_is_found_by_seeds() -> None:
    assert not run(oversold, seed=None)
    results = [seed for seed in range(100) if run(oversold, seed=seed)]
    assert len(results) > 10


def test_a_planted_loss_at_a_timeout_is_found_by_a_late_loop() -> None:
    assert not any(run(lost_at_timeout(seed), seed=seed) for seed in range(100))
    results = [seed for seed in range(100) if run(lost_at_timeout(seed), seed=seed, lag=0.001)]
    assert len(results) > 10

"""Orders that a seed may permute, orders that it keeps, and replay."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.virtual_time import SimLoop, run
from tests.support.interleavings import SEEDS, logged, medley, noise, orders, with_noise

pytestmark = pytest.mark.fast

# ---------------------------------------------------------------- order: guaranteed


def test_tasks_of_one_group_start_in_order() -> None:
    async def main(log: list[str]) -> None:
        async def child(name: str) -> None:
            log.append(name)

        async def parent() -> None:
            for _ in range(6):
                async with asyncio.TaskGroup() as group:
                    for name in "abc":
                        group.create_task(child(name))
                    await asyncio.sleep(0)
                    log.append("parent")

        await with_noise(parent())

    assert orders(main) == {("a", "b", "c", "parent") * 6}


def test_the_waiters_of_one_event_wake_in_order() -> None:
    async def main(log: list[str]) -> None:
        event = asyncio.Event()

        async def waiter(name: str) -> None:
            await event.wait()
            log.append(name)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(waiter(name))
            await asyncio.sleep(1)
            await with_noise(noise(2))
            event.set()

    assert orders(main) == {("a", "b", "c")}


def test_plain_callbacks_run_in_the_order_of_their_registration() -> None:
    async def main(log: list[str]) -> None:
        registered: list[str] = []

        async def writer(name: str) -> None:
            for count in range(4):
                registered.append(f"{name}{count}")
                asyncio.get_running_loop().call_soon(log.append, registered[-1])
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(writer(name))
        assert log == registered

    assert len(orders(main)) > 10


def test_a_method_of_a_task_is_a_plain_callback() -> None:
    async def main() -> None:
        target = asyncio.current_task()
        assert target is not None
        latest_name = ""

        async def name_it(name: str) -> None:
            nonlocal latest_name
            for count in range(4):
                latest_name = f"{name}{count}"
                target.get_loop().call_soon(target.set_name, latest_name)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(name_it(name))
        assert target.get_name() == latest_name

    for seed in SEEDS:
        run(main, seed=seed)


def test_no_later_step_overtakes_a_plain_callback() -> None:
    async def main() -> None:
        sent = arrived = 0

        def arrive() -> None:
            nonlocal arrived
            arrived += 1

        async def send_or_check() -> None:
            nonlocal sent
            for _ in range(5):
                if sent == arrived:
                    sent += 1
                    asyncio.get_running_loop().call_soon(arrive)
                before = sent
                await asyncio.sleep(0)
                assert arrived >= before

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(send_or_check())

    for seed in SEEDS:
        run(main, seed=seed)


def test_timers_set_together_for_one_deadline_fire_in_order() -> None:
    async def main(log: list[str]) -> None:
        for name in "abc":
            asyncio.get_running_loop().call_later(1, log.append, name)
            await asyncio.sleep(0)
        await asyncio.sleep(2)

    assert orders(main) == {("a", "b", "c")}


def test_without_a_seed_the_order_is_that_of_asyncio() -> None:
    real: list[str] = []
    asyncio.run(medley(real))
    assert logged(medley, None) == real


def test_without_a_seed_timers_of_one_deadline_fire_in_order() -> None:
    async def main(log: list[str]) -> None:
        for number in range(9):
            asyncio.get_running_loop().call_at(10, log.append, str(number))
            await asyncio.sleep(1)
        await asyncio.sleep(9)

    assert logged(main, None) == list("012345678")


# ---------------------------------------------------------------- order: permuted


def test_steps_of_different_tasks_come_in_every_order() -> None:
    async def main(log: list[str]) -> None:
        async def child(name: str) -> None:
            await asyncio.sleep(0)
            log.append(name)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(child(name))

    assert len(orders(main)) == 6


def test_timers_set_apart_for_one_deadline_fire_in_every_order() -> None:
    async def main(log: list[str]) -> None:
        for name in "abc":
            asyncio.get_running_loop().call_at(10, log.append, name)
            await asyncio.sleep(1)
        await asyncio.sleep(10)

    assert len(orders(main)) == 6


def test_a_late_loop_runs_a_timer_during_the_work_of_the_previous_one() -> None:
    async def main(log: list[str]) -> None:
        async def work(start: float) -> None:
            await asyncio.sleep(start)
            for step in range(2):
                log.append(f"{start} {step}")
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(work(1.0))
            group.create_task(work(1.001))

    in_turn = ("1.0 0", "1.0 1", "1.001 0", "1.001 1")
    assert orders(main) == {in_turn}
    assert orders(main, lag=0.0001) == {in_turn}
    assert orders(main, lag=0.01) == {in_turn, ("1.0 0", "1.001 0", "1.0 1", "1.001 1")}


def test_a_late_loop_does_not_exceed_its_lag() -> None:
    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_at(1 + number / 10, log.append, str(number))
        await asyncio.sleep(1)
        await noise(500)
        assert loop.time() <= 1.5

    for seed in range(20):
        logged(main, seed, lag=0.5)


@pytest.mark.parametrize(("seed", "lag"), [(None, 0.1), (1, -0.1)])
def test_an_invalid_lag_is_refused(seed: int | None, lag: float) -> None:
    with pytest.raises(ConfigError, match="lag"):
        SimLoop(seed, lag=lag)


# ---------------------------------------------------------------- replays


async def mixed_events(log: list[str]) -> None:
    """Use tasks in a set, default names, an abort of many tasks, and abandoned generators."""

    async def numbers(name: str) -> AsyncIterator[str]:
        try:
            while True:
                yield name
                await asyncio.sleep(0)
        finally:
            log.append(f"closed {name}")

    async def child(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async for name in numbers(task.get_name()):
                log.append(name)
                await asyncio.sleep(1 + number % 3)
        except asyncio.CancelledError:
            log.append(f"cancelled {task.get_name()}")
            raise

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(child(number))
            await asyncio.sleep(4)
            raise RuntimeError


def test_a_seed_replays_identically_and_another_differs() -> None:
    first = logged(mixed_events, 7)
    ballast = [object() for _ in range(100_003)]  # shifts the addresses of later objects
    assert logged(mixed_events, 7) == first
    assert logged(mixed_events, 8) != first
    del ballast


def test_abandoned_generators_are_closed_in_the_order_of_their_start() -> None:
    closed: list[int] = []

    async def numbers(number: int) -> AsyncIterator[int]:
        try:
            yield number
        finally:
            closed.append(number)

    generators = [numbers(number) for number in range(50)]

    async def main() -> None:
        for generator in reversed(generators):
            await anext(generator)

    run(main)
    assert closed == list(reversed(range(50)))


def test_a_seed_replays_identically_in_other_processes() -> None:
    code = f"from {__name__} import *; print(logged(mixed_events, 7))"
    root = Path(__file__).parents[3]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert outputs == {f"{logged(mixed_events, 7)}\n"}

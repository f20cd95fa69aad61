"""The loop alone: its time, its guards, refused operations, and features of other loops."""

import asyncio
import contextvars
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from asyncconsumer.testing.virtual_time import Deadlock, Livelock, SimLoop, SimulationError, run
from tests.support.interleavings import logged, medley, noise, orders

pytestmark = pytest.mark.fast

# ---------------------------------------------------------------- time


def test_time_starts_at_zero_and_jumps_to_the_next_timer() -> None:
    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for delay in (0.0, 0.25, 3600.0):
            await asyncio.sleep(delay)
            log.append(str(loop.time()))

    assert logged(main, 0) == ["0.0", "0.25", "3600.25"]


def test_a_thousand_years_of_heartbeats_take_no_real_time() -> None:
    async def main() -> float:
        for _ in range(1000):
            async with asyncio.timeout(366 * 86400):
                await asyncio.sleep(365 * 86400)
        return asyncio.get_running_loop().time()

    assert run(main) == 1000 * 365 * 86400


def test_a_cancelled_timer_moves_no_time() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(50, pytest.fail).cancel()
        async with asyncio.timeout(1e6):
            await asyncio.sleep(1)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"at 1\.0 virtual seconds"):
        run(main)


def test_a_timer_cancelled_at_its_own_moment_does_not_fire() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def cancel_the_others() -> None:
            for timer in timers:
                timer.cancel()
            fired.append(loop.time())

        fired: list[float] = []
        timers += [loop.call_at(1, cancel_the_others) for _ in range(5)]
        await asyncio.sleep(2)
        assert fired == [1]

    run(main)


def test_cancelled_timers_do_not_accumulate() -> None:
    async def main() -> int:
        for _ in range(10_000):
            async with asyncio.timeout(1e6):
                await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return len(loop._timers._heap)

    assert run(main) < 200


def test_timers_fire_in_the_order_of_their_deadlines_and_never_early() -> None:
    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()

        def fire(when: float) -> None:
            assert loop.time() >= when
            log.append(str(when))

        for when in (0.3, 0.1, 0.2, 0.100001):
            loop.call_at(when, fire, when)
        await asyncio.sleep(1)

    for lag in (0.0, 0.5):
        assert orders(main, lag) == {("0.1", "0.100001", "0.2", "0.3")}


def test_a_timer_that_is_already_due_joins_the_next_round_of_a_busy_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5)
        due = asyncio.Event()
        loop.call_at(1, due.set)
        rounds = 0
        while not due.is_set():
            await asyncio.sleep(0)
            rounds += 1
        assert rounds <= 2
        assert loop.time() == 5

    run(main)


def test_deadlines_that_differ_by_rounding_are_equal() -> None:
    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(0.3, log.append, "0.3")
        await asyncio.sleep(0.1)
        loop.call_at(0.1 + 0.2, log.append, "0.1 + 0.2")
        await asyncio.sleep(1)

    assert orders(main) == {("0.3", "0.1 + 0.2"), ("0.1 + 0.2", "0.3")}


def test_a_timer_at_infinity_never_fires_and_one_at_nan_is_refused() -> None:
    async def forever() -> None:
        await asyncio.sleep(float("inf"))

    async def at_nan() -> None:
        asyncio.get_running_loop().call_later(float("nan"), print)

    with pytest.raises(Deadlock):
        run(forever)
    with pytest.raises(ValueError, match="NaN"):
        run(at_nan)


# ---------------------------------------------------------------- guards and refusals


def test_a_spinning_task_is_named() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(spin(), name="the spinner")
            await asyncio.sleep(1)

    with (
        asyncio.Runner(loop_factory=lambda: SimLoop(patience=5000)) as runner,
        pytest.raises(Livelock, match=r"5000 callbacks.*stayed at 0\.0") as caught,
    ):
        runner.run(main())
    assert "1000 x 'the spinner', which waits at" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_the_livelock_limit_restarts_when_time_advances() -> None:
    async def main() -> None:
        for _ in range(100):
            await noise(900)
            await asyncio.sleep(1e-6)

    with asyncio.Runner(loop_factory=lambda: SimLoop(patience=1000)) as runner:
        runner.run(main())


def test_tasks_that_ran_before_time_advanced_are_not_blamed() -> None:
    async def main() -> None:
        await noise(1500)
        await asyncio.sleep(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(noise(3000), name="the culprit")

    with (
        asyncio.Runner(loop_factory=lambda: SimLoop(patience=1000)) as runner,
        pytest.raises(Livelock, match="1000 x 'the culprit'") as caught,
    ):
        runner.run(main())
    assert "Task-1" not in str(caught.value)


def refused(call: Callable[[asyncio.AbstractEventLoop], Any], words: str) -> None:
    async def main() -> None:
        result = call(asyncio.get_running_loop())
        if asyncio.iscoroutine(result):
            await result

    with pytest.raises(SimulationError, match=words):
        run(main)


def test_threads_sockets_pipes_and_signals_are_refused() -> None:
    with socket.socket() as sock:
        refused(lambda _: asyncio.to_thread(print), r"run_in_executor\(\).* no threads")
        refused(lambda _: asyncio.open_connection("localhost", 1), "create_connection.* no sockets")
        refused(lambda loop: loop.create_server(asyncio.Protocol, port=0), "no sockets")
        refused(lambda loop: loop.getaddrinfo("localhost", 1), "no sockets")
        refused(lambda loop: loop.sock_recv(sock, 1), "no sockets")
        refused(lambda loop: loop.add_reader(sock, print), "no sockets")
    refused(lambda _: asyncio.create_subprocess_exec("true"), "subprocess_exec.* no pipes")
    refused(lambda loop: loop.add_signal_handler(signal.SIGTERM, print), "no signals")


def test_every_method_of_a_real_loop_works_or_is_refused() -> None:
    """Each method of asyncio's selector loop works or raises a clear error."""
    tested, real = (
        vars(SimLoop),
        set(vars(asyncio.SelectorEventLoop)) | set(vars(asyncio.SelectorEventLoop.__mro__[1])),
    )
    missing = {name for name in real if not name.startswith("_")} - set(tested)
    assert missing == set()


def test_a_callback_from_another_thread_is_refused() -> None:
    async def main() -> BaseException | None:
        loop = asyncio.get_running_loop()
        caught: list[BaseException] = []

        def call() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except SimulationError as error:
                caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return caught[0]

    assert "another thread" in str(run(main))


def test_a_callback_from_its_own_thread_is_called_soon() -> None:
    async def main() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(event.set)
        await event.wait()

    run(main)


# ---------------------------------------------------------------- features of other loops


def test_a_runner_can_use_the_loop_repeatedly() -> None:
    async def later() -> float:
        await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert [runner.run(later()), runner.run(later())] == [10, 20]


def test_the_loop_works_in_debug_mode() -> None:
    async def main(log: list[str]) -> None:
        await medley(log)
        await asyncio.sleep(100)
        with pytest.raises(TypeError, match="coroutines cannot be used"):
            asyncio.get_running_loop().call_soon(noise, 1)

    log: list[str] = []
    with asyncio.Runner(debug=True, loop_factory=lambda: SimLoop(3)) as runner:
        runner.run(main(log))
    assert log == logged(medley, 3)


def test_context_variables_follow_tasks_and_callbacks() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()

        def note() -> None:
            log.append(variable.get())

        async def child(name: str) -> None:
            variable.set(name)
            await asyncio.sleep(1)
            loop.call_soon(note)
            loop.call_later(1, note)
            note()

        async with asyncio.TaskGroup() as group:
            group.create_task(child("a"))
            group.create_task(child("b"))
        await asyncio.sleep(2)
        note()

    assert sorted(logged(main, 0)) == ["a", "a", "a", "b", "b", "b", "unset"]


def test_an_interrupted_round_continues_at_the_next_callback() -> None:
    log: list[str] = []
    loop = SimLoop(None)

    def first() -> None:
        log.append("a")
        loop.call_soon(log.append, "next round")

    def interrupt() -> None:
        raise KeyboardInterrupt

    for callback in (first, interrupt, lambda: log.append("b"), loop.stop):
        loop.call_soon(callback)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert log == ["a"]
    loop.run_forever()
    assert log == ["a", "b"]
    loop.stop()
    loop.run_forever()
    assert log == ["a", "b", "next round"]
    loop.close()


def test_a_cancelled_callback_is_not_called() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        loop.call_soon(pytest.fail).cancel()
        await asyncio.sleep(1)

    run(main)


def test_a_loop_stopped_before_it_ran_returns_immediately() -> None:
    loop = SimLoop()
    loop.stop()
    loop.run_forever()
    loop.close()


def test_a_closed_loop_refuses_callbacks() -> None:
    loop = SimLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


def test_a_closed_loop_holds_no_task() -> None:
    loop = SimLoop()
    task = loop.create_task(noise(1))
    loop.run_until_complete(task)
    reference = weakref.ref(task)
    del task
    loop.close()
    assert reference() is None


def test_a_task_factory_is_respected() -> None:
    made: list[object] = []

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,  # Python 3.14 passes the name as well
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        made.append(task)
        return task

    async def main() -> bool:
        asyncio.get_running_loop().set_task_factory(factory)
        async with asyncio.TaskGroup() as group:
            return group.create_task(noise(1)) in made

    assert run(main)

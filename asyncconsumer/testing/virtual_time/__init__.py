"""An asyncio runner with virtual time, whose order of callbacks is drawn from a seed.

```python
@simulated(seeds=range(100))
async def test_a_fenced_member_rejoins() -> None: ...  # a hundred schedules, hours in no time


assert run(main, seed=17, limit=3600) == 3  # like asyncio.run
```
"""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.virtual_time.failures import (
    Deadlock,
    LeftoverTasks,
    Livelock,
    SimulationError,
    UnhandledError,
    VirtualTimeout,
    describe,
)
from asyncconsumer.testing.virtual_time.simloop import SimLoop

__all__ = [
    "SEED_VARIABLE",
    "Deadlock",
    "LeftoverTasks",
    "Livelock",
    "SimLoop",
    "SimulationError",
    "UnhandledError",
    "VirtualTimeout",
    "run",
    "simulated",
]

P = ParamSpec("P")
T = TypeVar("T")

SEED_VARIABLE: Final = "ASYNCCONSUMER_SEED"
# Virtual seconds for the cleanup of cancelled tasks.
_GRACE: Final = 24 * 3600.0


def run(
    main: Callable[[], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T],
    *,
    seed: int | None = 0,
    limit: float | None = None,
    lag: float = 0.0,
) -> T:
    """Run a coroutine in virtual time, on a `SimLoop`, and return its result.

    Raise LeftoverTasks if a task is still running when `main` returns. Raise UnhandledError if the
    exception of a task or callback was never retrieved. If `main` itself fails, these errors become
    notes of its exception. Raise VirtualTimeout after `limit` virtual seconds. For `seed` and `lag`
    see SimLoop.
    """
    _refuse_to_nest(main)
    loop = SimLoop(seed, limit=limit, lag=lag)
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: unhandled.append(context))
    try:
        try:
            result = loop.run_until_complete(main() if callable(main) else main)
        except (Deadlock, Livelock, VirtualTimeout) as error:
            _annotate(error, _wind_down(loop, unhandled))  # these errors name the tasks
            raise
        except BaseException as error:
            _annotate(error, [*_leftovers(loop), *_wind_down(loop, unhandled)])
            raise
        if troubles := [*_leftovers(loop), *_wind_down(loop, unhandled)]:
            _annotate(troubles[0], troubles[1:])
            raise troubles[0]
        return result
    finally:
        loop.close()


def _refuse_to_nest(main: object) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if inspect.iscoroutine(main):
        main.close()  # otherwise Python warns that it was never awaited
    raise SimulationError("run() was called inside a running event loop: call it from plain code")


def _annotate(error: BaseException, troubles: list[AssertionError]) -> None:
    for trouble in troubles:
        error.add_note(f"{type(trouble).__name__}: {trouble}")


def _started_by_the_code(task: "asyncio.Task[Any]") -> bool:
    # asyncio closes an abandoned async generator in its own task, which has no coroutine
    return inspect.iscoroutine(task.get_coro())


def _leftovers(loop: SimLoop) -> list[AssertionError]:
    tasks = list(filter(_started_by_the_code, loop.pending_tasks()))
    return (
        [LeftoverTasks(f"tasks still ran when the main coroutine ended:\n{describe(tasks)}")]
        if tasks
        else []
    )


def _wind_down(loop: SimLoop, unhandled: list[dict[str, Any]]) -> list[AssertionError]:
    """Cancel the remaining tasks and close async generators.

    Return an error for each problem: a task that does not end, or an exception that was never
    retrieved. `unhandled` has the calls of the loop's exception handler.
    """
    troubles: list[AssertionError] = []
    pending = loop.pending_tasks()
    for task in filter(_started_by_the_code, pending):
        task.cancel()
    loop.limit = loop.time() + _GRACE
    try:
        if pending:
            loop.run_until_complete(asyncio.wait(pending))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except (Deadlock, Livelock, VirtualTimeout) as error:
        troubles.append(type(error)(f"even after every task was cancelled: {error}"))
    troubles += [_as_error(context) for context in unhandled]
    troubles += [_as_error(_unseen(task)) for task in loop.unseen_failures()]
    return troubles


def _unseen(task: "asyncio.Task[Any]") -> dict[str, Any]:
    message = "its exception was never retrieved"
    return {"message": message, "exception": task.exception(), "task": task}


def _as_error(context: dict[str, Any]) -> UnhandledError:
    """Return an exception for a problem that asyncio's loop would only log.

    `context` is the argument of the loop's exception handler.
    """
    task = context.get("task") or context.get("future")
    source = f"{task.get_name()!r}: " if isinstance(task, asyncio.Task) else ""
    cause = context.get("exception")
    message = context.get(
        "message", "something went wrong"
    )  # the caller of the handler may omit it
    error = UnhandledError(f"{source}{message}" + (f": {cause!r}" if cause else ""))
    error.__cause__ = cause
    return error


def simulated(
    seeds: Iterable[int | None] = range(100), *, limit: float | None = None, lag: float = 0.0
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Return a decorator that runs an `async def` test in virtual time, once for each seed.

    A failure has a note with its seed. With ASYNCCONSUMER_SEED=17 in the environment, the test runs
    only with that seed. Fixtures are created once for all seeds, so create mutable objects inside
    the test.
    """
    chosen = list(seeds)
    if not chosen:
        raise ConfigError("`seeds` is empty, so the test never runs: pass at least one seed")

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        if not inspect.iscoroutinefunction(test):
            raise ConfigError(f"@simulated needs an `async def` test, got {test!r}")

        @functools.wraps(test)
        def run_each_seed(*args: P.args, **kwargs: P.kwargs) -> None:
            for seed in _seed_asked_for() or chosen:
                try:
                    run(functools.partial(test, *args, **kwargs), seed=seed, limit=limit, lag=lag)
                except BaseException as error:
                    error.add_note(_how_to_replay(seed, test))
                    raise

        return run_each_seed

    return decorate


def _seed_asked_for() -> list[int]:
    asked = os.environ.get(SEED_VARIABLE, "")
    try:
        return [int(asked)] if asked else []
    except ValueError:
        raise ConfigError(
            f"{SEED_VARIABLE}={asked} is not a seed: set it to a whole number"
        ) from None


def _how_to_replay(seed: int | None, test: Callable[..., object]) -> str:
    if seed is None:
        return "This was the plain order of asyncio, without a seed."
    test_name = os.environ.get("PYTEST_CURRENT_TEST", test.__qualname__).removesuffix(" (call)")
    return f"This was seed {seed}. To replay it: {SEED_VARIABLE}={seed} pytest '{test_name}'"

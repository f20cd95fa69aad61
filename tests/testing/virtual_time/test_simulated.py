"""`@simulated`: one run for each seed, and the replay of failures."""

import asyncio
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.virtual_time import SEED_VARIABLE, VirtualTimeout, simulated
from tests.support.interleavings import notes

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def no_seed_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)


def test_a_simulated_test_runs_once_for_each_seed_with_its_fixtures() -> None:
    seen: list[tuple[int, str]] = []

    @simulated(seeds=range(5))
    async def test(number: int, *, text: str) -> None:
        await asyncio.sleep(1)
        seen.append((number, text))

    test(1, text="a")
    assert seen == [(1, "a")] * 5
    assert list(inspect.signature(test).parameters) == ["number", "text"]
    assert not inspect.iscoroutinefunction(test)


def test_the_seeds_explore_different_orders() -> None:
    firsts: set[str] = set()

    @simulated()
    async def test() -> None:
        order: list[str] = []

        async def child(name: str) -> None:
            await asyncio.sleep(0)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(child("a"))
            group.create_task(child("b"))
        firsts.add(order[0])

    test()
    assert firsts == {"a", "b"}


def test_a_failure_names_its_seed_and_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0

    @simulated(seeds=[5, 17, 23])
    async def test() -> None:
        nonlocal runs
        runs += 1
        assert runs != 2

    with pytest.raises(AssertionError) as caught:
        test()
    here = "test_simulated.py::test_a_failure_names_its_seed_and_how_to_replay_it"
    assert (
        f"seed 17. To replay it: {SEED_VARIABLE}=17 pytest 'tests/testing/virtual_time/{here}'"
        in notes(caught.value)
    )
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    runs = 1
    with pytest.raises(AssertionError) as caught:
        test()
    assert f"{SEED_VARIABLE}=5 pytest '{test.__qualname__}'" in notes(caught.value)


def test_the_variable_replays_a_single_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    @simulated(seeds=range(10))
    async def test() -> None:
        runs.append(1)
        pytest.fail("again")

    monkeypatch.setenv(SEED_VARIABLE, "17")
    with pytest.raises(pytest.fail.Exception) as caught:
        test()
    assert runs == [1]
    assert "seed 17" in notes(caught.value)


def test_a_variable_that_is_no_seed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @simulated()
    async def test() -> None: ...

    monkeypatch.setenv(SEED_VARIABLE, "seventeen")
    with pytest.raises(ConfigError, match=f"{SEED_VARIABLE}=seventeen"):
        test()


def test_a_test_that_would_not_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="never runs"):
        simulated(seeds=[])
    with pytest.raises(ConfigError, match="async def"):
        simulated()(lambda: None)  # type: ignore[arg-type, return-value]


def test_limit_and_lag_are_passed_on() -> None:
    @simulated(seeds=[0], limit=10)
    async def too_long() -> None:
        await asyncio.sleep(11)

    @simulated(seeds=[0], lag=-1)
    async def too_early() -> None: ...

    with pytest.raises(VirtualTimeout):
        too_long()
    with pytest.raises(ConfigError, match="lag"):
        too_early()


TESTS = """
import asyncio
import pytest
from asyncconsumer.testing.virtual_time import simulated

@pytest.mark.parametrize("hours", [1, 2])
@simulated(seeds=range(30))
async def test_fixtures(tmp_path, hours):
    assert tmp_path.is_dir()
    await asyncio.sleep(hours * 3600)

@simulated(seeds=range(100))
async def test_race():
    order = []
    async def child(name):
        await asyncio.sleep(0)
        order.append(name)
    async with asyncio.TaskGroup() as group:
        group.create_task(child("a"))
        group.create_task(child("b"))
    assert order == ["a", "b"]
"""


def test_pytest_runs_a_simulated_test_and_shows_the_seed(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(TESTS)
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"]
    for option in options:
        command += ["-o", option]
    output = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    ).stdout
    assert "1 failed, 2 passed" in output
    assert f"{SEED_VARIABLE}=" in output
    assert "pytest 'test_sample.py::test_race'" in output

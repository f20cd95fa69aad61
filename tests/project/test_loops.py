"""The event loop of tests, which the option `--loop` selects."""

import asyncio

import pytest
import uvloop

from tests.conftest import EAGER

pytestmark = pytest.mark.fast


@pytest.fixture
async def loop_of_fixtures() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_tests_and_fixtures_run_on_the_selected_loop(
    request: pytest.FixtureRequest, loop_of_fixtures: asyncio.AbstractEventLoop
) -> None:
    selected: str = request.config.getoption("loop")
    loop = asyncio.get_running_loop()
    assert loop_of_fixtures is loop
    assert isinstance(loop, uvloop.Loop) == selected.startswith("uvloop")
    assert (loop.get_task_factory() is not None) == selected.endswith("eager")
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        assert bool(begun) == (selected.endswith("eager") and EAGER is not None)

"""Checks that a test leaves no task, thread, socket or process.

By default the checks apply to tests that use a server fixture. pytest's setting
`asyncconsumer_leftovers` changes that: with `all` they apply to every test, with `off` to none.
`@pytest.mark.allow_leftovers("why")` excludes a test.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
import pytest_asyncio

from asyncconsumer.testing.fixtures import RUNNING_SERVERS
from asyncconsumer.testing.leftovers import Resources, describe_tasks

_SERVERS: Final = {"kafka", "kafka_zk", "zookeeper", "kafka_cluster"}
_FIXTURES: Final = {*_SERVERS, "java_consumers", "scala_consumers"}
_GRACE_SECONDS: Final = 2.0  # for resources that are closing, for example a stopped thread

_BEFORE: Final = pytest.StashKey[Resources]()
"""The resources that existed before the current test."""
_KEPT: Final = pytest.StashKey[Resources]()
"""Resources of fixtures with a wider scope, and those reported for an earlier test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `asyncconsumer_leftovers`, which selects the checked tests."""
    parser.addini(
        "asyncconsumer_leftovers",
        "which tests fail when they leave something behind: fixtures (those that use a server "
        "fixture), all, or off",
        default="fixtures",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker `allow_leftovers`. Raise UsageError if the setting is not valid."""
    if (chosen := config.getini("asyncconsumer_leftovers")) not in ("fixtures", "all", "off"):
        raise pytest.UsageError(
            f"asyncconsumer_leftovers must be fixtures, all or off, got {chosen!r}"
        )
    config.stash[_KEPT] = Resources()
    config.addinivalue_line(
        "markers", "allow_leftovers(reason): this test may leave tasks, sockets or processes behind"
    )


def _is_checked(item: pytest.Item) -> bool:
    chosen = item.config.getini("asyncconsumer_leftovers")
    if chosen == "off" or item.get_closest_marker("allow_leftovers"):
        return False
    return chosen == "all" or bool(_FIXTURES & set(getattr(item, "fixturenames", ())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add a fixture to each checked asynchronous test, which fails the test if tasks remain.

    The fixture comes first, so it ends after all other fixtures of the test.
    """
    for item in items:
        if pytest_asyncio.is_async_test(item) and _is_checked(item):
            assert isinstance(item, pytest.Function)
            item.fixturenames.insert(0, "_no_leftover_tasks")


@pytest_asyncio.fixture
async def _no_leftover_tasks() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    deadline = asyncio.get_running_loop().time() + _GRACE_SECONDS
    while leftovers := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(
                "the test left behind: " + "; ".join(describe_tasks(leftovers)), pytrace=False
            )
        await asyncio.sleep(0.01)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Note the resources of fixtures that outlive the test, so that the checks ignore them."""
    if fixturedef.scope == "function":
        return (yield)
    before = Resources.held_now()
    try:
        return (yield)
    finally:
        request.config.stash[_KEPT] |= Resources.held_now() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note which resources exist before the test."""
    if _is_checked(item):
        item.config.stash[_BEFORE] = Resources.held_now()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail the test if resources remain that did not exist before the test."""
    result = yield
    if not _is_checked(item):
        return result
    deadline = time.monotonic() + _GRACE_SECONDS
    while leftovers := _leftovers(item.config):
        if time.monotonic() > deadline:
            item.config.stash[_KEPT] |= leftovers  # reported once; the next test did not cause it
            pytest.fail("the test left behind: " + "; ".join(leftovers.describe()), pytrace=False)
        time.sleep(0.01)
    return result


def _leftovers(config: pytest.Config) -> Resources:
    # the test may have restarted a server of the run, so its process ids are read again
    servers = {pid for server in config.stash[RUNNING_SERVERS] for pid in server.process_ids()}
    known = Resources(processes=frozenset(servers)) | config.stash[_KEPT] | config.stash[_BEFORE]
    return Resources.held_now() - known

"""Spark's Python worker, which collects garbage after each task, but not in frozen modules."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from asyncconsumer.spark.source import worker_process
from asyncconsumer.spark.source.source import KafkaSource

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def _new(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reset the state to that of a new process."""
    monkeypatch.setattr(worker_process, "_frozen_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.daemon", ModuleType("pyspark.daemon"))


@pytest.mark.usefixtures("worker")
def test_modules_of_a_worker_are_frozen_and_later_objects_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = ModuleType("loaded_before")
    KafkaSource({})
    assert gc.get_freeze_count() > 10_000
    assert not _is_tracked(before)
    later = ModuleType("created_by_a_task")  # not frozen, because it may become garbage
    KafkaSource({})
    assert _is_tracked(later)
    monkeypatch.setitem(sys.modules, "loaded_since", ModuleType("loaded_since"))
    KafkaSource({})
    assert not _is_tracked(later)


def _is_tracked(thing: object) -> bool:
    """Return whether the collector visits an object: `gc.get_objects` omits frozen ones.

    The freeze count is no measure of this: frozen objects that lose their last reference leave it.
    """
    return any(known is thing for known in gc.get_objects())


def test_no_object_is_frozen_outside_of_a_worker() -> None:
    KafkaSource({})
    assert gc.get_freeze_count() == 0

"""A worker of Spark's looks for garbage after each task, but not in what is loaded."""

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
    """As in a process that has just begun."""
    monkeypatch.setattr(worker_process, "_frozen_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.daemon", ModuleType("pyspark.daemon"))


@pytest.mark.usefixtures("worker")
def test_what_a_worker_has_loaded_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    KafkaSource({})
    first = gc.get_freeze_count()
    assert first > 10_000
    later: list[list[int]] = [[] for _ in range(1000)]  # of a task: it may become garbage
    KafkaSource({})
    assert gc.get_freeze_count() == first
    monkeypatch.setitem(sys.modules, "loaded_since", ModuleType("loaded_since"))
    KafkaSource({})
    assert gc.get_freeze_count() >= first + len(later)


def test_elsewhere_everything_is_looked_at() -> None:
    KafkaSource({})
    assert gc.get_freeze_count() == 0

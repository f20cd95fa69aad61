"""The JSON text of offsets: topics for everyone, and hidden facts for this source."""

import json
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from asyncconsumer.spark.source import offset_json
from asyncconsumer.spark.source.offsets import with_ids, with_start
from asyncconsumer.spark.source.worker_process import STREAM_RUNNER

pytestmark = pytest.mark.fast

TOPICS = {"b": {"0": 5, "10": 7}, "ü\t": {"0": 0}}
IDS = {"b": UUID(int=2**128 - 1), "ü\t": UUID(int=1)}


@pytest.mark.parametrize("ids", [{}, IDS, {"ü\t": UUID(int=1)}], ids=["none", "all", "some"])
@pytest.mark.parametrize("start", [None, {}, {"b": {"0": 3}}], ids=["later", "empty", "first"])
def test_text_has_topics_only_and_keeps_the_rest(
    ids: Mapping[str, UUID], start: dict[str, Any] | None
) -> None:
    offsets = with_ids(TOPICS if start is None else with_start(TOPICS, start), ids)
    text = offset_json.dumps(offsets)
    assert json.loads(text) == TOPICS
    assert offset_json.loads(text) == offsets
    assert offset_json.dumps(offset_json.loads(text)) == text  # otherwise Spark plans a micro-batch
    assert len(text.splitlines()) == 1  # Spark reads checkpoints by line


def test_first_batch_without_topics_keeps_its_start() -> None:
    offsets = with_start({}, {})
    text = offset_json.dumps(offsets)
    assert json.loads(text) == {}
    assert offset_json.loads(text) == offsets


@pytest.mark.parametrize("value", [TOPICS, {"_type": "ReadMaxRows", "max_rows": 3}, [1], None])
def test_other_values_are_plain_json(value: object) -> None:
    assert offset_json.dumps(value) == json.dumps(value)
    assert offset_json.loads(json.dumps(value)) == value
    assert offset_json.loads(json.dumps(value, indent=" " * 8).replace("\n", "")) == value


def test_visible_entries_are_read() -> None:
    offsets = with_ids(with_start(TOPICS, {"b": {"0": 3}}), IDS)
    assert offset_json.loads(json.dumps(offsets)) == offsets


@pytest.mark.parametrize(
    ("old", "new"), [('"b"', '"c"'), ('"b"', '"a": {"0": 1}, "b"'), ("\t", " "), ("\t", "")]
)
def test_hidden_facts_of_edited_text_are_not_used(old: str, new: str) -> None:
    edited = offset_json.dumps(with_ids(TOPICS, IDS)).replace(old, new, 1)
    assert offset_json.loads(edited) == json.loads(edited)


@pytest.mark.parametrize("name", [STREAM_RUNNER, "pyspark.daemon"])
def test_only_the_stream_runner_gets_this_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ModuleType("__main__")
    runner.__spec__ = ModuleSpec(name, None)
    vars(runner)["json"] = json
    monkeypatch.setitem(sys.modules, "__main__", runner)
    offset_json.install()
    assert (vars(runner)["json"].dumps is offset_json.dumps) == (name == STREAM_RUNNER)
    assert vars(runner)["json"].JSONDecodeError is json.JSONDecodeError

"""The JSON lines of the benchmarks."""

import json
import platform
from importlib.metadata import version

import pytest

from benchmarks._harness import print_lines
from benchmarks._promises import Result, tell

pytestmark = pytest.mark.fast


def test_each_line_has_the_versions_of_python_and_of_the_clients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_lines([{"case": "a"}, {"case": "b"}])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["case"] for line in lines] == ["a", "b"]
    for line in lines:
        assert line["versions"]["python"] == platform.python_version()
        assert line["versions"]["aiokafka"] == version("aiokafka")


def test_a_table_begins_with_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a bench", [Result("a case", "a contender", [{"records_per_s": 1.0}])], as_json=False)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"python {platform.python_version()}, aiokafka {version('aiokafka')}")

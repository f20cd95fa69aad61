"""The README's examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROGRAMS = [example for example in EXAMPLES if "asyncio.run(" in example]
TESTS = [example for example in EXAMPLES if "def test_" in example]


def test_every_example_is_a_program_or_a_test() -> None:
    assert len(PROGRAMS) + len(TESTS) == len(EXAMPLES) > 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs(program: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=120)


@pytest.mark.parametrize("example", TESTS)
def test_a_test_passes(example: str, pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makepyfile("from aiokafka import AIOKafkaProducer\n" + example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 1

"""The examples of docs/configuration.md, except the Python ones, which test_readme.py runs."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app
from asyncconsumer.config.external import ExternalOptions

pytestmark = pytest.mark.fast

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    return str(text)


def options(tmp_path: Path, suffix: str) -> dict[str, Any]:
    path = tmp_path / f"billing.{suffix}"
    path.write_text(example(suffix), encoding="utf-8")
    return ExternalOptions.read({}, path, environment={}).options


def test_documented_variables_set_options() -> None:
    variables = dict(line.split("=", 1) for line in example("sh").splitlines())
    values = ExternalOptions.read({}, environment=variables).options
    assert len(values) == len(variables) == 7
    assert values["check_crcs"] is True


def test_documented_files_set_options(tmp_path: Path) -> None:
    assert options(tmp_path, "toml")["fetch_max_wait_ms"] == 100
    properties = options(tmp_path, "properties")
    assert properties["sasl_plain_password"] == "secret"
    assert properties["ssl_cafile"] == "/etc/kafka/ca.pem"
    assert properties["partition_assignment_strategy"] == ["cooperative-sticky"]


def test_documented_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("billing.properties").write_text("\n\nfetch.min.bytes=many")
    variable, line = example("text").splitlines()
    with pytest.raises(ConfigError, match=f"^{re.escape(variable)}$"):
        ExternalOptions.read({}, environment={"ASYNCCONSUMER_BROKERS": "k"})
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        ExternalOptions.read({}, "billing.properties", environment={})


def test_documented_commands_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("billing.properties").write_text("bootstrap.servers=k")
    variables = {"ASYNCCONSUMER_BOOTSTRAP_SERVERS": "k"}
    commands = re.findall(r"\$ asyncconsumer (.*)", example("console"))
    assert len(commands) == 3
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command), env=variables)
        assert result.exit_code == 0, command

"""The wrong arguments of `asyncconsumer produce`, before it connects."""

import pytest
from typer.testing import CliRunner

from asyncconsumer.cli.app import app

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-H", "novalue"), 1, "--header 'novalue' must have the form NAME=VALUE."),
        (("-z", "zip", "--count", "1"), 2, "zip"),
        (("/nowhere/lines",), 2, "/nowhere/lines"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], code: int, message: str) -> None:
    result = CliRunner().invoke(app, ["produce", "-t", "orders", "-b", "k:1", *arguments])
    assert result.exit_code == code, result.output
    assert message in f"{result.output}{result.exception}"

"""`asyncconsumer asyncapi`: the document of an app as JSON and as YAML."""

import json
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner, Result

from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app
from asyncconsumer.cli.asyncapi import to_yaml

pytestmark = pytest.mark.fast

SHOP = '''
from asyncconsumer import ConsumerApp

app = ConsumerApp(bootstrap_servers="kafka:9092", group_id="billing")

@app.handler("orders", publish="billed")
async def bill(order: dict[str, int]) -> str:
    """Bill: an order."""
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new module with an app, in the current folder."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    return f"{name}:app"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["asyncapi", *arguments])


def test_json_and_yaml_have_the_same_content(shop: str, tmp_path: Path) -> None:
    as_json, as_yaml = (
        invoke(shop, "--title", "Shop"),
        invoke(shop, "--title", "Shop", "-o", "x.yml"),
    )
    assert (as_json.exit_code, as_yaml.exit_code) == (0, 0), as_json.output + as_yaml.output
    document = json.loads(as_json.stdout)
    assert document["info"]["title"] == "Shop"
    assert document["channels"].keys() == {"orders", "billed"}
    assert yaml.safe_load((tmp_path / "x.yml").read_text()) == document
    assert yaml.safe_load(invoke(shop, "--title", "Shop", "--format", "yaml").stdout) == document


def test_a_file_that_cannot_be_written_is_an_error(shop: str) -> None:
    result = invoke(shop, "-o", "no-such-folder/x.json")
    assert isinstance(result.exception, ConfigError)
    assert "no-such-folder/x.json cannot be written: No such file" in str(result.exception)


def test_any_json_survives_as_yaml() -> None:
    value = {
        "a b": [[], {}, [1, [2.5, None]], {"x": {"y": True}}],
        "no": "no: #1\n'\"é\u2028",
        "": "-",
        "1": [{"$ref": "#/x"}, {"-": "~"}],
        "^dlt\\.": {},
    }
    assert yaml.safe_load(to_yaml(value)) == value

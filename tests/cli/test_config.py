"""`asyncconsumer config`: effective options, their origins and their meaning."""

import json
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.testing import CliRunner, Result

from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app
from asyncconsumer.config import ConsumerOptions
from asyncconsumer.config.options import ProducerOptions

pytestmark = pytest.mark.fast

SECRET = "hunter2"


def invoke(*arguments: str, **variables: str) -> Result:
    environment = {f"ASYNCCONSUMER_{name.upper()}": value for name, value in variables.items()}
    return CliRunner().invoke(app, ["config", *arguments], env=environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "consumer.properties"
    path.write_text(
        "bootstrap.servers=k:9092\ngroup.id=billing\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config=x.PlainLoginModule required username="alice" password="{SECRET}";\n'
    )
    return path


def test_values_and_origins_are_printed_as_json(file: Path) -> None:
    result = invoke("show", "--config", str(file), "--json", group_id="other")
    assert result.exit_code == 0, result.output
    options = json.loads(result.stdout)
    assert options.keys() == get_type_hints(ConsumerOptions).keys()
    assert options["bootstrap_servers"] == {"value": "k:9092", "origin": f"{file}:1"}
    assert options["group_id"] == {"value": "other", "origin": "ASYNCCONSUMER_GROUP_ID"}
    assert options["sasl_plain_username"] == {"value": "alice", "origin": f"{file}:5"}
    assert options["sasl_plain_password"] == {"value": "(redacted)", "origin": f"{file}:5"}
    assert options["fetch_min_bytes"] == {"value": 1, "origin": "default"}
    assert options["revoke_grace_ms"] == {"value": 10_000, "origin": "default"}  # derived
    assert SECRET not in result.output


def test_a_table_starts_with_the_options_that_are_set(file: Path) -> None:
    result = invoke("show", config=str(file))
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    origins = [row.split("│")[3].strip() for row in rows]
    assert origins == sorted(origins, key=lambda origin: origin == "default")
    assert "(redacted)" in result.stdout
    assert SECRET not in result.output


def test_the_secret_of_an_oidc_client_is_redacted() -> None:
    prefix = "sasl_oauthbearer_"
    variables = {
        "bootstrap_servers": "k:9093",
        "group_id": "billing",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        f"{prefix}token_endpoint_url": "https://login.example/token",
        f"{prefix}client_credentials_client_id": "billing",
        f"{prefix}client_credentials_client_secret": SECRET,
    }
    result = invoke("show", "--json", **variables)
    assert result.exit_code == 0, result.output
    options = json.loads(result.stdout)
    assert options[f"{prefix}token_endpoint_url"]["value"] == "https://login.example/token"
    assert options[f"{prefix}client_credentials_client_id"]["value"] == "billing"
    assert options[f"{prefix}client_credentials_client_secret"]["value"] == "(redacted)"
    assert SECRET not in result.output


def test_options_of_groups_in_zookeeper_are_printed() -> None:
    zookeeper = {"group_protocol": "zookeeper", "zookeeper_connect": "zk", "group_id": "g"}
    result = invoke("show", "--json", **zookeeper, zookeeper_auth=f"alice:{SECRET}")
    assert result.exit_code == 0, result.output
    options = json.loads(result.stdout)
    assert options["bootstrap_servers"]["value"] == ""
    assert options["zookeeper_connection_timeout_ms"]["value"] == 6_000
    assert options["zookeeper_auth"]["value"] == "(redacted)"


def test_options_that_a_consumer_refuses_are_shown_before_the_error(file: Path) -> None:
    result = invoke("show", "--config", str(file), "--json", fetch_min_bytes="-1")
    assert json.loads(result.stdout)["fetch_min_bytes"]["value"] == -1
    assert isinstance(result.exception, ConfigError)
    assert "(`fetch_min_bytes` from ASYNCCONSUMER_FETCH_MIN_BYTES)" in str(result.exception)


def test_an_option_is_explained() -> None:
    for name in ("fetch_max_wait_ms", "fetch.max.wait.ms"):
        lines = [line.split() for line in invoke("explain", name).stdout.splitlines()]
        assert lines[0] == ["fetch_max_wait_ms"]
        assert lines[1][:4] == ["Longest", "time", "that", "a"]
        assert ["type:", "int"] in lines
        assert ["default:", "500"] in lines
        assert ["unit:", "milliseconds"] in lines
        assert ["environment:", "ASYNCCONSUMER_FETCH_MAX_WAIT_MS"] in lines
        assert ["file:", "fetch_max_wait_ms", "or", "fetch.max.wait.ms"] in lines
    fields = json.loads(invoke("explain", "fetch_max_wait_ms", "--json").stdout)
    assert (fields["default"], fields["unit"]) == ("500", "milliseconds")
    assert "only way to set it" in invoke("explain", "ssl_context").stdout
    assert "environment" not in invoke("explain", "ssl_context").stdout


@pytest.mark.parametrize(
    "name", sorted({*get_type_hints(ConsumerOptions), *get_type_hints(ProducerOptions)})
)
def test_every_option_is_explained(name: str) -> None:
    assert invoke("explain", name).exit_code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("brokers", "Did you mean `bootstrap_servers`?"),
        ("bootstrap.server", "Did you mean `bootstrap_servers`?"),
        ("key.deserializer", "pass `key_deserializer` as a keyword argument"),
    ],
)
def test_an_unknown_option_has_advice(name: str, message: str) -> None:
    result = invoke("explain", name)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)

"""Options by the names of the classic consumer, in files and on the command line."""

from dataclasses import fields
from pathlib import Path

import pytest

from asyncconsumer import ConfigError, Oidc
from asyncconsumer.cli.connect import connection_options, read_options
from asyncconsumer.cli.properties import parse_assignments, read_file
from asyncconsumer.config import ClassicConfig, ConnectionConfig

pytestmark = pytest.mark.fast


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--properties .*/none: No such file or directory"):
        read_file(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="the file is not UTF-8 text"):
        read_file(tmp_path / "binary")
    (tmp_path / "huge").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        read_file(tmp_path / "huge")
    (tmp_path / "good").write_text("\ufeffgroup.id=g\n", encoding="utf-8")
    assert read_file(tmp_path / "good") == {"group.id": "g"}


def test_assignments_are_split_into_names_and_values() -> None:
    assert parse_assignments(["a.b=1", "c = x=y ", "d="]) == {"a.b": "1", "c": "x=y", "d": ""}
    for wrong in ("a.b", "=1", ""):
        with pytest.raises(ConfigError, match="must have the form NAME=VALUE"):
            parse_assignments([wrong])


@pytest.mark.parametrize(
    "name",
    [
        "sasl.plain.password",
        "sasl.jaas.config",
        "zookeeper.auth",
        "zookeeper.sasl",
        "zookeeper_sasl",
        "Zookeeper.SASL",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl_keystore_passwd",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.login.private-key",
        "oauth.access.token",
    ],
)
def test_a_secret_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigError, match=r"set --properties FILE") as caught:
        parse_assignments([f"{name}=hunter2"])
    assert "hunter2" not in str(caught.value)


def test_options_that_are_hidden_in_logs_are_refused_as_arguments() -> None:
    hidden = [
        field.name.replace("_", ".")
        for field in fields(ClassicConfig)
        if field.init and not field.repr
    ]
    assert "zookeeper.sasl" in hidden
    for name in hidden:
        with pytest.raises(ConfigError):
            parse_assignments([f"{name}=-----BEGIN hunter2"])


def test_all_other_options_are_accepted_as_arguments() -> None:
    shown = [field.name.replace("_", ".") for field in fields(ClassicConfig) if field.repr]
    assert parse_assignments([f"{name}=1" for name in shown]).keys() == set(shown)


def test_a_secret_without_an_equals_sign_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="must have the form NAME=VALUE") as caught:
        parse_assignments(["sasl.plain.password hunter2"])
    assert "hunter2" not in str(caught.value)


def test_an_oidc_client_is_set_by_property_and_its_secret_by_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.properties"
    path.write_text("sasl.oauthbearer.client.credentials.client.secret=hunter2\n")
    assignments = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url=https://login.example/token",
        "sasl.oauthbearer.client.credentials.client.id=billing",
    ]
    options = read_options("k:9093", None, path, assignments)
    config = ConnectionConfig(**connection_options(options))
    provider = config.sasl_oauth_token_provider
    assert isinstance(provider, Oidc)
    assert (provider.token_url, provider.client_id) == ("https://login.example/token", "billing")
    assert "hunter2" not in repr(config)

"""Options from keywords, the environment and files: precedence, types, origins and errors."""

import os
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from asyncconsumer import ConfigError, Consumer, ConsumerApp
from asyncconsumer.config import ConsumerOptions, ProducerOptions
from asyncconsumer.config.conversion import OBJECTS
from asyncconsumer.config.external import OTHER_VARIABLES, PREFIX, ExternalOptions
from asyncconsumer.config.redaction import REDACTED, redacted

pytestmark = pytest.mark.fast

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
SECRET = "hunter2"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
JAAS = f'x.PlainLoginModule required username="alice" password="{SECRET}";'


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES - {f"{PREFIX}CONFIG"}:
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(**options: str) -> dict[str, str]:
    return {PREFIX + name.upper(): value for name, value in options.items()}


def from_environment(**options: str) -> dict[str, Any]:
    return ExternalOptions.read({}, environment=environment(**options)).options


def from_text(folder: Path, name: str, text: str) -> ExternalOptions:
    (folder / name).write_text(text, encoding="utf-8")
    return ExternalOptions.read({}, name, environment={})


# --- precedence ----------------------------------------------------------------------------------


def test_keywords_override_the_environment_and_the_file(folder: Path) -> None:
    (folder / "app.toml").write_text("client_id = 'f'\ngroup_id = 'f'\nfetch_min_bytes = 3\n")
    variables = environment(client_id="e", group_id="e")
    external = ExternalOptions.read({"client_id": "k"}, "app.toml", variables)
    assert external.options == {"client_id": "k", "group_id": "e", "fetch_min_bytes": 3}
    names = ("client_id", "group_id", "fetch_min_bytes", "check_crcs")
    assert [external.origin(name) for name in names] == [
        "keyword",
        "ASYNCCONSUMER_GROUP_ID",
        "app.toml:3",
        "default",
    ]


def test_a_variable_has_the_path_of_the_file(folder: Path) -> None:
    (folder / "a.properties").write_text("group.id=a")
    (folder / "b.properties").write_text("group.id=b")
    variables = {"ASYNCCONSUMER_CONFIG": "a.properties"}
    assert ExternalOptions.read({}, environment=variables).options == {"group_id": "a"}
    chosen = ExternalOptions.read({}, folder / "b.properties", environment=variables)
    assert chosen.options == {"group_id": "b"}
    with pytest.raises(ConfigError, match=r"^ASYNCCONSUMER_CONFIG=none\.toml: No such file"):
        ExternalOptions.read({}, environment={"ASYNCCONSUMER_CONFIG": "none.toml"})
    with pytest.raises(ConfigError, match=r"must end with \.toml or \.properties"):
        ExternalOptions.read({}, "config.yaml", environment={})


def test_consumers_and_apps_read_the_environment_and_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "app.toml").write_text("[asyncconsumer]\nfetch_min_bytes = 3\nclient_id = 'file'")
    monkeypatch.setenv("ASYNCCONSUMER_BOOTSTRAP_SERVERS", "a:1,b:2")
    monkeypatch.setenv("ASYNCCONSUMER_GROUP_ID", "variable")
    monkeypatch.setenv("ASYNCCONSUMER_CLIENT_ID", "variable")
    consumer = Consumer.from_env("orders", group_id="keyword", value_deserializer=str)
    assert consumer.config.connection.bootstrap_servers == "a:1,b:2"
    assert consumer.config.member.group_id == "keyword"
    assert consumer.config.fetch.fetch_min_bytes == 1
    consumer = Consumer.from_config("app.toml", "orders", pattern=None)
    assert consumer.config.fetch.fetch_min_bytes == 3
    assert consumer.config.connection.client_id == "variable"
    assert consumer.config.member.group_id == "variable"
    assert ConsumerApp.from_env(shutdown_grace_ms=5).shutdown_grace_ms == 5
    assert ConsumerApp.from_config(folder / "app.toml", tracing=False).shutdown_grace_ms == 20_000
    monkeypatch.delenv("ASYNCCONSUMER_GROUP_ID")
    with pytest.raises(ConfigError, match="group_id"):
        ConsumerApp.from_env()
    ConsumerApp.from_env(group_id="keyword")


# --- values --------------------------------------------------------------------------------------


def test_text_becomes_numbers_booleans_and_choices() -> None:
    assert from_environment(
        fetch_min_bytes=" 17 ",
        check_crcs="FALSE",
        retry_timeout_ms="5",
        security_protocol="sasl_ssl",
        group_protocol="CONSUMER",
        stop_at="end",
        partition_assignment_strategy="org.apache.kafka.clients.consumer.StickyAssignor, range",
        sasl_plain_password=" ends with a space ",
        client_rack="",
    ) == {
        "fetch_min_bytes": 17,
        "check_crcs": False,
        "retry_timeout_ms": 5,
        "security_protocol": "SASL_SSL",
        "group_protocol": "consumer",
        "stop_at": "end",
        "partition_assignment_strategy": ["sticky", "range"],
        "sasl_plain_password": " ends with a space ",
    }


def test_toml_values_keep_their_types(folder: Path) -> None:
    text = "bootstrap_servers = ['a', 'b']\ncheck.crcs = false\nfetch_min_bytes = 5\n"
    text += "max_records = '7'\npartition_assignment_strategy = ['sticky']"
    assert from_text(folder, "a.toml", text).options == {
        "bootstrap_servers": ["a", "b"],
        "check_crcs": False,
        "fetch_min_bytes": 5,
        "max_records": 7,
        "partition_assignment_strategy": ["sticky"],
    }


@pytest.mark.parametrize("name", sorted(get_type_hints(ConsumerOptions).keys() - OBJECTS))
def test_every_option_has_both_spellings(folder: Path, name: str) -> None:
    values = {bool: "true", int: "5", int | None: "5"}
    others = {"stop_at": "end", "sasl_oauth_token_provider": "tests.config.test_oauth:token"}
    value = others.get(name) or values.get(get_type_hints(ConsumerOptions)[name], "x")
    for spelling in (name, name.replace("_", ".")):
        external = from_text(folder, "a.properties", f"{spelling}={value}")
        assert external.options.keys() == {name}
    assert from_environment(**{name: value}).keys() == {name}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_must_be_passed_as_keywords(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` is a Python object. Pass it as a keyword"):
        from_environment(**{name: "x"})


def test_java_keys_of_tls_and_login_are_converted(folder: Path) -> None:
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f"sasl.jaas.config={JAAS}",
        "ssl.truststore.type=PEM",
        "ssl.truststore.location=/ca.pem",
        "ssl.keystore.certificate.chain=" + PEM.replace("\n", "\\n"),
        "ssl.keystore.key=" + PEM.replace("\n", " \\\n  "),
        "",
        "ssl.key.password=pass",
        "ssl.endpoint.identification.algorithm=https",
    ]
    external = from_text(folder, "a.properties", "\n".join(lines))
    assert external.options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": PEM.strip(),
        "ssl_keyfile": PEM.strip(),
        "ssl_password": "pass",
    }
    assert external.origin("sasl_plain_password") == "a.properties:3"
    assert external.origin("ssl_cafile") == "a.properties:5"
    assert SECRET not in repr(external)
    text = "ssl.truststore.certificates=x\nssl.keystore.type=PEM\nssl.keystore.location=/k.pem"
    assert from_text(folder, "a.properties", text).options == {
        "ssl_cafile": "x",
        "ssl_certfile": "/k.pem",
    }


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nfetch.min.bytes=many", "a.properties:2: `fetch_min_bytes` must be a whole number"),
        ("check.crcs=yes", "a.properties:1: `check_crcs` must be true or false, got 'yes'"),
        ("bootstrap.server=k", "'bootstrap.server'. Did you mean `bootstrap_servers`?"),
        ("bootstrap_server=k", "'bootstrap_server'. Did you mean `bootstrap_servers`?"),
        ("brokers=k", "unknown option 'brokers'. Did you mean `bootstrap_servers`?"),
        ("group.id=a\ngroup_id=b", "a.properties:2: `group_id` is already set by a.properties:1"),
        ("stop.at=5", "`stop_at` must be end"),
        ("ssl.context=x", "a.properties:1: `ssl_context` is a Python object"),
        ("ssl.cafile=", "a.properties:1: `ssl_cafile` is empty. Set it or remove it"),
        ("acks=1", "A producer always waits for all in-sync replicas"),
        ("enable.idempotence=false", "Producers are always idempotent"),
        ("key.deserializer=x", "`key.deserializer` has no meaning for this client. Remove it, and"),
        ("metrics.num.samples=2", "`status()` and `events()` report measurements"),
        ("max.poll.records=5", "`max_buffered_bytes` limits the data fetched ahead"),
        ("sasl.login.callback.handler.class=x", "or `sasl_oauth_token_provider`"),
        ("ssl.truststore.location=/a.jks", "a.properties:1: `ssl.truststore.location` is a store"),
        ("ssl.keystore.type=JKS", "and set `ssl.keystore.type` to PEM, or set `ssl_certfile`"),
        ("ssl.truststore.password=x", "`ssl.truststore.password` has no meaning for PEM files"),
        ("ssl.endpoint.identification.algorithm=", "must be https, because host names are"),
        ("ssl.cipher.suites=x", "'ssl.cipher.suites'. Set `ssl_context` to an ssl.SSLContext"),
        ("sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=" + JAAS, "but `sasl.mechanism` is SCRAM"),
    ],
)
def test_an_error_names_the_line_and_the_remedy(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_text(folder, "a.properties", text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a.properties:")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("brokers", "k", "Did you mean `bootstrap_servers`?"),
        ("bootstrap_server", "k", "Did you mean `bootstrap_servers`?"),
        ("fetch_min_bytes", "1.5", "`fetch_min_bytes` must be a whole number, got '1.5'"),
        ("sasl_plain_password", "", "`sasl_plain_password` is empty"),
        ("sasl_jaas_config", SECRET, "`sasl.jaas.config` cannot be parsed"),
        ("value_deserializer", "json", "pass `value_deserializer` as a keyword argument"),
    ],
)
def test_an_error_names_the_variable(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment(**{name: value})
    assert str(caught.value).startswith(f"ASYNCCONSUMER_{name.upper()}: ")
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssl_password = 12345", "`ssl_password` must be text in quotes, got a value of type int"),
        ("sasl.jaas.config = 12345", "`sasl.jaas.config` must be text"),
        ("fetch_min_bytes = true", "`fetch_min_bytes` must be a whole number"),
        ("check_crcs = 1", "`check_crcs` must be true or false"),
        ("bootstrap_servers = [12345]", "`bootstrap_servers` must be a list of texts, or text"),
    ],
)
def test_a_wrong_type_in_toml_is_reported_with_its_line(
    folder: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_text(folder, "a.toml", f"# comment\n{text}")
    assert f"a.toml:2: {message}" in str(caught.value)
    assert "12345" not in str(caught.value)


def test_an_error_names_the_origins_of_the_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_BOOTSTRAP_SERVERS", "k")
    monkeypatch.setenv("ASYNCCONSUMER_FETCH_MAX_WAIT_MS", "50000")
    (folder / "a.toml").write_text("\nrequest_timeout_ms = 40000\nenable_auto_commit = false")
    with pytest.raises(ConfigError) as caught:
        Consumer.from_config("a.toml", "orders")
    assert str(caught.value).endswith(
        "(`fetch_max_wait_ms` from ASYNCCONSUMER_FETCH_MAX_WAIT_MS, "
        "`request_timeout_ms` from a.toml:2)"
    )
    with pytest.raises(ConfigError, match=r"\(`enable_auto_commit` from a.toml:3\)"):
        ConsumerApp.from_config("a.toml", group_id="g")
    with pytest.raises(ConfigError, match=r"would time out \(`request_timeout_ms` from a.toml:2\)"):
        Consumer.from_config("a.toml", "orders", fetch_max_wait_ms=60_000)
    with pytest.raises(ConfigError, match=r"got 0$"):  # only keywords are wrong
        Consumer.from_env("orders", session_timeout_ms=0)


def test_a_private_key_that_is_not_recognised_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_BOOTSTRAP_SERVERS", "k")
    monkeypatch.setenv("ASYNCCONSUMER_SECURITY_PROTOCOL", "SSL")
    for key in (f"'{PEM}'", "MC4CAQAwBQYDK2VwBCIEI" + SECRET * 6):
        monkeypatch.setenv("ASYNCCONSUMER_SSL_CERTFILE", key)
        with pytest.raises(ConfigError, match="`ssl_certfile` cannot be read") as caught:
            Consumer.from_env("orders")
        assert SECRET not in str(caught.value)
        assert redacted("ssl_keyfile", key) == REDACTED
    assert redacted("ssl_keyfile", "/etc/kafka/client.pem") == "/etc/kafka/client.pem"


def test_the_variables_of_this_project_are_options_or_listed() -> None:
    names = {
        name
        for path in (ROOT / "asyncconsumer").rglob("*.py")
        for name in re.findall(r"\bASYNCCONSUMER_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    hints = get_type_hints(ConsumerOptions) | get_type_hints(ProducerOptions)
    options = {PREFIX + name.upper() for name in hints}
    assert names - options <= OTHER_VARIABLES
    assert options.isdisjoint(OTHER_VARIABLES)

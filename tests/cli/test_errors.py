"""Invalid command lines: one sentence, and the exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asyncconsumer import ConfigError
from asyncconsumer.cli.app import app

pytestmark = pytest.mark.fast

PROGRAM = [sys.executable, "-c", "from asyncconsumer.cli import main; main()"]
NOWHERE = ["--zookeeper", "127.0.0.1:1", "--property", "zookeeper.connection.timeout.ms=200"]
HERE = ["--zookeeper", "127.0.0.1:1", "--group", "g"]


def problem(*arguments: str) -> str:
    """Return the error of these arguments."""
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*HERE], "Set exactly one of topics"),
        ([*HERE, "--topic", "t", "--whitelist", "t"], "got topics and --whitelist"),
        ([*HERE, "--whitelist", "t", "--blacklist", "t"], "got --whitelist and --blacklist"),
        ([*HERE, "--whitelist", "("], "Whitelist('(') is not a regular expression"),
        ([*HERE, "--blacklist", "*"], "Blacklist('*') is not a regular expression"),
        ([*HERE, "--topic", "a/b"], "topic 'a/b' is invalid"),
        ([*HERE, "--topic", "t", "--format", "%q"], "--format '%q' has the unknown code '%q'"),
        (["--topic", "t", "--group", "g"], "No broker is known"),
        (["-b", "k", "--blacklist", "t"], "--blacklist needs --zookeeper"),
        (["--topic", "t", "--zookeeper", "z"], "`group.id` is missing. Set --group"),
        (["--bootstrap-servers", "k"], "No topic is named"),
        (["-t", "t", "-b", "k", "--from", "x"], "--from 'x' must be"),
        (["-t", "t"], "No broker is known"),
        (["-t", "t", "-b", "k", "--tail", "1", "--from", "1"], "only one of --from and --tail"),
        (["-t", "t", "-b", "k", "-e", "--until", "5"], "only one of --until and -e"),
        (["-t", "t", "-b", "k", "--assignor", "range"], "--assignor needs --zookeeper"),
        (["-t", "t", "-b", "k", "--streams", "2"], "--streams needs --zookeeper"),
        (["-t", "t", "-b", "k", "--grep", "["], "--grep '[' is not a pattern"),
        ([*HERE, "-t", "t", "-e"], "--until does not work with groups in ZooKeeper"),
        ([*HERE, "-t", "t", "--tail", "0"], "--tail does not work with groups in ZooKeeper"),
        ([*HERE, "-t", "t", "--parquet", "f"], "--parquet does not work with groups in Zoo"),
        (["--topic", "t", "--zookeeper", "z:a", "--group", "g"], "`zookeeper_connect` has 'z:a'"),
        (["--topic", "t", "--zookeeper", "z", "--group", "a/b"], "`group_id` must have only"),
        (
            [*HERE, "--topic", "t", "--property", "zookeeper.sesion.timeout.ms=1"],
            "'zookeeper.sesion.timeout.ms'. Did you mean `zookeeper.session.timeout.ms`?",
        ),
        (
            [*HERE, "--topic", "t", "--property", "fetch.min.bytes=many"],
            "`fetch.min.bytes` must be a whole number, got 'many'",
        ),
        (
            [*HERE, "--topic", "t", "--property", "sasl.plain.password=hunter2"],
            "--property sasl.plain.password is a secret",
        ),
        (
            [*HERE, "--topic", "t", "--property", "ssl.context=x"],
            "`ssl.context` is a Python object",
        ),
        ([*HERE, "--topic", "t", "--properties", "none"], "--properties none: No such file"),
    ],
)
def test_consume_reports_invalid_arguments(arguments: list[str], message: str) -> None:
    assert message in problem("consume", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "a/b", "--zookeeper", "z"], "`group_id` must have only"),
        (["describe", "g"], "No broker is known"),
        (["list", "--zookeeper", ""], "`zookeeper.connect` is missing"),
        (["reset", "g", "--zookeeper", "z", "--topic", "t", "--to", "x"], "--to 'x' must be"),
        (
            ["reset", "g", "--zookeeper", "z", "--topic", "t:x", "--to", "1"],
            "--topic 't:x' must list",
        ),
        (["migrate", "g", "--zookeeper", "z", "--from", "kafka", "--to", "kafka"], "Name two"),
        (["reset", "g", "-b", "k", "--to", "1", "--force"], "--force needs --zookeeper"),
        (["describe", "g", "-b", "k", "--offsets-storage", "dual"], "--offsets-storage needs"),
        (["list", "-b", "k", "--property", "sasl.plain.password=x"], "is a secret"),
        (["reset", "g", "--zookeeper", "z", "--to", "1", "--from-file", "f"], "exactly one of"),
    ],
)
def test_groups_reports_invalid_arguments(arguments: list[str], message: str) -> None:
    assert message in problem("groups", *arguments)


def test_the_environment_can_name_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCCONSUMER_ZOOKEEPER_CONNECT", "from-the-environment:bad")
    assert "'from-the-environment:bad'" in problem("groups", "describe", "g")
    assert "'from-the-environment:bad'" in problem("consume", "t", "--group", "g")
    assert "'from-an-option:bad'" in problem("groups", "list", "--zookeeper", "from-an-option:bad")
    monkeypatch.setenv("ASYNCCONSUMER_GROUP_ID", "a/b")
    assert "`group_id` must have only" in problem("consume", "t", "--zookeeper", "z")


def test_wrong_usage_exits_with_code_2() -> None:
    for arguments in (["consume", "t", "-b", "k", "--grep", "["], ["consume", "--unknown"]):
        result = subprocess.run(
            [*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == 2, result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("url", ["https://user:sesame@h:8081", "http://h:1,http://sesame@h:2/a"])
def test_a_url_with_a_login_is_refused_on_the_command_line_and_not_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["consume", "t", "-b", "k", "--format", "%q", "--value-format", "avro"]
    message = problem(*arguments, "--registry", url)
    assert "SCHEMA_REGISTRY_URL" in message
    assert "sesame" not in message
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", url)
    assert "unknown code" in problem(*arguments)
    assert "unknown code" in problem(*arguments, "--registry", "https://h:8081/a@b")


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("zookeeper.connect=from-the-file:bad\ngroup.id=g\n")
    values = ["consume", "--topic", "t", "--properties", str(file)]
    assert "'from-the-file:bad'" in problem(*values)
    assert "'from-a-property:bad'" in problem(
        *values, "--property", "zookeeper.connect=from-a-property:bad"
    )
    assert "'from-an-option:bad'" in problem(
        *values, "--property", "zookeeper.connect=x:1", "--zookeeper", "from-an-option:bad"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", *NOWHERE, "--group", "g", "--topic", "t"],
        ["groups", "list", "--zookeeper", "127.0.0.1:1", "--properties", "quick.properties"],
    ],
)
def test_an_unreachable_zookeeper_is_reported_on_one_line(
    arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "quick.properties").write_text("zookeeper.connection.timeout.ms=200\n")
    result = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: no session with ZooKeeper at 127.0.0.1:1 within 0.2 s")
    assert "Check `zookeeper_connect`" in line


def test_consume_does_not_need_the_packages_of_servers() -> None:
    code = (
        "import sys; sys.modules.update(jgo=None, trustme=None, psutil=None, platformdirs=None, "
        "pyspark=None);"
        "sys.argv = ['asyncconsumer', *sys.argv[1:]]; from asyncconsumer.cli import main; main()"
    )
    for arguments, ended, message in (
        (["consume", "--help"], 0, ""),
        (["servers", "up"], 1, "asyncconsumer: this command needs the package "),
        (
            ["spark-package", "x.zip"],
            1,
            "asyncconsumer: this command needs the package pyspark. ",
        ),
    ):
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (result.returncode, result.stderr[: len(message)]) == (ended, message), result.stderr

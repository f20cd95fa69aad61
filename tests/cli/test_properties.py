"""Options by the classic consumer's names: files as Java reads them, and the command line."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import ConfigError
from asyncconsumer.cli.properties import from_options, parse, read_file
from asyncconsumer.config import ClassicConfig

pytestmark = pytest.mark.fast

CLASSIC = """\
# Licensed ...
! also a comment
zookeeper.connect=127.0.0.1:2181,\\
                  127.0.0.2:2181
  group.id = billing
fetch.min.bytes : 17
consumer.id\tone

empty=
alone
with\\ blank\\==a\\=b\\u00e4\\n
path=C:\\\\dir\\\\
#not.this=1\\
last = twice
last = counts"""


def test_a_file_is_read_as_java_reads_it() -> None:
    expected = {
        "zookeeper.connect": "127.0.0.1:2181,127.0.0.2:2181",
        "group.id": "billing",
        "fetch.min.bytes": "17",
        "consumer.id": "one",
        "empty": "",
        "alone": "",
        "with blank=": "a=bä\n",
        "path": "C:\\dir\\",
        "last": "counts",
    }
    assert parse(CLASSIC) == expected
    assert parse(CLASSIC.replace("\n", "\r\n")) == expected
    assert parse("a=1\\") == {"a": "1"}
    assert parse("a=1,\\\n#2") == {"a": "1,#2"}  # what goes on is no comment


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse(text)


PLAIN = st.from_regex(r"[a-z.]{1,10}", fullmatch=True)


@given(st.dictionaries(PLAIN, PLAIN))
def test_what_is_written_plainly_is_read_back(properties: dict[str, str]) -> None:
    written = "".join(f"{name}={value}\n" for name, value in properties.items())
    assert parse(written) == properties


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--properties .*/none: No such file or directory"):
        read_file(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        read_file(tmp_path / "binary")
    (tmp_path / "huge").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        read_file(tmp_path / "huge")
    (tmp_path / "good").write_text("\ufeffgroup.id=g\n", encoding="utf-8")
    assert read_file(tmp_path / "good") == {"group.id": "g"}


def test_the_command_line_gives_names_and_values() -> None:
    assert from_options(["a.b=1", "c = x=y ", "d="]) == {"a.b": "1", "c": "x=y", "d": ""}
    for wrong in ("a.b", "=1", ""):
        with pytest.raises(ConfigError, match="give a name and a value"):
            from_options([wrong])


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
    with pytest.raises(ConfigError, match=r"give --properties FILE") as caught:
        from_options([f"{name}=hunter2"])
    assert "hunter2" not in str(caught.value)


def test_every_option_that_is_kept_out_of_logs_is_kept_off_the_command_line() -> None:
    hidden = [one.name.replace("_", ".") for one in fields(ClassicConfig) if not one.repr]
    assert "zookeeper.sasl" in hidden
    for name in hidden:
        with pytest.raises(ConfigError):
            from_options([f"{name}=hunter2"])


def test_every_other_option_may_be_given_there() -> None:
    shown = [one.name.replace("_", ".") for one in fields(ClassicConfig) if one.repr]
    assert from_options([f"{name}=1" for name in shown]).keys() == set(shown)


def test_a_secret_without_an_equals_sign_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="give a name and a value") as caught:
        from_options(["sasl.plain.password hunter2"])
    assert "hunter2" not in str(caught.value)

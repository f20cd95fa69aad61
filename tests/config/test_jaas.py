"""Logins of Java's `sasl.jaas.config`."""

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.config.jaas import parse_jaas

pytestmark = pytest.mark.fast

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login(text: str) -> tuple[str, str]:
    options = parse_jaas(text)
    return options["sasl_plain_username"], options["sasl_plain_password"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ('username="alice" password="a;b=c"', ("alice", "a;b=c")),
        ("password='it is' username=alice", ("alice", "it is")),
        (r'username="a\"b" password="c\\d\te\101\q"', ('a"b', "c\\d\teAq")),
        ('\n  username="alice"\n  password="p"\n', ("alice", "p")),
    ],
)
@pytest.mark.parametrize("module", [PLAIN, SCRAM, "PlainLoginModule"])
def test_a_username_and_a_password_are_parsed(
    module: str, values: str, expected: tuple[str, str]
) -> None:
    assert login(f" {module} required {values};") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be parsed"),
        ("hunter2", "cannot be parsed"),
        (f'{PLAIN} required username="a" password="hunter2"', "cannot be parsed"),
        (f'{PLAIN} required username="a" password="hunter2;', "cannot be parsed"),
        (f'{PLAIN} required username="a" password="hunter2"; more', "cannot be parsed"),
        (f'{PLAIN} required password="hunter2";', "must have a username and a password"),
        (f'{SCRAM} required username="a" password="hunter2" tokenauth=true;', "no other options"),
        ('my.hunter2 required username="a" password="hunter2";', "an unknown login module"),
        (
            'x.OAuthBearerLoginModule required password="hunter2";',
            "set `sasl_oauth_token_provider`",
        ),
        ('x.Krb5LoginModule required keyTab="hunter2";', "Set `sasl_kerberos_service_name`"),
    ],
)
def test_an_invalid_text_is_refused_and_not_quoted(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_a_login_module_of_another_mechanism_is_refused() -> None:
    text = f'{SCRAM} required username="a" password="b";'
    parse_jaas(text, "SCRAM-SHA-256")
    with pytest.raises(ConfigError, match=r"ScramLoginModule, but `sasl\.mechanism` is PLAIN"):
        parse_jaas(text, "PLAIN")

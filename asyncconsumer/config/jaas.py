"""A parser of Java's `sasl.jaas.config`.

Its errors never contain the parsed text, which has a password.
"""

import re
from typing import Final

from asyncconsumer.errors import ConfigError

_MODULE: Final = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE
)
_OPTION: Final = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""", re.DOTALL
)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MECHANISMS: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}
_CLIENT: Final = {
    "clientId": "sasl_oauthbearer_client_credentials_client_id",
    "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
_EXTENSION: Final = "extension_"
_TICKET_OPTIONS: Final = frozenset(
    ("debug", "doNotPrompt", "refreshKrb5Config", "renewTGT", "serviceName", "useTicketCache")
)


def parse_jaas(text: str, mechanism: object = None) -> dict[str, str]:
    """Return the login options in a `sasl.jaas.config` as options of this package.

    Raise ConfigError if the login module has no counterpart, or is not for `mechanism`.
    """
    module, values = _parse(text)
    if module not in _MECHANISMS:
        raise ConfigError(
            "`sasl.jaas.config` has an unknown login module. The modules are "
            f"{', '.join(_MECHANISMS)}"
        )
    mechanisms = _MECHANISMS[module]
    if mechanism is not None and mechanism not in mechanisms:
        raise ConfigError(
            f"`sasl.jaas.config` has a {module}, but `sasl.mechanism` is {mechanism}. Set "
            f"`sasl.mechanism` to {' or '.join(mechanisms)}"
        )
    if module == "OAuthBearerLoginModule":
        return _client(values)
    if module == "Krb5LoginModule":
        return _ticket(values)
    if values.keys() != {"username", "password"}:
        raise ConfigError(
            f"`sasl.jaas.config` with a {module} must have a username and a password, and no other "
            "options"
        )
    return {
        "sasl_plain_username": values["username"],
        "sasl_plain_password": values["password"],
    }


def _client(values: dict[str, str]) -> dict[str, str]:
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in values.items()
        if name.startswith(_EXTENSION)
    }
    if values.keys() - _CLIENT.keys() - {_EXTENSION + name for name in extensions}:
        raise ConfigError(
            "`sasl.jaas.config` with an OAuthBearerLoginModule may have clientId, clientSecret, "
            "scope and extension_NAME only. For other logins remove it, and set "
            "`sasl_oauth_token_provider`"
        )
    options = {option: values[name] for name, option in _CLIENT.items() if name in values}
    if extensions:
        pairs = (f"{name}={value}" for name, value in extensions.items())
        options["sasl_oauthbearer_extensions"] = ",".join(pairs)
    return options


def _ticket(values: dict[str, str]) -> dict[str, str]:
    if values.keys() - _TICKET_OPTIONS or values.get("useTicketCache", "").lower() != "true":
        raise ConfigError(
            "`sasl.jaas.config` with a Krb5LoginModule must have useTicketCache=true and no "
            "keytab. Set `sasl_kerberos_service_name`, and create a ticket with kinit or set "
            "KRB5_CLIENT_KTNAME to a keytab"
        )
    name = values.get("serviceName")
    return {} if name is None else {"sasl_kerberos_service_name": name}


def _parse(text: str) -> tuple[str, dict[str, str]]:
    """Return the class name of the login module, without its package, and the module's options."""
    values: dict[str, str] = {}
    if (head := _MODULE.match(text)) is not None:
        position = head.end()
        while (option := _OPTION.match(text, position)) is not None:
            quoted = option[2] if option[2] is not None else option[3]
            values[option[1]] = option[4] if quoted is None else _ESCAPE.sub(_unescaped, quoted)
            position = option.end()
        if _END.fullmatch(text, position):
            return head[1].rpartition(".")[2], values
    raise ConfigError(
        "`sasl.jaas.config` cannot be parsed. It must have the form: MODULE required "
        'username="..." password="...";'
    )


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)

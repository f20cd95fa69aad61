"""The conversion of option values from text, and from the types of TOML."""

from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from asyncconsumer.config.classic import PROTECTING
from asyncconsumer.config.java_keys import ASSIGNORS, refuse_java_key
from asyncconsumer.config.option_docs import option_docs
from asyncconsumer.config.options import ConsumerOptions, ProducerOptions
from asyncconsumer.config.redaction import is_secret
from asyncconsumer.config.setting import Setting
from asyncconsumer.config.text_values import parse_bool, parse_int
from asyncconsumer.config.tokens import import_token_source
from asyncconsumer.config.validation import refuse_unknown
from asyncconsumer.errors import ConfigError

OBJECTS: Final = ("ssl_context", "zookeeper_ssl_context")
"""Options that are Python objects."""
_PROVIDER_RULE: Final = (
    "`sasl_oauth_token_provider` must be 'module:name' of a function that returns a token or of a "
    "token provider, such as asyncconsumer:MskIam"
)
_LISTS: Final = ("bootstrap_servers", "allowed_hosts", "partition_assignment_strategy")


def convert(setting: Setting) -> Setting | None:
    """Return `setting` with its value converted to the option's type, or None if its text is empty.

    Raise ConfigError for an unknown name and for text that is not of the option's type. Raise it
    also for an empty text of a security option. Such a text most likely comes from a variable that
    is not set.
    """
    with setting.named_in_errors():
        check_name(setting.name)
        name = setting.name.replace(".", "_")
        if name in OBJECTS:
            raise ConfigError(f"`{name}` is a Python object. Pass it as a keyword argument instead")
        if not isinstance(setting.value, str):
            return setting.renamed(name, _from_toml(name, setting.value))
        if setting.value.strip():
            return setting.renamed(name, _from_text(name, setting.value))
        if name in PROTECTING:
            raise ConfigError(f"`{name}` is empty. Set it or remove it")
        return None


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` is the name of an option, with dots or underscores.

    The message has advice for a property of the Java client, and otherwise the closest option.
    """
    known = option_docs(ConsumerOptions).keys() | option_docs(ProducerOptions).keys()
    if name.replace(".", "_") not in known:
        refuse_java_key(name)
        refuse_unknown([name], also=known)


def _from_text(name: str, value: str) -> object:
    types = _types()[name]
    text = value if is_secret(name) else value.strip()  # a password may end with a space
    if bool in types:
        return parse_bool(name, text)
    if int in types:
        return parse_int(name, text)
    if name == "partition_assignment_strategy":
        return _assignors(text.split(","))
    if name == "sasl_oauth_token_provider":
        return import_token_source(_PROVIDER_RULE, text.strip())
    if name == "stop_at" and text.lower() != "end":
        raise ConfigError("`stop_at` must be end. Pass offsets as a keyword argument")
    choices = {choice.lower(): choice for choice in types if isinstance(choice, str)}
    return choices.get(text.lower(), text)


def _from_toml(name: str, value: object) -> object:
    """Return a TOML value for the option `name`: a number, a boolean or a list of strings.

    Raise ConfigError for other types. The error does not contain the value, which may be secret.
    """
    if name in _LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _assignors(value) if name == "partition_assignment_strategy" else value
    if type(value) in (bool, int) and type(value) in _types()[name]:
        return value
    expected = "a list of texts, or text" if name in _LISTS else "text in quotes"
    for kind, description in ((bool, "true or false"), (int, "a whole number")):
        if kind in _types()[name]:
            expected = description
    raise ConfigError(f"`{name}` must be {expected}, got a value of type {type(value).__name__}")


def _assignors(names: Sequence[str]) -> list[str]:
    return [ASSIGNORS.get(name.strip(), name.strip()) for name in names]


@cache
def _types() -> Mapping[str, tuple[object, ...]]:
    """Return a mapping from each option to its types and its allowed values."""
    hints = get_type_hints(ProducerOptions) | get_type_hints(ConsumerOptions)
    return {name: tuple(_members(hint)) for name, hint in hints.items()}


def _members(hint: Any) -> list[object]:  # noqa: ANN401 - any type
    if get_origin(hint) in (Union, UnionType):
        return [member for part in get_args(hint) for member in _members(part)]
    return list(get_args(hint)) if get_origin(hint) is Literal else [hint]

"""Checks of option values and of option names."""

import difflib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address

DEFAULT_PORT: Final = 9092
_SERVERS: Final = "bootstrap_servers"
_SYNONYMS: Final[Mapping[str, str]] = {
    "bootstrap": _SERVERS,
    "broker": _SERVERS,
    "broker_list": _SERVERS,
    "brokers": _SERVERS,
    "hosts": _SERVERS,
    "metadata_broker_list": _SERVERS,
    "servers": _SERVERS,
    "auto_commit": "enable_auto_commit",
    "consumer_group": "group_id",
    "deserializer": "value_deserializer",
    "group": "group_id",
    "offset_reset": "auto_offset_reset",
    "zk": "zookeeper_connect",
    "zk_hosts": "zookeeper_connect",
    "zookeeper": "zookeeper_connect",
    "zookeeper_hosts": "zookeeper_connect",
    "zookeepers": "zookeeper_connect",
}


def whole_number(name: str, value: object, least: int) -> None:
    """Raise ConfigError unless the value is an integer from `least` to 2**31 - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise ConfigError(
            f"`{name}` must be a whole number from {least} to {2**31 - 1}, got {value!r}"
        )


def text(name: str, value: object) -> None:
    """Raise ConfigError unless the value is a string."""
    if not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a string, got {value!r}")


def tls_context(name: str, value: object) -> None:
    """Raise ConfigError unless the value is an SSL context or None. False is refused, too."""
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise ConfigError(
            f"`{name}` must be an ssl.SSLContext, for example ssl.create_default_context(), got "
            f"{value!r}"
        )


def one_of(option: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ConfigError unless the value is in `allowed`.

    The message suggests the nearest allowed value.
    """
    if value in allowed:
        return
    spelled = {choice.upper().replace("_", "-"): choice for choice in allowed}
    near = difflib.get_close_matches(str(value).upper().replace("_", "-"), spelled, 1, 0.4)
    hint = f". Did you mean {spelled[near[0]]}?" if near else ""
    raise ConfigError(f"`{option}` must be one of {', '.join(allowed)}, got {value!r}{hint}")


def refuse_unknown(
    options: Iterable[str], *kinds: type[object], also: Iterable[str] = (), prefix: str = ""
) -> None:
    """Raise ConfigError for the first unknown option. The message suggests the nearest known name.

    Known names are the fields of the dataclasses `kinds`, and those in `also`. Messages show names
    with `prefix`.
    """
    known = {*also, *(field.name for kind in kinds for field in fields(kind) if field.init)}  # type: ignore[arg-type] # dataclasses
    spelled = {_plain(name): f"{prefix}{name}" for name in sorted(known)}
    for name in options:
        if name in known:
            continue
        nearest = _nearest(_plain(name), spelled)
        hint = (
            f"Did you mean `{nearest}`?"
            if nearest
            else f"The options are {', '.join(spelled.values())}"
        )
        raise ConfigError(f"unknown option {prefix + name!r}. {hint}")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` probably stands for, or None."""
    return _nearest(_plain(name), {_plain(each): each for each in sorted(known)})


def _plain(name: str) -> str:
    """Return the name in lower case with underscores.

    Other clients write the same names with dots, dashes or upper case.
    """
    return name.lower().replace(".", "_").replace("-", "_")


def _nearest(name: str, spelled: Mapping[str, str]) -> str | None:
    """Return the option with a similar name, or with this name in other clients, or None."""
    if (synonym := _SYNONYMS.get(name, name)) in spelled:
        return spelled[synonym]
    near = difflib.get_close_matches(name, spelled, 1, 0.6)
    return spelled[near[0]] if near else None


def parse_servers(
    servers: str | Sequence[str], option: str = "bootstrap_servers", port: int = DEFAULT_PORT
) -> tuple[Address, ...]:
    """Return the addresses in `servers`, in order and without duplicates.

    `port` is the default port, and `option` names the option in errors.
    """
    entries = servers.split(",") if isinstance(servers, str) else servers
    try:
        names = [entry.strip() for entry in entries if entry.strip()]
    except (AttributeError, TypeError):
        raise ConfigError(
            f"`{option}` must be 'host:port,...' or a sequence of them, got {servers!r}"
        ) from None
    if not names:
        raise ConfigError(f"`{option}` is empty. Name at least one server as 'host:port'")
    return tuple(dict.fromkeys(_parse_server(entry, option, port) for entry in names))


def _parse_server(entry: str, option: str, default_port: int) -> Address:
    host, colon, port = entry.rpartition(":")
    if entry.endswith("]") or not colon:
        host, port = entry, str(default_port)
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    is_valid = bool(name) and bracketed == (":" in name) and not any(c in "[]/@ " for c in name)
    # int() also accepts signs, underscores and digits of other alphabets.
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not (is_valid and digits and 0 < int(port) < 2**16):
        raise ConfigError(
            f"`{option}` has {entry!r}: each entry must be 'host', 'host:port' or '[ipv6]:port', "
            "with a port from 1 to 65535"
        )
    return Address(name, int(port))

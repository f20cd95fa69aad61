"""The check for consumer options that only apply to a loop over records, and not to an app."""

from collections.abc import Mapping
from typing import Any, Final

from asyncconsumer.errors import ConfigError

_DEAD_LETTERS: Final = "set `dead_letter_topic` or `on_error='skip'` for each handler"
_NO_END: Final = "an app runs until drain() is called or its block ends"
_ANNOTATE: Final = "annotate the parameter of the handler with its type"

_INSTEAD: Final[Mapping[str, tuple[object, str]]] = {
    "commit_policy": ("auto", "an app commits the records that its handlers have processed"),
    "enable_auto_commit": (True, "an app commits the records that its handlers have processed"),
    "on_poison": ("raise", _DEAD_LETTERS),
    "dead_letter_topic": (None, _DEAD_LETTERS),
    "max_records": (None, _NO_END),
    "idle_timeout_ms": (None, _NO_END),
    "consumer_timeout_ms": (None, _NO_END),
    "stop_at": (None, _NO_END),
    "progress": (False, "call health() or status()"),
    "key_deserializer": (None, _ANNOTATE),
    "value_deserializer": (None, _ANNOTATE),
    "pattern": (None, "set it for the handler: @app.handler(pattern=...)"),
    "partitions": (None, "an app is a member of a group: name topics with @app.handler(topic)"),
}
"""The default of each option, which is accepted, and advice for any other value."""


def reject_loop_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that an app would ignore or that would stop it early."""
    for name, (harmless, instead) in _INSTEAD.items():
        value = options.get(name, harmless)
        if value != harmless:
            raise ConfigError(f"{name}={value!r} is not supported by an app: {instead}")

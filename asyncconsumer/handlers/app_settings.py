"""The keyword arguments of an app: those for its consumer, and its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from asyncconsumer.config import AppOptions
from asyncconsumer.config.validation import whole_number
from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.loop_options import reject_loop_options
from asyncconsumer.handlers.middleware import Middleware
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.web.mixin import Lifespan


class AppKeywords(AppOptions, total=False):
    """The keyword arguments of an app: options of its consumer, and fields of `AppSettings`."""

    shutdown_grace_ms: int
    """Time that running handlers have to finish when the app is closed."""
    tracing: bool
    """Whether each handler call is an OpenTelemetry span in the trace of its record."""
    lifespan: Lifespan | None
    """Function that is called with the app and returns an async context manager of its state."""
    middlewares: Iterable[Middleware]
    """Functions around each handler call; the first one is the outermost."""
    create_topics: bool
    """Whether missing topics that handlers read or write are created when the app is opened."""
    listener: object
    """Listener for changes of the assignment, as for a consumer."""
    interceptors: Iterable[Interceptor] | None
    """Interceptors, as for a consumer."""
    offsets: OffsetStore | None
    """Offset store, as for a consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """The settings of an app. `options` are the keyword arguments of its consumer."""

    options: dict[str, Any]
    shutdown_grace_ms: int = 20_000
    tracing: bool = False
    lifespan: Lifespan | None = None
    middlewares: Iterable[Middleware] = ()
    create_topics: bool = False

    def __post_init__(self) -> None:
        if self.lifespan is not None and not callable(self.lifespan):
            raise ConfigError(
                "`lifespan` must be a function that is called with the app and returns an async "
                f"context manager, got {self.lifespan!r}"
            )
        whole_number("shutdown_grace_ms", self.shutdown_grace_ms, 0)
        reject_loop_options(self.options)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """Return the settings from the keyword arguments of an app."""
        own = {field.name for field in fields(cls)} - {"options"}
        interceptors = keywords.get("interceptors")
        options = {name: value for name, value in keywords.items() if name not in own} | {
            "listener": keywords.get("listener"),
            "interceptors": (
                tuple(interceptors) if isinstance(interceptors, Iterable) else interceptors
            ),
            "offsets": keywords.get("offsets"),
        }
        return cls(options=options, **{name: keywords[name] for name in own & keywords.keys()})

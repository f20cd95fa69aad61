"""The keyword arguments of an app: options of its consumer, and settings of the app itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, Self

from asyncconsumer.config import AppOptions
from asyncconsumer.config.validation import whole_number
from asyncconsumer.consumer.interceptors import Interceptor
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.exactly_once import TransactionOptions
from asyncconsumer.handlers.loop_options import reject_loop_options
from asyncconsumer.handlers.middleware import Middleware
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.web.mixin import Lifespan


class AppKeywords(AppOptions, total=False):
    """The keyword arguments of an app: options of its consumer, and fields of `AppSettings`."""

    shutdown_grace_ms: int
    """Time that running handlers have to finish when the app is closed."""
    tracing: bool
    """Whether OpenTelemetry spans are recorded for handler calls and commits."""
    lifespan: Lifespan | None
    """Function that is called with the app and returns an async context manager of its state."""
    middlewares: Iterable[Middleware]
    """Functions around each handler call; the first one is the outermost."""
    create_topics: bool
    """Whether missing topics that handlers read or write are created when the app is opened."""
    exactly_once: bool
    """Whether published records, dead letters and offsets are committed in transactions."""
    transactional_id: str | None
    """Transactional id, which no other running process may have. The default is random."""
    transaction_interval_ms: int
    """Time between two transactions."""
    transaction_timeout_ms: int
    """Time after which the brokers abort the open transaction of a process that crashed."""
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
    exactly_once: bool = False
    transactional_id: str | None = None
    transaction_interval_ms: int = 100
    transaction_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        if self.lifespan is not None and not callable(self.lifespan):
            raise ConfigError(
                "`lifespan` must be a function that is called with the app and returns an async "
                f"context manager, got {self.lifespan!r}"
            )
        whole_number("shutdown_grace_ms", self.shutdown_grace_ms, 0)
        whole_number("transaction_interval_ms", self.transaction_interval_ms, 1)
        whole_number("transaction_timeout_ms", self.transaction_timeout_ms, 1)
        reject_loop_options(self.options)
        if self.transactional_id is not None and not self.exactly_once:
            raise ConfigError(
                "`transactional_id` has no effect without transactions: set `exactly_once=True`, "
                "or remove it"
            )

    def _set_transactional_options(self) -> None:
        options = self.options
        if options.get("offsets") is not None or options.get("group_protocol") == "zookeeper":
            raise ConfigError(
                "`exactly_once` commits offsets in transactions of Kafka: do not set `offsets` "
                "or `group_protocol='zookeeper'`"
            )
        if options.get("auto_commit_interval_ms") is not None:
            raise ConfigError(
                "with `exactly_once` each transaction commits: set `transaction_interval_ms` "
                "instead of `auto_commit_interval_ms`"
            )
        options["auto_commit_interval_ms"] = self.transaction_interval_ms
        if options.get("isolation_level") is None:
            options["isolation_level"] = "read_committed"

    def transactions(self, randomness: Random) -> TransactionOptions:
        """Return the transaction options. The default transactional id has a random suffix."""
        named = self.transactional_id
        group_id = self.options["group_id"]
        name = named or f"{group_id}-{randomness.getrandbits(64):016x}"
        return TransactionOptions(name, named is not None, self.transaction_timeout_ms)

    def for_worker(self, number: int) -> Self:
        """Return the settings of the worker process `number`, with its own transactional id."""
        name = self.transactional_id
        return self if name is None else replace(self, transactional_id=f"{name}-{number}")

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
            "tracing": keywords.get("tracing", False),
        }
        settings = cls(options=options, **{name: keywords[name] for name in own & keywords.keys()})
        if settings.exactly_once:  # once, because a copy of the settings has these options already
            settings._set_transactional_options()
        return settings

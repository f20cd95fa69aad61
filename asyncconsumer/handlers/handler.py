"""A declared handler, with its function, its topics and its options."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from asyncconsumer.config.validation import one_of, whole_number
from asyncconsumer.consumer.subscription_spec import check_topic_names
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.subscription import with_flags
from asyncconsumer.handlers.arguments import Argument, arguments_of, name_of
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.middleware import Middleware, checked
from asyncconsumer.handlers.outgoing import PublishMiddleware
from asyncconsumer.handlers.priorities import check_priorities
from asyncconsumer.handlers.publishing import Publish, ResultPublisher, publish_option
from asyncconsumer.handlers.retry import Retry

OrderingName: TypeAlias = Literal["key", "partition", "none"]
OnError: TypeAlias = Literal["stop", "skip"]

_MORE_THAN_CAN_RUN: Final = 10  # times: the keys of most waiting records may be busy
_LEAST_IN_FLIGHT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The options of one handler.

    `ordering` is "key", "partition" or "none". Records of one key, or of one partition, are
    processed one after the other. `concurrency` is the maximum number of concurrent handler calls.

    `on_error` applies to a record that still fails after its retries, if there is no
    `dead_letter_topic`. "stop" ends the app, and "skip" continues without the record.

    `publish` is the topic to which the values that the handler returns are written, or a `Publish`
    with more options. A record counts as processed when these values are written. A handler may
    return one value, several in a list or tuple, `Outgoing` records, or None. It may be a
    generator.

    `max_in_flight` and `max_in_flight_bytes` limit the records that wait or are processed. A
    partition gets more records only while it has fewer in flight than the limits leave free. One
    partition alone therefore gets about half.

    `priorities` maps topics of the handler to numbers. Records of a higher priority are started
    first. Other topics have the priority 0. `max_in_flight` and `max_in_flight_bytes` apply to each
    priority separately.

    `middlewares` are called around each call of the handler and each record that it publishes. The
    first one is the outermost. The middlewares of the router and of the app are called outside of
    all of these.
    """

    ordering: OrderingName = "key"
    concurrency: int = 100
    batch: Batch | None = None
    retry: Retry | None = None
    dead_letter_topic: str | None = None
    on_error: OnError = "stop"
    handler_timeout_ms: int | None = None
    max_in_flight: int | None = None
    max_in_flight_bytes: int = 64 * 2**20
    priorities: Mapping[str, int] = field(default_factory=dict)
    middlewares: Sequence[Middleware] = ()
    publish: Publish | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "middlewares", checked(self.middlewares))
        object.__setattr__(self, "publish", publish_option(self.publish))
        one_of("ordering", self.ordering, get_args(OrderingName))
        one_of("on_error", self.on_error, get_args(OnError))
        whole_number("concurrency", self.concurrency, 1)
        whole_number("max_in_flight_bytes", self.max_in_flight_bytes, 1)
        for name in ("handler_timeout_ms", "max_in_flight"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        for name, kind in (("batch", Batch), ("retry", Retry)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"`{name}` must be a {kind.__name__}(...), got {value!r}")
        check_priorities(self.priorities)
        topic: object = self.dead_letter_topic
        if topic is not None and (not isinstance(topic, str) or not topic):
            raise ConfigError(
                f"`dead_letter_topic` must be the name of a topic, or None, got {topic!r}"
            )

    @property
    def retry_topics(self) -> tuple[str, ...]:
        """The topics in which failed records wait. Empty if failed records wait in memory."""
        return () if self.retry is None else tuple(self.retry.delays_ms)

    @property
    def writes_to(self) -> set[str]:
        """The topics that this handler may write records to."""
        dead = () if self.dead_letter_topic is None else (self.dead_letter_topic,)
        return {*self.retry_topics, *dead}

    @property
    def limit(self) -> int:
        """The maximum number of records in flight, by default a multiple of the concurrency.

        One partition alone gets about half of a large limit, so that others have room.
        """
        if self.max_in_flight is not None:
            return self.max_in_flight
        at_once = self.concurrency * (self.batch.max_records if self.batch else 1)
        return max(_LEAST_IN_FLIGHT, _MORE_THAN_CAN_RUN * at_once)


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A declared handler: its function, topics and options."""

    function: Callable[..., Any]
    topics: frozenset[str]
    pattern: re.Pattern[str] | None
    handling: HandlerOptions
    name: str = field(init=False)
    arguments: list[Argument] = field(init=False)

    def __post_init__(self) -> None:
        function = self.function
        name = name_of(function)
        object.__setattr__(self, "name", name)
        generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if generator and self.handling.publish is None:
            raise ConfigError(
                f"handler {name} has a `yield`, but no `publish`: set the topic to publish to"
            )
        arguments = arguments_of(name, function, batch=self.handling.batch is not None)
        object.__setattr__(self, "arguments", arguments)
        publisher = self.publisher()
        if publisher is not None and publisher.topic and self.handles(publisher.topic):
            raise ConfigError(
                f"handler {name} reads {publisher.topic!r}, to which it publishes its results. "
                "It would process them without end: set another topic in `publish`"
            )
        for topic in self.handling.priorities:
            if not self.handles(topic):
                raise ConfigError(
                    f"handler {name} has a priority for {topic!r}, but does not read it: "
                    "remove the topic from `priorities`"
                )
        if self.handling.priorities and self.pattern is None and len(self.topics) == 1:
            raise ConfigError(
                f"handler {name}: `priorities` are for a handler of several topics, because each "
                "handler has its own workers. Name all topics in one @app.handler(...)"
            )
        for topic in self.handling.writes_to:
            if self.handles(topic):
                option = (
                    "dead_letter_topic" if topic == self.handling.dead_letter_topic else "retry"
                )
                raise ConfigError(
                    f"handler {name} reads {topic!r}, which is its own {option}: failed records "
                    "would be processed without end. Name another topic"
                )
        if self.handling.retry_topics and (
            self.handling.ordering != "key" or self.handling.batch or len(self.topics) != 1
        ):
            raise ConfigError(
                f"handler {name}: a retry topic needs ordering='key', one topic and no `batch`"
            )
        if (both := self.handling.dead_letter_topic) in self.handling.retry_topics:
            raise ConfigError(
                f"handler {name}: {both!r} is its retry topic and its `dead_letter_topic`: dead "
                "letters would be retried without end"
            )

    def included(self, prefix: str, middlewares: Sequence[Middleware]) -> "Handler":
        """Return a copy with `prefix` before the names of its topics, and with more middlewares.

        `middlewares` are called around the handler's own middlewares.
        """
        if not prefix and not middlewares:
            return self
        options, expression = self.handling, self.pattern
        retry = options.retry
        if retry is not None:
            retry = retry.with_prefix(prefix)
        if expression is not None and prefix:
            expression = re.compile(f"{re.escape(prefix)}(?:{with_flags(expression)})")
        dead = None if options.dead_letter_topic is None else prefix + options.dead_letter_topic
        publish = options.publish
        if isinstance(publish, Publish) and publish.topic is not None:
            publish = replace(publish, topic=prefix + publish.topic)
        changed = replace(
            options,
            retry=retry,
            publish=publish,
            priorities={prefix + topic: number for topic, number in options.priorities.items()},
            dead_letter_topic=dead,
            middlewares=(*middlewares, *options.middlewares),
        )
        topics = frozenset(prefix + topic for topic in self.topics)
        return Handler(self.function, topics, expression, changed)

    def publisher(self, around: Sequence[PublishMiddleware] = ()) -> ResultPublisher | None:
        """Return a new publisher of the results, or None if they are not published.

        `around` are the middlewares around each record that the publisher sends.
        """
        options = self.handling.publish
        if not isinstance(options, Publish):
            return None
        return ResultPublisher(self.name, self.function, options, around)

    def handles(self, topic: str) -> bool:
        """Return whether this handler names `topic`, or its pattern matches the topic.

        If another handler names the topic, it has precedence over a matching pattern.
        """
        by_pattern = self.pattern is not None and self.pattern.fullmatch(topic) is not None
        return topic in self.topics or by_pattern


def declared(
    function: Callable[..., Any],
    topics: tuple[str, ...],
    pattern: str | re.Pattern[str] | None,
    handling: HandlerOptions,
) -> Handler:
    """Return a new handler. Raise ConfigError if its declaration is invalid."""
    check_topic_names(topics)
    if bool(topics) == (pattern is not None):
        raise ConfigError(
            "a handler needs either topics or a pattern: use @app.handler('topic') or "
            "@app.handler(pattern=...)"
        )
    try:
        expression = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    return Handler(function, frozenset(topics), expression, handling)


def check_exactly_once(handlers: Sequence[Handler]) -> None:
    """Raise ConfigError if a handler has an option that does not work in transactions."""
    for handler in handlers:
        if handler.handling.retry_topics:
            raise ConfigError(
                f"handler {handler.name}: a retry topic does not work with `exactly_once`, because "
                "its records would be visible before their transaction. Use Retry without a topic, "
                "or a `dead_letter_topic`"
            )


def check_apart(handler: Handler, other: Handler) -> None:
    """Raise ConfigError if two handlers read the same topic, because a group reads a topic once."""
    if both := handler.topics & other.topics:
        raise ConfigError(
            f"{min(both)!r} has two handlers, {handler.name} and {other.name}: a group reads a "
            "topic once. Call both functions from one handler, or use another `group_id`"
        )
    for first, second in ((handler, other), (other, handler)):
        for waiting in first.handling.retry_topics:
            if second.handles(waiting) or waiting in second.handling.writes_to:
                raise ConfigError(
                    f"the retry topic {waiting!r} of {first.name} is used by {second.name} too: "
                    "each handler needs its own"
                )

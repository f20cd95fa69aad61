"""Invalid declarations of handlers and options of an app."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from asyncconsumer import (
    Batch,
    ConfigError,
    ConsumerApp,
    Retry,
    TopicPartition,
)

pytestmark = pytest.mark.fast


# --- declaring -----------------------------------------------------------------------------------


def declaring(*topics: str, **handling: Any) -> ConsumerApp:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    @app.handler(*topics, **handling)
    async def handle(value: bytes) -> None: ...

    return app


@pytest.mark.parametrize(
    ("topics", "handling", "message"),
    [
        ([], {}, "either topics or a pattern: use @app.handler"),
        (["t"], {"pattern": "x"}, "either topics or a pattern: use @app.handler"),
        ([], {"pattern": "("}, "regular expression"),
        (["t"], {"ordering": "keys"}, "Did you mean key"),
        (["t"], {"concurrency": 0}, "concurrency"),
        (["t"], {"retry": 3}, "Retry"),
        (["t"], {"dead_letter_topic": "t"}, "its own dead_letter_topic"),
        (["t"], {"on_error": "ignore"}, "on_error"),
        (["t"], {"batch": Batch()}, r"handle, parameter 'value'.*list"),
    ],
)
def test_invalid_declarations_are_refused(
    topics: list[str], handling: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        declaring(*topics, **handling)


def test_an_unsupported_parameter_is_reported_with_its_name() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match=r"wrong, parameter 'order'"):

        @app.handler("t")
        async def wrong(order: int) -> None: ...


def test_a_topic_has_one_handler() -> None:
    app = declaring("a", "b")
    with pytest.raises(ConfigError, match="'b' has two handlers"):

        @app.handler("b")
        async def other(value: bytes) -> None: ...


def test_options_of_the_consumer_are_checked_by_the_constructor() -> None:
    with pytest.raises(ConfigError, match="Did you mean `group_id`"):
        ConsumerApp(bootstrap_servers="k:1", group_ids="g")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("commit_policy", "manual", "its handlers have processed"),
        ("commit_policy", "at_most_once", "its handlers have processed"),
        ("enable_auto_commit", False, "its handlers have processed"),
        ("on_poison", "skip", "on_error='skip'"),
        ("dead_letter_topic", "dead", "for each handler"),
        ("max_records", 2, r"drain\(\)"),
        ("idle_timeout_ms", 500, r"drain\(\)"),
        ("consumer_timeout_ms", 500, r"drain\(\)"),
        ("stop_at", "end", r"drain\(\)"),
        ("progress", True, r"health\(\)"),
        ("value_deserializer", "json", "annotate"),
        ("pattern", "t.*", "@app.handler"),
        ("partitions", [TopicPartition("t", 0)], "a group"),
    ],
)
def test_options_for_loops_are_refused_with_advice(name: str, value: Any, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=.* is not supported by an app: .*{instead}"):
        ConsumerApp(bootstrap_servers="k:1", group_id="g", **{name: value})


def test_functions_that_would_never_run_are_refused() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    async def many(value: bytes) -> AsyncIterator[int]:
        yield 1

    def some(value: bytes) -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="many has a `yield`"):
        app.handler("t")(many)
    with pytest.raises(ConfigError, match="some has a `yield`"):
        app.handler("t")(some)
    with pytest.raises(ConfigError, match="name the topics of a handler"):
        app.handler(some)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="group_id"):
        ConsumerApp(bootstrap_servers="k:1")
    with pytest.raises(ConfigError, match="`on` must be a tuple"):
        Retry(on=5)  # type: ignore[arg-type]


def test_default_values_of_unsupported_options_are_accepted() -> None:
    defaults: dict[str, Any] = {"commit_policy": "auto", "on_poison": "raise"}
    ConsumerApp(bootstrap_servers="k:1", group_id="g", **defaults)

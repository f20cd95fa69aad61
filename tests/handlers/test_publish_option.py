"""The option `publish` of a handler, and the type of its results."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Outgoing, Publish, Router
from asyncconsumer.errors import ConfigError

pytestmark = pytest.mark.fast


def new_app() -> ConsumerApp:
    return ConsumerApp(bootstrap_servers="k:1", group_id="g")


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        str | None,
        list[str],
        tuple[str, ...],
        list[str | None],
        list[Outgoing],
        Outgoing | None,
        str | Outgoing,
        AsyncIterator[str],
        Any,
        None,
        dict[str, int],
        list,
    ],
)
def test_a_result_type_is_accepted(annotation: Any) -> None:
    async def handle(value: bytes) -> Any: ...

    handle.__annotations__["return"] = annotation
    new_app().handler("orders", publish="billed")(handle)


@pytest.mark.parametrize("annotation", [int, float | None, list[int]])
def test_a_result_type_with_several_encodings_is_refused(annotation: Any) -> None:
    async def handle(value: bytes) -> Any: ...

    handle.__annotations__["return"] = annotation
    with pytest.raises(ConfigError, match=r"has more than one encoding.*Publish\(topic, seriali"):
        new_app().handler("orders", publish="billed")(handle)
    new_app().handler("orders", publish=Publish("billed", serializer="json"))(handle)


@pytest.mark.parametrize("option", [7, "", ["billed"]])
def test_an_invalid_option_is_refused(option: Any) -> None:
    with pytest.raises(ConfigError, match="`publish`"):
        new_app().handler("orders", publish=option)


def test_a_key_must_be_a_function() -> None:
    with pytest.raises(ConfigError, match="`key` of Publish must be a function"):
        Publish("billed", key="id")  # type: ignore[arg-type]


def test_a_handler_does_not_publish_to_a_topic_that_it_reads() -> None:
    with pytest.raises(ConfigError, match="reads 'orders', to which it publishes"):

        @new_app().handler("orders", publish="orders")
        async def handle(value: bytes) -> bytes:
            return value


def test_a_generator_needs_a_topic() -> None:
    async def handle(value: bytes) -> AsyncIterator[bytes]:
        yield value

    with pytest.raises(ConfigError, match="has a `yield`, but no `publish`"):
        new_app().handler("orders")(handle)
    new_app().handler("orders", publish="billed")(handle)


def test_the_prefix_of_a_router_applies_to_the_topic_of_results() -> None:
    router = Router(prefix="shop.")

    @router.handler("orders", publish="billed")
    async def handle(value: bytes) -> bytes:
        return value

    app = new_app()
    app.include(router)
    (handler,) = app._handlers
    publisher = handler.publisher()
    assert publisher is not None
    assert publisher.topic == "shop.billed"

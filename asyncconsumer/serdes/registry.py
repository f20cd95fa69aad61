"""Deserializers of Avro, JSON and Protobuf with the schemas of a schema registry.

registry = SchemaRegistry("https://registry:8081", basic_auth=("billing", password))
consumer = Consumer("orders", ..., value_deserializer=registry.avro(Order))
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any, Final, TypeVar, overload
from urllib.parse import unquote, urlsplit

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes import protobuf
from asyncconsumer.serdes.avro import Avro
from asyncconsumer.serdes.json_schema import JsonSchema
from asyncconsumer.serdes.models import model_of, named, package
from asyncconsumer.serdes.schemas import Client, RegistryClientOptions, Schema, Schemas
from asyncconsumer.serdes.types import Deserializer
from asyncconsumer.serdes.wire_format import START, Framed, plain

T = TypeVar("T")

_CLIENT: Final = "confluent_kafka.schema_registry"


class SchemaRegistry(AsyncResource):
    """A schema registry, and the deserializers of its schemas. It uses Confluent's client.

    Each schema is requested once, for the first record that has it. The request is retried for
    `patience_ms` while the registry is unavailable. Within ``async with`` all requests use one
    client. Otherwise each request opens and closes its own.

    `url` may be a list of URLs, separated by commas. `properties` are further properties of
    Confluent's client, e.g. ``bearer.auth.credentials.source``.
    """

    def __init__(
        self,
        url: str,
        *,
        basic_auth: tuple[str, str] | None = None,
        ssl_ca_location: str | None = None,
        ssl_certificate_location: str | None = None,
        ssl_key_location: str | None = None,
        ssl_key_password: str | None = None,
        request_timeout_ms: int = 10_000,
        patience_ms: int = 30_000,
        properties: Mapping[str, Any] | None = None,
        randomness: Random | None = None,
    ) -> None:
        whole_number("request_timeout_ms", request_timeout_ms, 1)
        whole_number("patience_ms", patience_ms, 0)
        self.url, in_url = _without_secrets(url)
        if basic_auth is not None and in_url is not None:
            raise ConfigError("credentials are in `url` and in `basic_auth`: set only one of them")
        user = basic_auth or in_url
        settings = {
            "url": self.url,
            "basic.auth.user.info": None if user is None else ":".join(user),
            "ssl.ca.location": ssl_ca_location,
            "ssl.certificate.location": ssl_certificate_location,
            "ssl.key.location": ssl_key_location,
            "ssl.key.password": ssl_key_password,
            "max.retries": 0,  # retries are done by `Schemas`
            **(properties or {}),
        }
        new_client = _clients(
            {name: value for name, value in settings.items() if value is not None}
        )
        chance = randomness or Random()  # noqa: S311 - for waits, not for secrets
        asking = RegistryClientOptions(self.url, request_timeout_ms, patience_ms, chance)
        self._schemas = Schemas(new_client, asking)

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"

    async def _open(self, stack: AsyncExitStack) -> None:
        self._schemas.keep_open()
        stack.push_async_callback(self._schemas.close)

    @overload
    def avro(
        self, model: None = None, *, reader_schema: str | Mapping[str, Any] | None = None
    ) -> Deserializer[Any]: ...
    @overload
    def avro(
        self, model: type[T], *, reader_schema: str | Mapping[str, Any] | None = None
    ) -> Deserializer[T]: ...
    def avro(
        self, model: Any = None, *, reader_schema: str | Mapping[str, Any] | None = None
    ) -> Deserializer[Any]:
        """Return a deserializer of Avro to plain objects, or to a pydantic or msgspec model.

        With a `reader_schema`, records of older and newer schemas are converted to that schema.
        """
        make = plain if model is None else model_of(model).of_object
        reader = Avro(reader_schema).reader
        return self._deserializer("AVRO", model, lambda schema: reader(schema, make))

    @overload
    def json_schema(
        self, model: None = None, *, validate: bool | None = None
    ) -> Deserializer[Any]: ...
    @overload
    def json_schema(self, model: type[T], *, validate: bool | None = None) -> Deserializer[T]: ...
    def json_schema(self, model: Any = None, *, validate: bool | None = None) -> Deserializer[Any]:
        """Return a deserializer of JSON to plain objects, or to a pydantic or msgspec model.

        With `validate`, records are validated against their schema. The default is to validate
        only without a model.
        """
        if validate is None:
            validate = model is None
        made_by = None if model is None else model_of(model)
        if validate:
            reader, make = JsonSchema().reader, plain if made_by is None else made_by.of_object
            return self._deserializer("JSON", model, lambda schema: reader(schema, make))
        of_json = package("json", "JSON").loads if made_by is None else made_by.of_json
        return self._deserializer("JSON", model, lambda schema: lambda data: of_json(data[START:]))

    def protobuf(self, message: type[T]) -> Deserializer[T]:
        """Return a deserializer to `message`, a class that protoc generated.

        It raises an error for messages of another type.
        """
        if not callable(getattr(message, "FromString", None)):
            raise ConfigError(f"{message!r} is not a message class that protoc generated")
        return self._deserializer("PROTOBUF", message, partial(protobuf.reader, message=message))

    def _deserializer(
        self, kind: str, model: object, reader_of: Callable[[Schema], Callable[[bytes], Any]]
    ) -> Deserializer[Any]:
        name = kind if model is None else f"{named(model)} by {kind}"
        return Deserializer(Framed(self._schemas, kind, reader_of), name, waits=True)


def _clients(settings: dict[str, Any]) -> Callable[[], Client]:
    """Return a factory of registry clients. It creates the first one now, to check the settings."""
    make = package(_CLIENT, "a schema registry").AsyncSchemaRegistryClient
    try:
        first = [make(settings)]
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"the settings of the schema registry are invalid: {error}") from error
    return lambda: first.pop() if first else make(settings)


def _without_secrets(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return the URL without its credentials, and the credentials. HTTP clients log URLs."""
    credentials, parts = None, []
    for each in str(url).split(","):
        split = urlsplit(each.strip())
        if split.scheme not in ("http", "https") or not split.hostname:
            raise ConfigError("`url` must be the URL of a schema registry, e.g. http://host:8081")
        if split.username is not None:
            credentials = unquote(split.username), unquote(split.password or "")
        parts.append(split._replace(netloc=split.netloc.rpartition("@")[2]).geturl())
    return ",".join(parts), credentials

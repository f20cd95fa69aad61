"""Avro, JSON and Protobuf with the schemas of a schema registry.

registry = SchemaRegistry("https://registry:8081", basic_auth=("billing", password))
consumer = Consumer("orders", ..., value_deserializer=registry.avro(Order))
producer = Producer(..., value_serializer=registry.avro(Order, schema=ORDER_SCHEMA))
"""

import json
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
from asyncconsumer.serdes.avro import Avro, AvroSchema, parsed
from asyncconsumer.serdes.json_schema import JsonSchema
from asyncconsumer.serdes.models import model_of, named, package
from asyncconsumer.serdes.registry_format import (
    RegistryFormat,
    RegistryWriter,
    Subject,
    WriteValue,
    avro_writer,
    check_register,
    json_text,
    json_writer,
    no_protobuf_writer,
    protobuf_text,
    protobuf_writer,
)
from asyncconsumer.serdes.schemas import (
    RegistryClient,
    RegistryClientOptions,
    Schema,
    Schemas,
    SchemaText,
)
from asyncconsumer.serdes.wire_format import START, Framed, plain

T = TypeVar("T")

_CLIENT: Final = "confluent_kafka.schema_registry"


class SchemaRegistry(AsyncResource):
    """A schema registry, and the formats of its schemas. It uses Confluent's client.

    A format is a deserializer for consumers and handlers, and a serializer for producers and
    `publish`.

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
        self,
        model: None = None,
        *,
        reader_schema: AvroSchema | None = None,
        schema: AvroSchema | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[Any]: ...
    @overload
    def avro(
        self,
        model: type[T],
        *,
        reader_schema: AvroSchema | None = None,
        schema: AvroSchema | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[T]: ...
    def avro(
        self,
        model: Any = None,
        *,
        reader_schema: AvroSchema | None = None,
        schema: AvroSchema | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[Any]:
        """Return the format of Avro records as plain objects, or as a pydantic or msgspec model.

        With a `reader_schema`, records of older and newer schemas are converted to that schema.

        As a serializer, it registers `schema`, or uses the latest version of the subject. With
        ``register=False``, the schema must be registered already. `subject` is a name or a function
        of the `RecordContext`. The default is the topic with the suffix ``-key`` or ``-value``.
        """
        make = plain if model is None else model_of(model).of_object
        avro, text = Avro(reader_schema), None
        if schema is not None:
            parsed(schema, "schema")
            text = SchemaText("AVRO", schema if isinstance(schema, str) else json.dumps(schema))
        reader, writer = avro.reader, avro_writer(avro)
        return self._format(
            ("AVRO", model),
            lambda schema: reader(schema, make),
            writer,
            (text, subject, register),
        )

    @overload
    def json_schema(
        self,
        model: None = None,
        *,
        validate: bool | None = None,
        schema: str | Mapping[str, Any] | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[Any]: ...
    @overload
    def json_schema(
        self,
        model: type[T],
        *,
        validate: bool | None = None,
        schema: str | Mapping[str, Any] | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[T]: ...
    def json_schema(
        self,
        model: Any = None,
        *,
        validate: bool | None = None,
        schema: str | Mapping[str, Any] | None = None,
        subject: Subject = None,
        register: bool = True,
    ) -> RegistryFormat[Any]:
        """Return the format of JSON records as plain objects, or as a pydantic or msgspec model.

        With `validate`, records are validated against their schema. The default is to validate
        only without a model.

        As a serializer, it registers `schema`, or that of the model. Without both, it uses the
        latest version of the subject. `subject` and `register` are those of `avro`.
        """
        if validate is None:
            validate = model is None
        made_by = None if model is None else model_of(model)
        writing = json_text(model, schema), subject, register
        writer = json_writer(model, validate=validate)
        if validate:
            reader, make = JsonSchema().reader, plain if made_by is None else made_by.of_object
            return self._format(
                ("JSON", model), lambda schema: reader(schema, make), writer, writing
            )
        of_json = package("json", "JSON").loads if made_by is None else made_by.of_json
        return self._format(
            ("JSON", model), lambda schema: lambda data: of_json(data[START:]), writer, writing
        )

    @overload
    def protobuf(self, message: None = None) -> RegistryFormat[dict[str, Any]]: ...
    @overload
    def protobuf(
        self, message: type[T], *, subject: Subject = None, register: bool = True
    ) -> RegistryFormat[T]: ...
    def protobuf(
        self, message: Any = None, *, subject: Subject = None, register: bool = True
    ) -> RegistryFormat[Any]:
        """Return the format of messages of `message`, a class that protoc generated.

        The format raises an error for messages of another type. Without a class, it reads messages
        of all types as dicts, with Protobuf's JSON representation of their fields. It then writes
        no messages.

        As a serializer, it registers the file of the class, and each file that it imports under its
        name. `subject` and `register` are those of `avro`.
        """
        if message is None:
            return self._format(
                ("PROTOBUF", None), protobuf.dict_reader, no_protobuf_writer, (None, None, True)
            )
        if not callable(getattr(message, "FromString", None)):
            raise ConfigError(f"{message!r} is not a message class that protoc generated")
        return self._format(
            ("PROTOBUF", message),
            partial(protobuf.reader, message=message),
            protobuf_writer(message),
            (protobuf_text(message), subject, register),
        )

    def _format(
        self,
        about: tuple[str, object],
        reader_of: Callable[[Schema], Callable[[bytes], Any]],
        writer_of: Callable[[Schema], WriteValue],
        writing: tuple[SchemaText | None, Subject, bool],
    ) -> RegistryFormat[Any]:
        (kind, model), (text, subject, register) = about, writing
        check_register(text, register=register)
        name = kind if model is None else f"{named(model)} by {kind}"
        writer = RegistryWriter(
            self._schemas, text, writer_of, kind=kind, subject=subject, register=register
        )
        return RegistryFormat(Framed(self._schemas, kind, reader_of), name, writer)


def _clients(settings: dict[str, Any]) -> Callable[[], RegistryClient]:
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

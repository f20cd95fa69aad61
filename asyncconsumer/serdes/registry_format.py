"""A format of a schema registry: the deserializer of its records, and their serializer."""

import base64
import json
from collections.abc import Callable, Coroutine, Mapping
from io import BytesIO
from typing import Any, Final, TypeAlias, TypeVar

from asyncconsumer.errors import ConfigError, WrongSchema
from asyncconsumer.serdes.avro import Avro
from asyncconsumer.serdes.json_schema import JsonSchema
from asyncconsumer.serdes.models import dump_of, package, plain_of, schema_of
from asyncconsumer.serdes.protobuf import index_path
from asyncconsumer.serdes.schemas import Schema, Schemas, SchemaText
from asyncconsumer.serdes.types import Deserializer, RecordContext
from asyncconsumer.serdes.wire_format import Framed, plain

T_co = TypeVar("T_co", covariant=True)

WriteValue: TypeAlias = Callable[[Any], bytes]
"""Return the bytes of a value, without the schema id."""
Subject: TypeAlias = str | Callable[[RecordContext], str] | None
"""The subject of a schema. The default is the topic with the suffix ``-key`` or ``-value``."""

_WELL_KNOWN: Final = "google/protobuf/"  # files that every Protobuf implementation has


class RegistryWriter:
    """A serializer with a schema of a registry.

    The schema id of a subject is requested when its first value is serialized. `text` is the schema
    to register, or only to look up with ``register=False``. If it is None, the latest schema of the
    subject is used.
    """

    def __init__(
        self,
        schemas: Schemas,
        text: SchemaText | None,
        writer_of: Callable[[Schema], WriteValue],
        *,
        kind: str,
        subject: Subject,
        register: bool,
    ) -> None:
        self.text: Final = text
        self.kind: Final = kind
        self._schemas = schemas
        self._writer_of = writer_of
        self._subject = subject
        self._register = register
        self._writers: dict[str, tuple[bytes, WriteValue]] = {}

    def serialize(
        self,
        value: object,
        place: RecordContext,
    ) -> Coroutine[Any, Any, bytes] | bytes:
        """Return the bytes of a value.

        If its schema id is not known yet, return a coroutine that requests the id and returns the
        bytes.
        """
        subject = self._subject
        if subject is None:
            subject = f"{place.topic}-{place.part}"
        elif callable(subject):
            subject = subject(place)
        known = self._writers.get(subject)
        if known is None:
            return self._write_first(subject, value)
        start, write = known
        return start + write(value)

    async def _write_first(self, subject: str, value: Any) -> bytes:  # noqa: ANN401
        schema = await self._schemas.of_subject(subject, self.text, register=self._register)
        if schema.kind != self.kind:
            raise WrongSchema(
                schema.id, f"expected a schema of type {self.kind}, got {schema.kind}"
            )
        start, write = b"\0" + schema.id.to_bytes(4, "big"), self._writer_of(schema)
        self._writers[subject] = start, write
        return start + write(value)


class RegistryFormat(Deserializer[T_co]):
    """A format of a schema registry, to pass as a deserializer or as a serializer.

    `kind` is "AVRO", "JSON" or "PROTOBUF". `text` is the schema to register, or None.
    """

    __slots__ = ("kind", "serialize", "text")

    def __init__(self, framed: Framed[T_co], name: str, writer: RegistryWriter) -> None:
        super().__init__(framed, name, waits=True)
        self.serialize = writer.serialize
        self.kind = writer.kind
        self.text = writer.text


def avro_writer(avro: Avro) -> Callable[[Schema], WriteValue]:
    """Return a factory that creates, for a schema, a function that encodes values as Avro."""
    write_value = package("fastavro", "Avro").schemaless_writer

    def writer_of(schema: Schema) -> WriteValue:
        parsed = avro.parse(schema)

        def write(value: object) -> bytes:
            stream = BytesIO()
            write_value(stream, parsed, plain_of(value))
            return stream.getvalue()

        return write

    return writer_of


def json_writer(model: Any, *, validate: bool) -> Callable[[Schema], WriteValue]:  # noqa: ANN401
    """Return a factory that creates, for a schema, a function that encodes values as JSON.

    With `validate`, that function validates the JSON against the schema.
    """
    dump = _dump if model is None else dump_of(model)
    checks = JsonSchema() if validate else None

    def writer_of(schema: Schema) -> WriteValue:
        if checks is None:
            return dump
        check = checks.reader(schema, plain)

        def write(value: object) -> bytes:
            data = dump(value)
            check(b"\0\0\0\0\0" + data)
            return data

        return write

    return writer_of


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_text(model: Any, schema: str | Mapping[str, Any] | None) -> SchemaText | None:  # noqa: ANN401
    """Return the JSON schema to register: `schema` if it is given, or else that of the model.

    Return None without both.
    """
    if schema is None:
        schema = None if model is None else schema_of(model)
    if schema is None:
        return None
    return SchemaText("JSON", schema if isinstance(schema, str) else json.dumps(schema))


def protobuf_writer(message: Any) -> Callable[[Schema], WriteValue]:  # noqa: ANN401 - generated class
    """Return a factory of functions that encode messages of the class `message`."""
    start = index_path(message.DESCRIPTOR)

    def write(value: Any) -> bytes:  # noqa: ANN401 - a message
        if not isinstance(value, message):
            raise TypeError(f"expected a {message.__name__}, got {type(value).__name__}")
        data: bytes = value.SerializeToString()
        return start + data

    return lambda schema: write


def no_protobuf_writer(schema: Schema) -> WriteValue:
    """Raise ConfigError, because a format without a message class only reads."""
    del schema
    raise ConfigError(
        "registry.protobuf() reads messages and does not write them. Pass the message class, as in "
        "registry.protobuf(Order)"
    )


def protobuf_text(message: Any) -> SchemaText:  # noqa: ANN401 - a generated class
    """Return the .proto file of a message class as a schema, with the files that it imports.

    The text of the schema is the file's descriptor in base64, as Confluent's Python client
    registers it.
    """
    return _file_text(message.DESCRIPTOR.file)


def _file_text(file: Any) -> SchemaText:  # noqa: ANN401 - a descriptor
    text = base64.b64encode(file.serialized_pb).decode()
    imported = [each for each in file.dependencies if not each.name.startswith(_WELL_KNOWN)]
    return SchemaText("PROTOBUF", text, {each.name: _file_text(each) for each in imported})


def check_register(text: SchemaText | None, *, register: bool) -> None:
    """Raise ConfigError if `register` is False without a schema, which would have no effect."""
    if text is None and not register:
        raise ConfigError(
            "`register` is False, but there is no `schema`: without one, the latest version of the "
            "subject is used and nothing is registered"
        )

"""The decoding of Avro records by fastavro."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.models import package
from asyncconsumer.serdes.schemas import Schema
from asyncconsumer.serdes.wire_format import START, unusable

T = TypeVar("T")

AvroSchema: TypeAlias = str | Mapping[str, Any]
"""A schema as JSON text, or as the object that the text represents."""


class Avro:
    """A factory of Avro decoders. With a reader schema, records are converted to that schema."""

    def __init__(self, reader_schema: str | Mapping[str, Any] | None) -> None:
        self._fastavro = package("fastavro", "Avro")
        self._reader_schema = (
            None if reader_schema is None else parsed(reader_schema, "reader_schema")
        )

    def reader(self, schema: Schema, make: Callable[[Any], T]) -> Callable[[bytes], T]:
        """Return a decoder for records of this schema. Raise WrongSchema if the schema is invalid.

        The decoder passes each decoded record to `make` and returns the result.
        """
        reader_schema, read_value = self._reader_schema, self._fastavro.schemaless_reader
        try:
            written = self.parse(schema)
        except Exception as error:
            raise unusable(schema, error) from error
        kind = written.get("type") if isinstance(written, dict) else written
        if kind == "bytes" and reader_schema is None:  # these alone need no decoding
            return lambda data: make(data[START:])

        def read(data: bytes) -> T:
            stream = io.BytesIO(data)
            stream.seek(START)
            return make(read_value(stream, written, reader_schema))

        return read

    def parse(self, schema: Schema) -> Any:  # noqa: ANN401
        """Return the schema as fastavro parses it, with the schemas that it refers to included.

        fastavro itself includes them only in a record schema. If the schema is a union or a bare
        name, this method replaces the names of such schemas by their definitions.
        """
        names: dict[str, Any] = {}
        for reference in schema.references:
            self._fastavro.parse_schema(json.loads(reference.text), names)
        whole = {
            name: self._fastavro.parse_schema(definition, {**names})
            for name, definition in names.items()
        }
        written = self._fastavro.parse_schema(json.loads(schema.text), names)
        if isinstance(written, list):
            return [whole.get(each, each) if isinstance(each, str) else each for each in written]
        return whole.get(written, written) if isinstance(written, str) else written


def parsed(schema: str | Mapping[str, Any], option: str) -> Any:  # noqa: ANN401
    """Return a schema of the user, parsed by fastavro. `option` names the schema in errors."""
    parse = package("fastavro", "Avro").parse_schema
    try:
        return parse(json.loads(schema) if isinstance(schema, str) else dict(schema))
    except Exception as error:
        raise ConfigError(f"{option} is no Avro schema: {error!r}") from error

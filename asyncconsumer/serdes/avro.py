"""Avro, read by fastavro."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.models import package
from asyncconsumer.serdes.schemas import Schema
from asyncconsumer.serdes.wire_format import START, unusable

T = TypeVar("T")


class Avro:
    """Makes what reads the records of each schema, as another one if that is wanted."""

    def __init__(self, reader_schema: str | Mapping[str, Any] | None) -> None:
        self._fastavro = package("fastavro", "Avro")
        self._wanted = None if reader_schema is None else parsed(reader_schema, "reader_schema")

    def reader(self, schema: Schema, make: Callable[[Any], T]) -> Callable[[bytes], T]:
        """Raises if the schema is not sound."""
        wanted, read_one = self._wanted, self._fastavro.schemaless_reader
        try:
            written = self._parsed(schema)
        except Exception as error:
            raise unusable(schema, error) from error
        kind = written.get("type") if isinstance(written, dict) else written
        if kind == "bytes" and wanted is None:  # these alone are written as they are
            return lambda data: make(data[START:])

        def read(data: bytes) -> T:
            stream = io.BytesIO(data)
            stream.seek(START)
            return make(read_one(stream, written, wanted))

        return read

    def _parsed(self, schema: Schema) -> Any:  # noqa: ANN401
        """A schema that knows what it refers to.

        What fastavro makes of a record carries that along; of a union, or of a name alone, it does
        not, so the names in those are replaced by what they stand for.
        """
        names: dict[str, Any] = {}
        for reference in schema.references:
            self._fastavro.parse_schema(json.loads(reference.text), names)
        whole = {name: self._fastavro.parse_schema(one, {**names}) for name, one in names.items()}
        written = self._fastavro.parse_schema(json.loads(schema.text), names)
        if isinstance(written, list):
            return [whole.get(each, each) if isinstance(each, str) else each for each in written]
        return whole.get(written, written) if isinstance(written, str) else written


def parsed(schema: str | Mapping[str, Any], option: str) -> Any:  # noqa: ANN401
    """A schema that a user gave, as fastavro has it."""
    parse = package("fastavro", "Avro").parse_schema
    try:
        return parse(json.loads(schema) if isinstance(schema, str) else dict(schema))
    except Exception as error:
        raise ConfigError(f"{option} is no Avro schema: {error!r}") from error

"""The conversion of values with a schema in a registry to JSON, for `asyncconsumer consume`."""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, time
from decimal import Decimal
from types import CoroutineType
from typing import Any, Literal, TypeAlias
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.decoding import Record
from asyncconsumer.serdes.registry import SchemaRegistry
from asyncconsumer.serdes.types import Deserializer

ValueFormat: TypeAlias = Literal["avro", "json-schema", "protobuf"]


class ValueDecoder:
    """A decoder that replaces the value of each record by JSON text."""

    def __init__(self, deserializer: Deserializer[Any]) -> None:
        self._read = deserializer.reader("value")

    async def decode(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with JSON text as their values. A null value stays null."""
        decoded = []
        for record in records:
            value = self._read(record)
            if isinstance(value, CoroutineType):
                value = await value
            text = None if record.value is None else json.dumps(value, default=_plain).encode()
            decoded.append(
                Record(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp,
                    key=record.key,
                    value=text,
                    headers=record.headers,
                )
            )
        return decoded


@asynccontextmanager
async def open_decoder(
    kind: ValueFormat | None, registry: str | None
) -> AsyncIterator[ValueDecoder | None]:
    """Return an async context manager that opens the registry and yields a decoder.

    It yields None if values are printed unchanged.
    """
    if kind is None:
        yield None
        return
    if registry is None:
        raise ConfigError(f"--value-format {kind} needs --registry URL.")
    async with SchemaRegistry(registry) as schemas:
        yield ValueDecoder(_deserializer(schemas, kind))


def _deserializer(schemas: SchemaRegistry, kind: ValueFormat) -> Deserializer[Any]:
    match kind:
        case "avro":
            return schemas.avro()
        case "json-schema":
            return schemas.json_schema()
        case "protobuf":
            return schemas.protobuf()


def _plain(value: object) -> object:
    """Return a value of an Avro logical type in a form that JSON can express."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")

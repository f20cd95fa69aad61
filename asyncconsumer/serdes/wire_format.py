"""The wire format of schema registries: bytes that begin with the id of their schema."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from asyncconsumer.errors import NotFramed, WrongSchema
from asyncconsumer.serdes.schemas import Schema, Schemas
from asyncconsumer.serdes.types import Made

T = TypeVar("T")

START: Final = 5  # a zero byte and the four bytes of the id


class Framed(Generic[T]):
    """A deserializer of bytes in the wire format. It requests each schema from the registry once.

    Later records with the same schema id are deserialized without an await.
    """

    def __init__(
        self, schemas: Schemas, kind: str, reader_of: Callable[[Schema], Callable[[bytes], T]]
    ) -> None:
        self._schemas = schemas
        self._kind = kind
        self._reader_of = reader_of
        self._readers: dict[bytes, Callable[[bytes], T]] = {}

    def __call__(self, data: bytes) -> Made[T]:
        """Return the value that the bytes `data` represent.

        If its schema is not known yet, return a coroutine that requests the schema and returns the
        value.
        """
        read = self._readers.get(data[:START])
        return self._read_first(data) if read is None else read(data)

    async def _read_first(self, data: bytes) -> T:
        start = data[:START]
        if len(start) < START:
            raise NotFramed(f"{len(data)} bytes are too short for a schema id")
        if start[0] != 0:
            raise NotFramed("the first byte is not zero")
        schema = await self._schemas.get(int.from_bytes(start[1:], "big"), self._kind)
        if schema.kind != self._kind:
            raise WrongSchema(
                schema.id, f"expected a schema of type {self._kind}, got {schema.kind}"
            )
        read = self._readers[start] = self._reader_of(schema)
        return read(data)


def unusable(schema: Schema, error: Exception) -> WrongSchema:
    """Return the error for a schema that fastavro, jsonschema or protobuf rejected with `error`."""
    return WrongSchema(schema.id, f"the schema is invalid: {error!r}")


def plain(made: Any) -> Any:  # noqa: ANN401
    """Return the decoded value unchanged, for deserializers without a model."""
    return made

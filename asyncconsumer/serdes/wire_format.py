"""Bytes that begin with the id of their schema, as the serializers of a registry write them."""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from asyncconsumer.errors import NotFramed, WrongSchema
from asyncconsumer.serdes.schemas import Schema, Schemas
from asyncconsumer.serdes.types import Made

T = TypeVar("T")

START: Final = 5  # a zero, and four bytes of the id


class Framed(Generic[T]):
    """Reads each record with its own schema, which is asked for when it is first seen.

    From then on it is found by how a record begins, and nothing is awaited.
    """

    def __init__(
        self, schemas: Schemas, kind: str, reader_of: Callable[[Schema], Callable[[bytes], T]]
    ) -> None:
        self._schemas = schemas
        self._kind = kind
        self._reader_of = reader_of
        self._readers: dict[bytes, Callable[[bytes], T]] = {}

    def __call__(self, data: bytes) -> Made[T]:
        """Return the value, or a coroutine for it while the schema is not known."""
        read = self._readers.get(data[:START])
        return self._learnt(data) if read is None else read(data)

    async def _learnt(self, data: bytes) -> T:
        start = data[:START]
        if len(start) < START:
            raise NotFramed(f"{len(data)} bytes are too few for the id of a schema")
        if start[0] != 0:
            raise NotFramed("the bytes do not begin with a zero")
        schema = await self._schemas.get(int.from_bytes(start[1:], "big"))
        if schema.kind != self._kind:
            raise WrongSchema(schema.id, f"it is {schema.kind}, and {self._kind} is wanted")
        read = self._readers[start] = self._reader_of(schema)
        return read(data)


def unusable(schema: Schema, error: Exception) -> WrongSchema:
    """A schema that its own package does not understand."""
    return WrongSchema(schema.id, f"it cannot be used: {error!r}")


def plain(made: Any) -> Any:  # noqa: ANN401
    """Return the value unchanged."""
    return made

"""Errors of schemas and of the schema registry."""

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class SchemaRegistryError(ConsumerError):
    """A request to a schema registry failed. ``registry`` is its address."""

    advice: ClassVar[str] = ""

    def __init__(self, registry: str, reason: str) -> None:
        super().__init__(registry, reason)
        self.registry = registry
        self.reason = reason

    def __str__(self) -> str:
        return f"schema registry {self.registry}: {self.reason}. {self.advice}".rstrip(" ")


class RegistryUnavailable(SchemaRegistryError):
    """The registry is unreachable, did not answer in time, or reports a temporary failure."""

    retriable = True
    advice = "Check that the registry runs and that no firewall blocks the connection"


class RegistryRefused(SchemaRegistryError):
    """The registry rejected the request, or the server is not a schema registry."""

    advice = "Check the address, the credentials and their access rights"


class UnknownSchema(SchemaRegistryError):
    """The registry has no schema with the id in the record."""

    advice = "Check that the producer uses the same registry"


class WrongBytes(ConsumerError, ValueError):
    """The bytes of a value are not in the expected format. The message does not contain them."""


class NotFramed(ConsumerError):
    """The bytes have no schema registry header, which is a zero byte and a schema id."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason}. Check that the producer uses a schema registry serializer"


class WrongSchema(ConsumerError):
    """The schema of a record does not fit the schema or type with which the record is read."""

    def __init__(self, schema_id: int, reason: str) -> None:
        super().__init__(schema_id, reason)
        self.schema_id = schema_id
        self.reason = reason

    def __str__(self) -> str:
        return f"schema {self.schema_id}: {self.reason}"

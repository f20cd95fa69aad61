"""What can go wrong with schemas, and with the registry that keeps them."""

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class SchemaRegistryError(ConsumerError):
    """Something between us and a schema registry. ``registry`` says which, ``reason`` what."""

    advice: ClassVar[str] = ""

    def __init__(self, registry: str, reason: str) -> None:
        super().__init__(registry, reason)
        self.registry = registry
        self.reason = reason

    def __str__(self) -> str:
        return f"schema registry {self.registry}: {self.reason}. {self.advice}".rstrip(" ")


class RegistryUnavailable(SchemaRegistryError):
    """It cannot be reached, does not answer in time, or is not able to answer now."""

    retriable = True
    advice = "Check that it runs there, and that nothing blocks the way"


class RegistryRefused(SchemaRegistryError):
    """It does not answer what we ask: an access right is missing, or it is no schema registry."""

    advice = "Check its address, the credentials, and what they allow"


class UnknownSchema(SchemaRegistryError):
    """The registry has no schema with the id that is in the record."""

    advice = "Is it the registry that the producer uses?"


class WrongBytes(ConsumerError, ValueError):
    """The bytes are not what is read here. The text quotes none of them."""


class NotFramed(ConsumerError):
    """The bytes do not begin as those of a registry's serializers do: a zero, and a schema's id."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason}. Was this written with a schema registry?"


class WrongSchema(ConsumerError):
    """What a record was written with cannot be read as what is wanted."""

    def __init__(self, schema_id: int, reason: str) -> None:
        super().__init__(schema_id, reason)
        self.schema_id = schema_id
        self.reason = reason

    def __str__(self) -> str:
        return f"schema {self.schema_id}: {self.reason}"

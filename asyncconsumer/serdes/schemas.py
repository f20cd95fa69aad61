"""The cache of schemas from a registry. Each schema is requested once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.errors import (
    ConsumerError,
    RegistryRefused,
    RegistryUnavailable,
    UnknownSchema,
    WrongSchema,
)
from asyncconsumer.serdes.models import package

T = TypeVar("T")

RegistryClient: TypeAlias = Any
"""Confluent's AsyncSchemaRegistryClient, whose types are incomplete."""
_RegistrySchema: TypeAlias = Any  # as that client returns it

_RETRIABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_RULES_OF_READERS: Final = frozenset({"READ", "WRITEREAD"})
_FORMATS: Final = {"PROTOBUF": "serialized"}  # a descriptor, not the text of a .proto file


class Reference(NamedTuple):
    """A schema to which another schema refers, and the name in that reference."""

    name: str
    text: str


class Schema(NamedTuple):
    """A schema with all schemas that it refers to, directly or indirectly.

    In `references`, each schema comes after those that it refers to.
    """

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...]


class SchemaText(NamedTuple):
    """A schema to register, with the schemas that it refers to, by their names in its text."""

    kind: str
    text: str
    references: Mapping[str, "SchemaText"] = {}


class RegistryClientOptions(NamedTuple):
    """The options of requests to the schema registry."""

    url: str  # without secrets, because errors show it
    request_timeout_ms: int
    patience_ms: int
    randomness: Random


class Schemas:
    """A cache of schemas. It opens a client for each request unless `keep_open` was called."""

    def __init__(
        self, new_client: Callable[[], RegistryClient], options: RegistryClientOptions
    ) -> None:
        self._new_client = new_client
        self._options = options
        self._open_client: RegistryClient | None = None
        self._known: dict[int, Schema] = {}
        self._asked: dict[int, asyncio.Event] = {}  # requests in flight

    def keep_open(self) -> None:
        """Use one client for all requests until `close`."""
        self._open_client = self._open_client or self._new_client()

    async def close(self) -> None:
        """Close the client that `keep_open` opened. The cached schemas remain."""
        client, self._open_client = self._open_client, None
        if client is not None:
            await client.aclose()

    async def get(self, schema_id: int, kind: str) -> Schema:
        """Return the schema with this id, which is expected to be of the type `kind`.

        After retriable errors, the request is repeated for up to `patience_ms`.
        """
        while (known := self._known.get(schema_id)) is None:
            if (asked := self._asked.get(schema_id)) is not None:
                await asked.wait()  # if that request failed, this task requests
                continue
            asked = self._asked[schema_id] = asyncio.Event()
            try:
                self._known[schema_id] = await self._request(
                    f"schema {schema_id}", lambda client: _ask(client, schema_id, kind)
                )
            finally:
                del self._asked[schema_id]
                asked.set()
        return known

    async def of_subject(self, subject: str, text: SchemaText | None, *, register: bool) -> Schema:
        """Return `text` as a schema of the subject, or its latest schema if `text` is None.

        `text` is registered, with its references under their names. With ``register=False``, raise
        UnknownSchema if it is not registered.
        """
        about = f"subject {subject!r}"
        if text is None:
            return await self._request(about, lambda client: _ask_latest(client, subject))
        schema_id = await self._request(
            about, lambda client: _register(client, subject, text, register=register)
        )
        return await self.get(schema_id, text.kind)

    async def _request(self, about: str, ask: Callable[[RegistryClient], Awaitable[T]]) -> T:
        patience = RetryDeadline(self._options.patience_ms, self._options.randomness)
        while True:
            try:
                async with self._translated(about), self._client() as client:
                    async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                        return await ask(client)
            except ConsumerError as error:
                await patience.wait_or_raise(error)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[RegistryClient]:
        if self._open_client is not None:
            yield self._open_client
            return
        async with self._new_client() as client:
            yield client

    @asynccontextmanager
    async def _translated(self, about: str) -> AsyncIterator[None]:
        registry = package("confluent_kafka.schema_registry", "a schema registry")
        url = self._options.url
        try:
            yield
        except ConsumerError:
            raise
        except registry.SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise UnknownSchema(url, f"{about}: {error.error_message}") from error
            kind = RegistryUnavailable if error.http_status_code in _RETRIABLE else RegistryRefused
            raise kind(url, f"{about}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{about}: the response is invalid: {error!r}"
            raise RegistryRefused(url, reason) from error
        except Exception as error:  # errors of its HTTP client, and timeouts
            raise RegistryUnavailable(url, f"{about}: {error!r}") from error


async def _ask(client: RegistryClient, schema_id: int, kind: str | None = None) -> Schema:
    form = _FORMATS.get(kind or "")
    registered = await client.get_schema(schema_id, fmt=form)
    _check_rules(schema_id, registered.rule_set)
    references: dict[tuple[str, int], Reference | None] = {}
    await _collect(client, registered, form, references)
    needed = tuple(each for each in references.values() if each is not None)
    return Schema(schema_id, registered.schema_type or "AVRO", _text(registered), needed)


async def _ask_latest(client: RegistryClient, subject: str) -> Schema:
    latest = await client.get_latest_version(subject)
    return await _ask(client, latest.schema_id)


async def _register(
    client: RegistryClient, subject: str, text: SchemaText, *, register: bool
) -> int:
    """Register a schema, or with ``register=False`` look it up. Return its id.

    Schemas that `text` refers to are registered first.
    """
    registry = package("confluent_kafka.schema_registry", "a schema registry")
    references = []
    for name, needed in text.references.items():
        await _register(client, name, needed, register=register)
        version = (await client.get_latest_version(name)).version
        references.append(registry.SchemaReference(name, name, version))
    schema = registry.Schema(text.text, text.kind, references)
    if register:
        schema_id: int = await client.register_schema(subject, schema)
        return schema_id
    known: int = (await client.lookup_schema(subject, schema)).schema_id
    return known


async def _collect(
    client: RegistryClient,
    schema: _RegistrySchema,
    form: str | None,
    references: dict[tuple[str, int], Reference | None],
) -> None:
    """Add all schemas that `schema` refers to, directly or indirectly, to `references`.

    Each schema is added after the schemas that it refers to itself. The keys of `references` are
    subjects and versions. `form` is the format in which the registry returns a schema.
    """
    for reference in schema.references or ():
        identity = reference.subject, reference.version
        if identity in references:
            continue
        references[identity] = None  # so that another reference to it is not requested again
        registered = await client.get_version(*identity, deleted=True, fmt=form)
        await _collect(client, registered.schema, form, references)
        del references[identity]  # it must come after the schemas that it refers to
        references[identity] = Reference(reference.name, _text(registered.schema))


def _text(schema: _RegistrySchema) -> str:
    if not isinstance(schema.schema_str, str):
        raise TypeError("the schema has no text")
    return schema.schema_str


def _check_rules(schema_id: int, rules: _RegistrySchema) -> None:
    """Raise WrongSchema if a schema has rules for reading, such as decryption.

    Only Confluent's own deserializers apply such rules. Without them the data would be misread.
    """
    if rules is None:
        return
    for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ())):
        if str(rule.mode) in _RULES_OF_READERS and not rule.disabled:
            raise WrongSchema(
                schema_id,
                f"its rule {rule.name!r} ({rule.type}) must run on read. Only Confluent's "
                "deserializers run rules, with a SerializationContext. Call one of them in an "
                "object with a method deserialize(data, place)",
            )

"""The cache of registry schemas; each schema is requested once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.errors import (
    ConsumerError,
    RegistryRefused,
    RegistryUnavailable,
    UnknownSchema,
    WrongSchema,
)
from asyncconsumer.serdes.models import package

Client: TypeAlias = Any
"""Confluent's AsyncSchemaRegistryClient, which has no types that could be relied on."""
_Theirs: TypeAlias = Any  # what that client returns

_MAY_PASS: Final = frozenset({408, 429, 500, 502, 503, 504})
_RULES_OF_READERS: Final = frozenset({"READ", "WRITEREAD"})


class Reference(NamedTuple):
    """A schema that another one needs, and what it is called there."""

    name: str
    text: str


class Schema(NamedTuple):
    """One schema, with all that it needs; what others need comes before them."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...]


class RegistryClientOptions(NamedTuple):
    """The options of requests to the registry."""

    url: str  # without secrets: it is told in errors
    request_timeout_ms: int
    patience_ms: int
    randomness: Random


class Schemas:
    """Asks the registry. A client is kept open only by who says so: few questions are asked."""

    def __init__(self, new_client: Callable[[], Client], asking: RegistryClientOptions) -> None:
        self._new_client = new_client
        self._asking = asking
        self._kept: Client | None = None
        self._known: dict[int, Schema] = {}
        self._asked: dict[int, asyncio.Event] = {}  # by somebody, just now

    def keep_open(self) -> None:
        """Use one client from now on, until `close`."""
        self._kept = self._kept or self._new_client()

    async def close(self) -> None:
        """Close that one. What is known stays known."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.aclose()

    async def get(self, schema_id: int) -> Schema:
        """Return the schema with that id; retry retriable errors until the deadline."""
        while (known := self._known.get(schema_id)) is None:
            if (asked := self._asked.get(schema_id)) is not None:
                await asked.wait()  # if that was in vain it is our turn
                continue
            asked = self._asked[schema_id] = asyncio.Event()
            try:
                self._known[schema_id] = await self._ask_patiently(schema_id)
            finally:
                del self._asked[schema_id]
                asked.set()
        return known

    async def _ask_patiently(self, schema_id: int) -> Schema:
        patience = RetryDeadline(self._asking.patience_ms, self._asking.randomness)
        while True:
            try:
                async with self._translated(schema_id), self._client() as client:
                    async with asyncio.timeout(self._asking.request_timeout_ms / 1000):
                        return await _ask(client, schema_id)
            except ConsumerError as error:
                await patience.bear(error)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        if self._kept is not None:
            yield self._kept
            return
        async with self._new_client() as client:
            yield client

    @asynccontextmanager
    async def _translated(self, schema_id: int) -> AsyncIterator[None]:
        registry = package("confluent_kafka.schema_registry", "a schema registry")
        url = self._asking.url
        try:
            yield
        except ConsumerError:
            raise
        except registry.SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise UnknownSchema(url, f"schema {schema_id}: {error.error_message}") from error
            what = RegistryUnavailable if error.http_status_code in _MAY_PASS else RegistryRefused
            raise what(url, f"schema {schema_id}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"schema {schema_id}: not the answer of a registry: {error!r}"
            raise RegistryRefused(url, reason) from error
        except Exception as error:  # what its HTTP client raises, and time-outs
            raise RegistryUnavailable(url, f"schema {schema_id}: {error!r}") from error


async def _ask(client: Client, schema_id: int) -> Schema:
    found = await client.get_schema(schema_id)
    _check_rules(schema_id, found.rule_set)
    references: dict[tuple[str, int], Reference | None] = {}
    await _collect(client, found, references)
    needed = tuple(each for each in references.values() if each is not None)
    return Schema(schema_id, found.schema_type or "AVRO", _text(found), needed)


async def _collect(
    client: Client, schema: _Theirs, found: dict[tuple[str, int], Reference | None]
) -> None:
    """What a schema refers to, each after what it refers to itself."""
    for reference in schema.references or ():
        where = reference.subject, reference.version
        if where in found:
            continue
        found[where] = None  # being asked for: who refers to it again need not ask
        registered = await client.get_version(*where, deleted=True)
        await _collect(client, registered.schema, found)
        del found[where]  # so that it comes behind those
        found[where] = Reference(reference.name, _text(registered.schema))


def _text(schema: _Theirs) -> str:
    if not isinstance(schema.schema_str, str):
        raise TypeError("a schema without a text")
    return schema.schema_str


def _check_rules(schema_id: int, rules: _Theirs) -> None:
    """Rules, encryption above all, are confluent's to run: without them we would misread."""
    if rules is None:
        return
    for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ())):
        if str(rule.mode) in _RULES_OF_READERS and not rule.disabled:
            raise WrongSchema(
                schema_id,
                f"its rule {rule.name!r} ({rule.type}) is to be run on reading, which only "
                "confluent's own deserializers do, with a SerializationContext: call one in a "
                "deserialize(data, place) of yours",
            )

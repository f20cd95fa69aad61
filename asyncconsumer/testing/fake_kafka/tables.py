"""Requests and responses as dictionaries, by the message schemas of `asyncconsumer.protocol`."""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from types import SimpleNamespace
from typing import Any, TypeAlias

from asyncconsumer.aiokafka_parts import Array, RequestStruct, Schema
from asyncconsumer.protocol.flexible import TAGS
from asyncconsumer.protocol.rows import PackedRows, TextRows
from asyncconsumer.protocol.schema import Api
from asyncconsumer.testing.fake_kafka.broker import Handler, Request

Reply: TypeAlias = Callable[[dict[str, Any]], None]
"""A function that sends a response. Its argument has the fields of all versions of the response."""


def handler(api: Api, values: Callable[[Request, dict[str, Any]], dict[str, Any]]) -> Handler:
    """Return a Handler that answers each request of an API at once.

    `values` is called with a request and its fields, and returns the fields of the response, for
    all versions of the API. Fields that the version of the request lacks are left out.
    """
    return later(api, lambda request, received, reply: reply(values(request, received)))


def later(api: Api, begin: Callable[[Request, dict[str, Any], Reply], None]) -> Handler:
    """Return a Handler for an API, whose responses may be delayed.

    `begin` is called with a request, its fields and a function that sends the response.
    """
    structs = _structs(api)

    def answer(request: Request) -> None:
        struct = structs[request.received.version]
        received = _named(struct.SCHEMA, BytesIO(request.received.data[request.start :]))
        schema = struct.RESPONSE_TYPE.SCHEMA

        def reply(values: dict[str, Any]) -> None:
            request.answer(bytes(schema.encode(_arranged(schema, values))))

        begin(request, received, reply)

    return Handler(api.versions, api.flexible_since, answer)


@cache  # building them takes as long as a short test
def _structs(api: Api) -> dict[int, type[RequestStruct]]:
    """Return the request class of each version of an API."""
    return {struct.API_VERSION: struct for struct in api.structs()}


def _named(schema: Schema, data: BytesIO) -> dict[str, Any]:
    rows = schema.decode(data)
    named: dict[str, Any] = _by_name(schema, rows)
    return named


def _by_name(kind: Any, value: Any) -> Any:  # noqa: ANN401 - the schema is untyped
    """Return the decoded `value` with each row of the schema `kind` converted to a dictionary."""
    if isinstance(kind, Schema):
        pairs = zip(kind.names, kind.fields, value, strict=True)
        return {name: _by_name(field, item) for name, field, item in pairs}
    if isinstance(kind, Array) and value is not None:
        return [_by_name(kind.array_of, row) for row in value]
    return value


def _arranged(kind: Any, value: Any) -> Any:  # noqa: ANN401 - the schema is untyped
    """Return `value` with each dictionary converted to a row, in the field order of `kind`."""
    if isinstance(kind, Schema):
        return [
            {} if name == TAGS else _arranged(field, value[name])
            for name, field in zip(kind.names, kind.fields, strict=True)
        ]
    if isinstance(kind, PackedRows | TextRows):
        return [SimpleNamespace(**row) for row in value]
    if isinstance(kind, Array) and value is not None:
        return [_arranged(kind.array_of, row) for row in value]
    return value

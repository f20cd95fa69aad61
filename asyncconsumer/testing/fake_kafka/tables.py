"""Requests read and answers written by the tables of `asyncconsumer.records`, as dictionaries."""

from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any, TypeAlias

from aiokafka.protocol.types import Array, Schema

from asyncconsumer.protocol.flexible import TAGS
from asyncconsumer.protocol.rows import PackedRows, TextRows
from asyncconsumer.protocol.schema import Api
from asyncconsumer.testing.fake_kafka.broker import Handler, Request

Reply: TypeAlias = Callable[[dict[str, Any]], None]
"""Sends an answer, now or later; it has every field of every version."""


def handler(api: Api, values: Callable[[Request, dict[str, Any]], dict[str, Any]]) -> Handler:
    """A Handler for an API whose `values` makes the fields of an answer out of those of a request.

    An answer has every field of every version; those that the version lacks are left out.
    """
    return later(api, lambda request, wanted, reply: reply(values(request, wanted)))


def later(api: Api, begin: Callable[[Request, dict[str, Any], Reply], None]) -> Handler:
    """The same for an API whose answers may take a while: `begin` is given a way to reply."""
    structs = {struct.API_VERSION: struct for struct in api.structs()}

    def answer(request: Request) -> None:
        struct = structs[request.asked.version]
        wanted = _named(struct.SCHEMA, BytesIO(request.asked.data[request.start :]))
        schema = struct.RESPONSE_TYPE.SCHEMA

        def reply(values: dict[str, Any]) -> None:
            request.answer(bytes(schema.encode(_arranged(schema, values))))

        begin(request, wanted, reply)

    return Handler(api.versions, api.flexible_since, answer)


def _named(schema: Schema, data: BytesIO) -> dict[str, Any]:
    rows = schema.decode(data)
    named: dict[str, Any] = _by_name(schema, rows)
    return named


def _by_name(kind: Any, value: Any) -> Any:  # noqa: ANN401 - as the kind, which is untyped, wants it
    """A decoded value with its rows as dictionaries."""
    if isinstance(kind, Schema):
        pairs = zip(kind.names, kind.fields, value, strict=True)
        return {name: _by_name(field, one) for name, field, one in pairs}
    if isinstance(kind, Array) and value is not None:
        return [_by_name(kind.array_of, row) for row in value]
    return value


def _arranged(kind: Any, value: Any) -> Any:  # noqa: ANN401 - as above
    """Dictionaries as rows in the order of a schema."""
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

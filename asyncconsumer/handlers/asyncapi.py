"""The AsyncAPI document of an app: its topics, and the records that it reads and writes."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer.dead_letters import PREFIX
from asyncconsumer.handlers.arguments import Argument, Dependency, RecordPart
from asyncconsumer.handlers.handler import Handler
from asyncconsumer.handlers.publishing import UNTYPED, Publish, result_types
from asyncconsumer.serdes.model_schemas import Mode, ModelSchemas, SchemaRequest, model_schemas
from asyncconsumer.serdes.models import named, without_none
from asyncconsumer.serdes.registry_format import RegistryFormat

Object: TypeAlias = dict[str, Any]
"""An object of the document, as JSON."""

_VERSION: Final = "3.0.0"
_BINDING: Final = {"bindingVersion": "0.5.0"}
_SCHEMAS: Final = "#/components/schemas/"
_AVRO: Final = "application/vnd.apache.avro+json;version=1.9.0"
_CONTENT_TYPES: Final = {
    "AVRO": "application/vnd.apache.avro",
    "JSON": "application/json",
    "PROTOBUF": "application/vnd.google.protobuf",
}
_PLAIN: Final = {
    None: "application/octet-stream",
    bytes: "application/octet-stream",
    str: "text/plain",
}
_UNNAMED: Final = (*_PLAIN, "json", dict, list, *UNTYPED)  # types that do not name a message
_SASL: Final = {
    "PLAIN": "plain",
    "SCRAM-SHA-256": "scramSha256",
    "SCRAM-SHA-512": "scramSha512",
    "GSSAPI": "gssapi",
}


class _MessagePart(NamedTuple):
    """The type of a topic's values or keys, and the object that converts them, if there is one."""

    kind: Any
    converter: object = None


class _TopicMessage(NamedTuple):
    """The records of a topic that a handler reads or writes."""

    value: _MessagePart | None
    key: _MessagePart | None = None
    headers: Sequence[RecordPart] = ()
    mode: Mode = "validation"
    failed: bool = False  # the records have the headers of a dead letter, too


class _ChannelOperation(NamedTuple):
    """A handler's access to a topic, to read or to write.

    For topics that match a pattern, `pattern` is set and `topic` is a made-up name.
    """

    name: str
    action: Literal["receive", "send"]
    topic: str
    messages: Sequence[_TopicMessage]
    handler: Handler
    pattern: str | None = None
    summary: str | None = None  # None stands for the documentation of the handler


def document(
    handlers: Sequence[Handler],
    connection: ConnectionConfig,
    group_id: str,
    *,
    title: str,
    version: str,
) -> Object:
    """Return the AsyncAPI 3 document of the handlers of an app, as an object that JSON represents.

    The document contains no user names and no passwords.
    """
    operations = [each for handler in handlers for each in _operations(handler)]
    schemas = model_schemas(_schema_requests(operations), _SCHEMAS)
    servers, security = _servers(connection)
    channels: dict[str, Object] = {}
    made: dict[str, Object] = {}
    group = {"groupId": {"type": "string", "enum": [group_id]}, **_BINDING}
    for each in operations:
        channel = channels.setdefault(each.topic, _channel(each))
        messages = [
            _reference("channels", each.topic, "messages", name)
            for name in _add_messages(channel["messages"], each, schemas)
        ]
        made[_unused(each.name, made)] = {
            "action": each.action,
            "channel": _reference("channels", each.topic),
            "title": each.handler.name,
            **_description(each),
            "messages": messages,
            **({"bindings": {"kafka": group}} if each.action == "receive" else {}),
        }
    components = {"schemas": schemas.definitions, "securitySchemes": security}
    return {
        "asyncapi": _VERSION,
        "info": {"title": title, "version": version},
        "defaultContentType": _CONTENT_TYPES["JSON"],
        "servers": servers,
        "channels": channels,
        "operations": made,
        "components": {name: each for name, each in components.items() if each},
    }


# --- operations ----------------------------------------------------------------------------------


def _operations(handler: Handler) -> Iterator[_ChannelOperation]:
    """Yield one operation for each topic that a handler reads, and for each that it writes."""
    name, options = handler.name.rpartition(".")[2], handler.handling
    read = _read(handler)
    topics = sorted(handler.topics)
    for topic in topics:
        suffix = f".{topic}" if len(topics) > 1 else ""
        yield _ChannelOperation(name + suffix, "receive", topic, [read], handler)
    if handler.pattern is not None:
        topic = f"{name}-pattern"
        yield _ChannelOperation(name, "receive", topic, [read], handler, handler.pattern.pattern)
    if isinstance(options.publish, Publish) and options.publish.topic is not None:
        written = list(_written(handler, options.publish, read))
        yield _ChannelOperation(f"{name}.publish", "send", options.publish.topic, written, handler)
    failed = read._replace(failed=True)
    for topic in options.retry_topics:
        suffix = f".{topic}" if len(options.retry_topics) > 1 else ""
        again = _ChannelOperation(f"{name}.retry{suffix}", "receive", topic, [failed], handler)
        yield again._replace(summary="Process records that failed again.")
        about = "Write records that failed, for a later attempt."
        yield again._replace(name=f"{name}.park{suffix}", action="send", summary=about)
    if options.dead_letter_topic is not None:
        topic, about = options.dead_letter_topic, "Write records that could not be processed."
        dead = _ChannelOperation(f"{name}.dead_letter", "send", topic, [failed], handler)
        yield dead._replace(summary=about)


def _read(handler: Handler) -> _TopicMessage:
    sources = list(_sources(handler.arguments))
    parts = {
        part: next(
            (_MessagePart(each.kind, each.deserializer) for each in sources if each.part == part),
            None,
        )
        for part in ("value", "key")
    }
    headers = {each.name: each for each in sources if each.part == "header"}
    return _TopicMessage(parts["value"], parts["key"], list(headers.values()))


def _sources(arguments: Iterable[Argument]) -> Iterator[RecordPart]:
    """Yield the parts of records that a handler and its dependencies use."""
    for argument in arguments:
        if argument.source is not None:
            yield argument.source
        if isinstance(argument.inject, Dependency):
            yield from _sources(argument.inject.arguments)


def _written(handler: Handler, publish: Publish, read: _TopicMessage) -> Iterator[_TopicMessage]:
    if publish.key is None and publish.key_serializer is None:
        key = None if handler.handling.batch else read.key
    else:
        key = None if publish.key_serializer is None else _part(publish.key_serializer)
    kinds = [kind for kind in result_types(handler.function) if kind not in UNTYPED]
    serializer = publish.serializer
    if serializer is not None:
        part = _part(serializer)
        annotated = len(kinds) == 1 and part.kind is None
        kinds = [Annotated[kinds[0], serializer] if annotated else serializer]
    for kind in kinds or [None]:
        value = None if kind is None else _part(kind)
        yield _TopicMessage(value, key, mode="serialization")


def _part(form: Any) -> _MessagePart:  # noqa: ANN401 - a form of a serializer
    """Return the type and the converter in `form`.

    `form` is a type, a serializer object, or a type that is annotated with a serializer object. A
    serializer object alone has no known type.
    """
    if get_origin(form) is Annotated:
        kind, *markers = get_args(form)
        serializer = next((each for each in markers if hasattr(each, "serialize")), None)
        return _MessagePart(kind, serializer)
    is_type = isinstance(form, type) or get_origin(form) is not None or form in ("json", Any)
    return _MessagePart(form) if is_type else _MessagePart(None, form)


def _schema_requests(operations: Iterable[_ChannelOperation]) -> Iterator[SchemaRequest]:
    for operation in operations:
        for message in operation.messages:
            parts = (message.value, message.key)
            yield from (
                SchemaRequest(part.kind, message.mode) for part in parts if part is not None
            )
            yield from (SchemaRequest(header.kind, message.mode) for header in message.headers)


# --- objects of the document ---------------------------------------------------------------------


def _servers(connection: ConnectionConfig) -> tuple[Object, Object]:
    """Return the objects `servers` and `securitySchemes` of the document."""
    schemes: Object = {}
    if connection.logs_in and connection.sasl_mechanism is not None:
        kind = _SASL.get(connection.sasl_mechanism)
        scheme: Object = {"type": "oauth2", "flows": {}} if kind is None else {"type": kind}
        schemes["sasl"] = {**scheme, "description": f"SASL {connection.sasl_mechanism}"}
    elif connection.encrypted and connection.ssl_certfile is not None:
        schemes["tls"] = {"type": "X509"}
    security = [_reference("components", "securitySchemes", name) for name in schemes]
    protocol = "kafka-secure" if connection.encrypted else "kafka"
    servers = {
        f"bootstrap-{number}": {
            "host": str(address),
            "protocol": protocol,
            **({"security": security} if security else {}),
        }
        for number, address in enumerate(connection.addresses, 1)
    }
    return servers, schemes


def _channel(operation: _ChannelOperation) -> Object:
    if operation.pattern is None:
        return {"address": operation.topic, "messages": {}}
    about = f"A topic whose whole name matches the regular expression `{operation.pattern}`."
    return {
        "address": "{topic}",
        "parameters": {"topic": {"description": about}},
        "messages": {},
    }


def _add_messages(
    known: dict[str, Object], operation: _ChannelOperation, schemas: ModelSchemas
) -> Iterator[str]:
    """Add the messages of an operation to `known`, the messages of its channel. Yield their names.

    A message that is in `known` already is not added again.
    """
    for message in operation.messages:
        name, made = _message_name(message, operation.topic), _message(message, schemas)
        same = (other for other, each in known.items() if each == made)
        if (existing := next(same, None)) is None:
            existing = _unused(name, known)
            known[existing] = made
        yield existing


def _message(message: _TopicMessage, schemas: ModelSchemas) -> Object:
    made: Object = {}
    binding: Object = {}
    if message.value is not None:
        made["contentType"] = _content_type(message.value)
        made["payload"] = _payload(message.value, message.mode, schemas)
        if isinstance(message.value.converter, RegistryFormat):
            binding |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "4"}
    if message.key is not None:
        schema = schemas.by_type[SchemaRequest(message.key.kind, message.mode)]
        binding["key"] = (
            schema if message.key.converter is None else _converted(message.key, schema)
        )
    if headers := _headers(message, schemas):
        made["headers"] = headers
    if binding:
        made["bindings"] = {"kafka": {**binding, **_BINDING}}
    return made


def _headers(message: _TopicMessage, schemas: ModelSchemas) -> Object | None:
    properties = {
        each.name: schemas.by_type[SchemaRequest(each.kind, message.mode)]
        for each in message.headers
    }
    required = [each.name for each in message.headers if each.required]
    if message.failed:
        about = {"type": "string", "description": "the reason of the failure, and its place"}
        return {
            "type": "object",
            "properties": properties,
            "patternProperties": {f"^{re.escape(PREFIX)}": about},
        }
    if not properties:
        return None
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _payload(part: _MessagePart, mode: Mode, schemas: ModelSchemas) -> Object:
    schema, converter = schemas.by_type[SchemaRequest(part.kind, mode)], part.converter
    if converter is None:
        return schema
    text = converter.text if isinstance(converter, RegistryFormat) else None
    if text is not None and text.kind == "AVRO" and not text.references:
        return {"schemaFormat": _AVRO, "schema": json.loads(text.text)}
    if text is not None and text.kind == "JSON" and not schema and '"$ref"' not in text.text:
        described: Object = json.loads(text.text)
        return described
    return _converted(part, schema)


def _converted(part: _MessagePart, schema: Object) -> Object:
    """Return `schema`, or if it is empty, a schema that only names the converter of `part`."""
    return schema or {"description": getattr(part.converter, "name", None) or named(part.converter)}


def _content_type(part: _MessagePart) -> str:
    if isinstance(part.converter, RegistryFormat):
        return _CONTENT_TYPES[part.converter.kind]
    if part.converter is not None:
        return _PLAIN[None]
    return _PLAIN.get(without_none(part.kind), _CONTENT_TYPES["JSON"])


def _message_name(message: _TopicMessage, topic: str) -> str:
    """Return the name of a message: the name of its type, or of its topic for an unnamed type."""
    value = message.value
    kind = None if value is None else without_none(value.kind)
    name = topic if kind in _UNNAMED else re.sub(r"[^\w.-]+", "_", named(kind)).strip("_")
    return f"{name}.failed" if message.failed else name


def _description(operation: _ChannelOperation) -> Object:
    """Return the `summary` and the `description` of an operation.

    An operation without a summary takes both from the docstring of the handler: the first
    paragraph, and all of it.
    """
    if operation.summary is not None:
        return {"summary": operation.summary}
    function = operation.handler.function
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    if not text:
        return {}
    summary, _, rest = text.partition("\n\n")
    summary = " ".join(summary.split())
    return {"summary": summary, **({"description": text} if rest else {})}


def _reference(*path: str) -> Object:
    return {"$ref": "#/" + "/".join(path)}


def _unused(name: str, taken: Mapping[str, object]) -> str:
    """Return `name`, with a number appended if it is in `taken`."""
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)

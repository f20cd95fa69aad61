"""A middleware that reads CloudEvents in binary and in structured mode."""

import base64
import binascii
import json
from typing import Any, Final

from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.records.decoding import Record

_STRUCTURED: Final = b"application/cloudevents+json"
_REQUIRED: Final = ("specversion", "id", "source", "type")


class CloudEvents:
    """Passes CloudEvents on in binary mode: the data is the value, attributes are headers.

    The handler reads attributes with ``Annotated[str, Header("ce_type")]``. An event in structured
    mode has the ``content-type`` ``application/cloudevents+json`` and becomes one in binary mode. A
    record that is no CloudEvent, or lacks a required attribute, cannot be deserialized.
    """

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Call the handler with records in binary mode."""
        if isinstance(context.item, list):
            return await call_next(context.with_item([_binary(each) for each in context.item]))
        return await call_next(context.with_item(_binary(context.item)))


def _binary(record: Record) -> Record:
    """Return a CloudEvent in binary mode."""
    headers = {name.lower(): text or b"" for name, text in record.headers}
    if headers.get("content-type", b"").lower().startswith(_STRUCTURED):
        return _from_structured(record)
    for name in _REQUIRED:
        if not headers.get(f"ce_{name}"):
            raise _failed(record, f"the header ce_{name} is missing")
    return record


def _from_structured(record: Record) -> Record:
    try:
        event = json.loads(record.value or b"")
        if not isinstance(event, dict):
            raise _failed(record, "the value is not a JSON object")
        data = event.pop("data", None)
        encoded = event.pop("data_base64", None)
        value = None if data is None else json.dumps(data).encode()
        if encoded is not None:
            value = base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError, binascii.Error) as error:
        raise _failed(record, type(error).__name__) from error
    for name in _REQUIRED:
        if not event.get(name):
            raise _failed(record, f"the attribute {name} is missing")
    other_headers = [header for header in record.headers if header[0].lower() != "content-type"]
    content_type = str(event.pop("datacontenttype", "application/json"))
    headers = [
        *other_headers,
        ("content-type", content_type.encode()),
        *((f"ce_{name}", _text(attribute)) for name, attribute in event.items()),
    ]
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        key=record.key,
        value=value,
        headers=headers,
    )


def _text(attribute: object) -> bytes:
    return (attribute if isinstance(attribute, str) else json.dumps(attribute)).encode()


def _failed(record: Record, reason: str) -> DeserializationFailed:
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    return DeserializationFailed("CloudEvent", record, place, reason)

"""A middleware that reads CloudEvents in binary and in structured mode, and writes them."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final

from asyncconsumer.errors import ConfigError, DeserializationFailed
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext
from asyncconsumer.handlers.outgoing import OutgoingRecord, PublishNext
from asyncconsumer.records.decoding import Record

_STRUCTURED: Final = b"application/cloudevents+json"
_REQUIRED: Final = ("specversion", "id", "source", "type")


class CloudEvents:
    """A middleware that converts CloudEvents to binary mode.

    In this mode, the data is the value, and the attributes are headers. The handler reads
    attributes with ``Annotated[str, Header("ce_type")]``. An event in structured mode, which has
    the ``content-type`` ``application/cloudevents+json``, is converted. For a record that is no
    CloudEvent, or lacks a required attribute, the handler call fails as for a deserialization
    error. With ``required=False`` the record is passed on unchanged.

    With `source`, the records that the handler publishes become CloudEvents in binary mode, with
    this source. `type` is their type, or a function of the record. The default is the topic. The id
    names the record that the handler was called with, so a repeated result has the same id. Headers
    that the handler has set remain, for example ``ce_type``.
    """

    def __init__(
        self,
        *,
        source: str | None = None,
        type: str | Callable[[OutgoingRecord], str] | None = None,  # noqa: A002 - the attribute
        content_type: str = "application/json",
        required: bool = True,
    ) -> None:
        if type is not None and source is None:
            raise ConfigError("`type` of CloudEvents needs the `source` of published events")
        self._source = source
        self._type = type
        self._content_type = content_type
        self._required = required

    async def publish(self, call_next: PublishNext, record: OutgoingRecord) -> Any:  # noqa: ANN401
        """Add the attributes of a CloudEvent to a record that the handler publishes."""
        if self._source is None:
            return await call_next(record)
        kind = self._type(record) if callable(self._type) else self._type
        read = record.context.record
        attributes = {
            "ce_specversion": "1.0",
            "ce_id": f"{read.topic}-{read.partition}-{read.offset}-{record.index}",
            "ce_source": self._source,
            "ce_type": kind or record.topic,
            "content-type": self._content_type,
        }
        missing = {name: text for name, text in attributes.items() if record.header(name) is None}
        return await call_next(record.with_headers(missing))

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Call the handler with records in binary mode."""
        if isinstance(context.item, list):
            return await call_next(context.with_item([*map(self._binary, context.item)]))
        return await call_next(context.with_item(self._binary(context.item)))

    def _binary(self, record: Record) -> Record:
        try:
            return _binary(record)
        except DeserializationFailed:
            if self._required:
                raise
            return record


def _binary(record: Record) -> Record:
    """Return a CloudEvent as a record in binary mode."""
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

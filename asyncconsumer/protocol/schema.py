"""Protocol messages as tables of fields.

Each field has a range of versions, as in Kafka's definitions.

A table becomes one `RequestStruct` class of aiokafka for each version. So connections of aiokafka
and of this package can send the messages. Flexible versions get compact lengths and tagged fields
without further declaration.
"""

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, cast

from asyncconsumer.aiokafka_parts import (
    AbstractType,
    Array,
    Bytes,
    CompactArray,
    CompactBytes,
    CompactString,
    IncompatibleBrokerVersion,
    Int8,
    Int32,
    Request,
    RequestStruct,
    Response,
    Schema,
    String,
    UnsignedVarInt32,
)
from asyncconsumer.errors import MalformedResponse
from asyncconsumer.protocol.flexible import TAGS, FlexibleHeaders, TaggedFields
from asyncconsumer.protocol.rows import (
    CODES,
    FieldValue,
    PackedNumbers,
    PackedRows,
    TextRows,
    plain_array,
)

FieldType: TypeAlias = Any  # an (untyped) type of aiokafka, `Text`, `BytesField`, `ArrayOf`

_NEWEST: Final = 2**15 - 1


class Uuid(AbstractType[uuid.UUID]):
    """A field type for ids of 16 bytes. All zeros mean that there is no id."""

    NONE: Final = uuid.UUID(int=0)

    @classmethod
    def encode(cls, value: uuid.UUID | None) -> bytes:
        """Return the 16 bytes of the id, or zeros for None."""
        return (value or cls.NONE).bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        """Read an id from the next 16 bytes."""
        if len(raw := data.read(16)) != 16:
            raise ValueError("Buffer underrun decoding Uuid")
        return uuid.UUID(bytes=raw)


class Rest(AbstractType[bytes]):
    """A field type for the rest of a response, as raw bytes for a separate parser."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Return the bytes of the field unchanged."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Return all remaining bytes of the response."""
        return data.read()


class Text:
    """A field type for strings, nullable or not. Its encoding depends on the version."""


class BytesField:
    """A field type for bytes, nullable or not. Its encoding depends on the version."""


class ArrayOf:
    """A field type for arrays of one kind of value, or of rows of fields."""

    def __init__(self, *of: FieldType) -> None:
        self.of = of


class NullableOf:
    """A field type for a row of fields that may be null."""

    def __init__(self, *of: "Field") -> None:
        self.of = of


class Row:
    """A field type for a row of fields that is never null. Its values are tuples."""

    def __init__(self, *of: "Field") -> None:
        self.of = of


class Field(NamedTuple):
    """A field of a message, with the first and the last version that have it."""

    name: str
    kind: FieldType
    since: int = 0
    until: int = _NEWEST


def schema(fields: Sequence[Field], version: int, *, flexible: bool) -> Schema:
    """Return the aiokafka `Schema` for the fields that `version` has."""
    present = [field for field in fields if field.since <= version <= field.until]
    columns = [(field.name, _kind(field.kind, version, flexible=flexible)) for field in present]
    return Schema(*columns, *([(TAGS, TaggedFields)] if flexible else []))


def _kind(kind: FieldType, version: int, *, flexible: bool) -> FieldType:
    if kind is Text:
        return CompactString("utf-8") if flexible else String("utf-8")
    if kind is BytesField:
        return CompactBytes if flexible else Bytes
    if isinstance(kind, NullableOf):
        return _NullableRow(schema(kind.of, version, flexible=flexible))
    if isinstance(kind, Row):
        return schema(kind.of, version, flexible=flexible)
    if not isinstance(kind, ArrayOf):
        return kind
    of = kind.of[0]
    if not isinstance(of, Field):
        if of in CODES:
            return PackedNumbers(of, flexible=flexible)
        return plain_array(_kind(of, version, flexible=flexible), flexible=flexible)
    row = schema(kind.of, version, flexible=flexible)
    for packed in (PackedRows, TextRows):
        if packed.fits(row):
            return packed(row, flexible=flexible)
    return plain_array(row, flexible=flexible)


class _NullableRow:
    """A nullable row, which begins with a byte that tells whether it is null.

    Its value is a tuple or None.
    """

    def __init__(self, row: Schema) -> None:
        self._row = row

    def encode(self, value: FieldValue) -> bytes:
        return b"\xff" if value is None else b"\x01" + bytes(self._row.encode(value))

    def decode(self, data: BytesIO) -> FieldValue:
        return None if Int8.decode(data) < 0 else self._row.decode(data)


class Writer:
    """An encoder for the values of a schema, which packs adjacent numbers in one call.

    aiokafka encodes field by field from lists, which takes three times as long. Fetch requests are
    frequent enough for this to matter.
    """

    def __init__(self, row: Schema) -> None:
        self._steps = list(_steps(row))

    def __call__(self, values: Mapping[str, FieldValue]) -> bytes:
        """Return the encoded values.

        A row is a mapping from field names to values. But a row of two or more numbers, with at
        most one string, is an object with one attribute per field.
        """
        return b"".join([step(values) for step in self._steps])


_EncodeStep: TypeAlias = Callable[[Mapping[str, FieldValue]], bytes]


def _steps(row: Schema) -> Iterator[_EncodeStep]:
    numbers: list[tuple[str, FieldType]] = []
    for name, kind in zip(row.names, row.fields, strict=True):
        if isinstance(kind, type) and kind in CODES:
            numbers.append((name, kind))
            continue
        if numbers:
            yield _numbers(numbers)
            numbers = []
        yield _field(name, kind)
    if numbers:
        yield _numbers(numbers)


def _numbers(fields: Sequence[tuple[str, FieldType]]) -> _EncodeStep:
    pack = struct.Struct(">" + "".join(CODES[kind] for _, kind in fields)).pack
    names = [name for name, kind in fields if kind is not TaggedFields]
    if len(names) > 1:
        get_values = itemgetter(*names)
        return lambda values: pack(*get_values(values))
    return lambda values: pack(*(values[name] for name in names))


def _field(name: str, kind: FieldType) -> _EncodeStep:
    encode = kind.encode
    if isinstance(kind, PackedRows | TextRows) or not (
        isinstance(kind, Array) and isinstance(kind.array_of, Schema)
    ):
        return lambda values: encode(values[name])
    write, extra = Writer(kind.array_of), int(isinstance(kind, CompactArray))
    count = UnsignedVarInt32.encode if extra else Int32.encode

    def rows(values: Mapping[str, FieldValue]) -> bytes:
        items = values[name]
        if items is None:
            return bytes(encode(None))
        return b"".join([count(len(items) + extra), *map(write, items)])

    return rows


class _TableResponse(Response):
    """A response of an `Api`. Its arrays of rows are not nullable."""

    def to_object(self) -> dict[str, Any]:
        """Return the fields by name. Raise MalformedResponse if an array of rows is null."""
        try:
            values: dict[str, Any] = super().to_object()
        except TypeError:  # aiokafka fails on a null array
            api = type(self).__name__.partition("Response")[0]
            raise MalformedResponse(api, self.API_VERSION, 0, "an array that is null") from None
        return values


class Api(NamedTuple):
    """A Kafka API in the supported versions, with the fields of its request and response."""

    name: str
    key: int
    versions: range
    flexible_since: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]

    def structs(self) -> tuple[type[RequestStruct], ...]:
        """Return the request class of each version, the oldest first."""
        return tuple(self._struct(version) for version in self.versions)

    def _struct(self, version: int) -> type[RequestStruct]:
        flexible = version >= self.flexible_since
        common = {"API_KEY": self.key, "API_VERSION": version, "__module__": __name__}
        response_schema = schema(self.response, version, flexible=flexible and self.response != RAW)
        response = type(
            f"{self.name}Response_v{version}",
            (_TableResponse,),
            common | {"SCHEMA": response_schema},
        )
        request_schema = schema(self.request, version, flexible=flexible)
        write = Writer(request_schema)
        members = {
            "RESPONSE_TYPE": response,
            "SCHEMA": request_schema,
            "encode": lambda self: write(vars(self)),
        }
        bases = (FlexibleHeaders, RequestStruct) if flexible else (RequestStruct,)
        return cast(
            "type[RequestStruct]", type(f"{self.name}Request_v{version}", bases, common | members)
        )


RAW: Final = (Field("body", Rest),)
"""The response of an API whose responses are parsed elsewhere."""


class TableRequest(Request[RequestStruct]):
    """A request that is sent in the newest version that this package and the broker support.

    ``values`` has the fields of all these versions. Fields that the chosen version lacks are left
    out. A row is a mapping, or an object if it consists of numbers and at most one string. If the
    request would mean something else without a field, set ``min_version`` to the first version that
    has it. ``max_version`` is the last version to use.
    """

    API_KEY: ClassVar[int] = -1
    API: ClassVar[Api]
    STRUCTS: ClassVar[tuple[type[RequestStruct], ...]]

    def __init_subclass__(cls, *, api: Api) -> None:
        cls.API_KEY = api.key
        cls.API = api
        super().__init_subclass__()
        cls.STRUCTS = api.structs()

    def __init__(
        self, values: Mapping[str, Any], *, min_version: int = 0, max_version: int = _NEWEST
    ) -> None:
        self._values = values
        self._min_version = min_version
        self._max_version = max_version

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        """Return the request in its newest version that the broker supports.

        `versions` has the broker's first and last version of each API. Raise
        IncompatibleBrokerVersion if there is no common version.
        """
        low, high = versions.get(self.API_KEY, (-1, -1))
        for candidate in reversed(self.STRUCTS):
            if max(low, self._min_version) <= candidate.API_VERSION <= min(high, self._max_version):
                return self.build(candidate)
        oldest = max(self.API.versions[0], self._min_version)
        newest = min(self.API.versions[-1], self._max_version)
        supported = f"versions {low} to {high}" if high >= 0 else "no version"
        raise IncompatibleBrokerVersion(
            f"{self.API.name} is needed in version {oldest} to {newest}, but the broker supports "
            f"{supported}"
        )

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the request in the version of `request_struct_class`."""
        values = self._values
        names = request_struct_class.SCHEMA.names
        return request_struct_class(*[{} if name == TAGS else values[name] for name in names])

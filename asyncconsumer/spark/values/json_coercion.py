"""The coercion of JSON values to the types of the schema, with the results of `from_json`.

If the schema has a string, a number, boolean, object or list becomes its JSON text. A decimal is
rounded half up. If an object has a key twice, the last value counts. The text is formatted as in
Java: there are no spaces, 1e3 becomes 1000.0, 1e400 becomes "Infinity" in quotes, and an emoji
within an object is escaped.

Known differences from Spark:

- Numbers are formatted as in Java 19 and later. Older versions of Java print another last digit for
  some numbers above 1e16.
- Numbers may have 4300 digits instead of 1000.
- Text that is not JSON, such as 'x' or +INF, stays malformed.
- A value with hundreds of nested levels stays malformed.
"""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from math import isfinite
from typing import Any, Final

import pyarrow as pa

from asyncconsumer.spark.values.decoder import Undecodable

_Coercion = Callable[[Any], Any]

# objects become tuples of pairs, because JSON text keeps repeated keys
_read: Final = JSONDecoder(object_pairs_hook=tuple, parse_float=Decimal).decode
_write: Final = JSONEncoder(ensure_ascii=False).encode

_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT: Final = {
    char: f"\\{escape}" for char, escape in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")  # stricter than Python
_LITERALS: Final = {None: "null", True: "true", False: "false"}
_NOT_FINITE: Final = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def make_coercer(kind: Any) -> Callable[[bytes], bytes]:  # noqa: ANN401 - pyarrow's
    """Return a function that converts one JSON value to JSON that fits the type `kind`.

    The function raises Undecodable if that is impossible.
    """
    coercion = _coercion(kind, "value")

    def coerce(value: bytes) -> bytes:
        try:
            coerced = coercion(_read(value.decode()))
            return _write(coerced).encode(errors="replace")  # as Java does
        except UnicodeDecodeError:
            raise Undecodable("the value is not UTF-8") from None
        except JSONDecodeError as error:
            raise Undecodable(f"the value is not JSON: {error}") from None
        except (ValueError, InvalidOperation, RecursionError):
            return value  # the number is too long or the value too deep, except perhaps for Arrow

    return coerce


def _coercion(kind: Any, name: str) -> _Coercion:  # noqa: ANN401 - pyarrow's
    """Return a function that converts a parsed JSON value to the type `kind`.

    `name` is the field's name in errors.
    """
    if pa.types.is_struct(kind):
        return _checked(_struct(kind, name), f"{name} is not an object")
    if pa.types.is_list(kind):
        return _checked(_list(kind, name), f"{name} is not a list")
    if pa.types.is_string(kind):
        return lambda value: value if value is None or type(value) is str else _text(value)
    for is_kind, leaf in _LEAVES:
        if is_kind(kind):
            return _checked(leaf(kind), f"{name} is not {kind}")
    return _checked(_scalar, f"{name} is not {kind}")


def _struct(kind: Any, name: str) -> _Coercion:  # noqa: ANN401 - pyarrow's
    fields = {field.name: _coercion(field.type, f"{name}.{field.name}") for field in kind}

    def coerce(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
        if type(value) is not tuple:
            return None
        return {key: fields[key](inner) for key, inner in value if key in fields}

    return coerce


def _list(kind: Any, name: str) -> _Coercion:  # noqa: ANN401 - pyarrow's
    inner = _coercion(kind.value_type, f"{name}[]")
    return lambda value: [inner(item) for item in value] if type(value) is list else None


def _checked(coercion: _Coercion, message: str) -> _Coercion:
    """Return a function that converts as `coercion` does, and accepts None.

    If `coercion` cannot convert a value and returns None, the function raises Undecodable with
    `message`.
    """

    def coerce(value: Any) -> Any:  # noqa: ANN401 - JSON
        if value is None:
            return None
        if (coerced := coercion(value)) is None:
            raise Undecodable(message)
        return coerced

    return coerce


def _integer(kind: Any) -> _Coercion:  # noqa: ANN401 - pyarrow's
    limit = 2 ** (kind.bit_width - 1)
    return lambda value: value if type(value) is int and -limit <= value < limit else None


def _decimal(kind: Any) -> _Coercion:  # noqa: ANN401 - pyarrow's
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP)
    last_digit = Decimal(1).scaleb(-kind.scale)

    def coerce(value: Any) -> str | None:  # noqa: ANN401 - JSON
        if type(value) is str:
            if not _DECIMAL.fullmatch(value):
                return None
        elif type(value) not in (int, Decimal):
            return None
        try:
            return f"{Decimal(value).quantize(last_digit, context=context):f}"
        except InvalidOperation:  # too many digits
            return None

    return coerce


def _floating(value: Any) -> float | None:  # noqa: ANN401 - JSON
    if type(value) is Decimal:
        return float(value)  # infinite if it is too large
    return value if type(value) in (int, float) else None


def _timestamp(value: Any) -> str | None:  # noqa: ANN401 - JSON
    if type(value) is not str:
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value


def _scalar(value: Any) -> Any:  # noqa: ANN401 - JSON
    if type(value) in (tuple, list):
        return None
    return float(value) if type(value) is Decimal else value


_LEAVES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], _Coercion]], ...]] = (
    (pa.types.is_boolean, lambda _: lambda value: value if type(value) is bool else None),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, lambda _: _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, lambda _: _timestamp),
)


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a parsed JSON value as JSON text, formatted as by Jackson."""
    kind = type(value)
    if kind is str:
        return f'"{_ESCAPED.sub(_escape, value)}"'
    if kind is int:
        return str(value)
    if kind in (Decimal, float):
        return _java_double(float(value))
    if kind is list:
        return f"[{','.join(map(_text, value))}]"
    if kind is tuple:
        return f"{{{','.join([f'{_text(key)}:{_text(inner)}' for key, inner in value])}}}"
    return _LITERALS[value]


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass").hex("-", 2).upper()
    return "".join(f"\\u{unit}" for unit in units.split("-"))


def _java_double(number: float) -> str:
    """Format a number as Java's `Double.toString` does.

    NaN and infinity are in quotes, as in Jackson.
    """
    if not isfinite(number):
        return _NOT_FINITE[str(number)]
    if not number or 1e-3 <= abs(number) < 1e7:
        return str(number)  # Java and Python agree in this range
    digits, power = f"{Decimal(str(number)):e}".split("e")
    digits = digits.rstrip("0")
    if len(digits.strip("-.")) == 1:  # Java prints at least two digits
        digits, power = f"{number:.1e}".split("e")
    return f"{digits}E{int(power)}"

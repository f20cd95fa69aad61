"""JSON of other types than the schema's, rewritten to what Spark's `from_json` takes it for.

A number, a boolean, an object or a list is its text where the schema has a string, and a decimal
is rounded half up. Of a key that is there twice the last one counts. The text is as Java has it:
without spaces, 1e3 is 1000.0, 1e400 is "Infinity" in quotes, and an emoji within an object is
escaped.

Not as in Spark: numbers are as Java 19 and newer writes them, where older ones have another last
digit for some of more than 1e16; they may have 4300 digits, not 1000; and what is not JSON, such as
'x' or +INF, stays malformed, as does a text that is hundreds of levels deep.
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

_Mend = Callable[[Any], Any]

# objects are tuples of pairs: a text has all of them, also those of the same name
_read: Final = JSONDecoder(object_pairs_hook=tuple, parse_float=Decimal).decode
_write: Final = JSONEncoder(ensure_ascii=False).encode

_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT: Final = {one: f"\\{by}" for one, by in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")  # Java's; Python takes more
_WORDS: Final = {None: "null", True: "true", False: "false"}
_NO_NUMBERS: Final = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def mender(kind: Any) -> Callable[[bytes], bytes]:  # noqa: ANN401 - pyarrow's
    """What rewrites a value, or raises Undecodable for one that cannot be of the type."""
    mend = _mend_of(kind, "value")

    def mended(value: bytes) -> bytes:
        try:
            return _write(mend(_read(value.decode()))).encode(errors="replace")  # as Java does
        except UnicodeDecodeError:
            raise Undecodable("it is not UTF-8") from None
        except JSONDecodeError as error:
            raise Undecodable(f"it is not JSON: {error}") from None
        except (ValueError, InvalidOperation, RecursionError):
            return value  # too long a number, too deep: Arrow may bear it

    return mended


def _mend_of(kind: Any, name: str) -> _Mend:  # noqa: ANN401 - pyarrow's
    """For what the parser made of a text: the same with the types of the schema."""
    if pa.types.is_struct(kind):
        return _checked(_struct(kind, name), f"{name} is not an object")
    if pa.types.is_list(kind):
        return _checked(_list(kind, name), f"{name} is not a list")
    if pa.types.is_string(kind):
        return lambda found: found if found is None or type(found) is str else _text(found)
    for is_kind, leaf in _LEAVES:
        if is_kind(kind):
            return _checked(leaf(kind), f"{name} is not {kind}")
    return _checked(_scalar, f"{name} is not {kind}")


def _struct(kind: Any, name: str) -> _Mend:  # noqa: ANN401 - pyarrow's
    fields = {field.name: _mend_of(field.type, f"{name}.{field.name}") for field in kind}

    def mend(found: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
        if type(found) is not tuple:
            return None
        return {key: fields[key](inner) for key, inner in found if key in fields}

    return mend


def _list(kind: Any, name: str) -> _Mend:  # noqa: ANN401 - pyarrow's
    inner = _mend_of(kind.value_type, f"{name}[]")
    return lambda found: [inner(one) for one in found] if type(found) is list else None


def _checked(mend_given: _Mend, unfit: str) -> _Mend:
    """None from it says that what was found cannot be of the type."""

    def mend(found: Any) -> Any:  # noqa: ANN401 - JSON
        if found is None:
            return None
        if (made := mend_given(found)) is None:
            raise Undecodable(unfit)
        return made

    return mend


def _integer(kind: Any) -> _Mend:  # noqa: ANN401 - pyarrow's
    most = 2 ** (kind.bit_width - 1)
    return lambda found: found if type(found) is int and -most <= found < most else None


def _decimal(kind: Any) -> _Mend:  # noqa: ANN401 - pyarrow's
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP)
    last_digit = Decimal(1).scaleb(-kind.scale)

    def mend(found: Any) -> str | None:  # noqa: ANN401 - JSON
        if type(found) is str:
            if not _DECIMAL.fullmatch(found):
                return None
        elif type(found) not in (int, Decimal):
            return None
        try:
            return f"{Decimal(found).quantize(last_digit, context=context):f}"
        except InvalidOperation:  # it has too many digits
            return None

    return mend


def _floating(found: Any) -> float | None:  # noqa: ANN401 - JSON
    if type(found) is Decimal:
        return float(found)  # what is too large is infinite
    return found if type(found) in (int, float) else None


def _moment(found: Any) -> str | None:  # noqa: ANN401 - JSON
    if type(found) is not str:
        return None
    try:
        datetime.fromisoformat(found)
    except ValueError:
        return None
    return found


def _scalar(found: Any) -> Any:  # noqa: ANN401 - JSON
    if type(found) in (tuple, list):
        return None
    return float(found) if type(found) is Decimal else found


_LEAVES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], _Mend]], ...]] = (
    (pa.types.is_boolean, lambda _: lambda found: found if type(found) is bool else None),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, lambda _: _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, lambda _: _moment),
)


def _text(found: Any) -> str:  # noqa: ANN401 - JSON
    """As Jackson writes it."""
    kind = type(found)
    if kind is str:
        return f'"{_ESCAPED.sub(_escape, found)}"'
    if kind is int:
        return str(found)
    if kind in (Decimal, float):
        return _java_double(float(found))
    if kind is list:
        return f"[{','.join(map(_text, found))}]"
    if kind is tuple:
        return f"{{{','.join([f'{_text(key)}:{_text(inner)}' for key, inner in found])}}}"
    return _WORDS[found]


def _escape(match: re.Match[str]) -> str:
    one = match[0]
    if one in _SHORT:
        return _SHORT[one]
    units = one.encode("utf-16-be", "surrogatepass").hex("-", 2).upper()
    return "".join(f"\\u{unit}" for unit in units.split("-"))


def _java_double(number: float) -> str:
    """As `Double.toString` writes it; what is not a number is in quotes, as Jackson has it."""
    if not isfinite(number):
        return _NO_NUMBERS[str(number)]
    if not number or 1e-3 <= abs(number) < 1e7:
        return str(number)  # here both write the same
    digits, power = f"{Decimal(str(number)):e}".split("e")
    digits = digits.rstrip("0")
    if len(digits.strip("-.")) == 1:  # Java has two at least, and has the second right
        digits, power = f"{number:.1e}".split("e")
    return f"{digits}E{int(power)}"

"""JSON with other types than the schema becomes the rows of Spark's `from_json`."""

from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json

from asyncconsumer.records import decoding
from asyncconsumer.spark.values.decoder import TypedColumns
from asyncconsumer.spark.values.json import JsonDecoder
from tests.support.record_encoder import Row, batch

SCHEMA: Final = (
    "s string, l array<string>, n struct<s: string, i: bigint>, o array<struct<s: string>>, "
    "d decimal(5,2), m decimal(38,18), z decimal(5,0), k array<decimal(3,1)>, "
    "i bigint, x double, f float, b boolean"
)
KIND: Final = pa.struct(
    [
        ("s", pa.string()),
        ("l", pa.list_(pa.string())),
        ("n", pa.struct([("s", pa.string()), ("i", pa.int64())])),
        ("o", pa.list_(pa.struct([("s", pa.string())]))),
        ("d", pa.decimal128(5, 2)),
        ("m", pa.decimal128(38, 18)),
        ("z", pa.decimal128(5, 0)),
        ("k", pa.list_(pa.decimal128(3, 1))),
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
    ]
)
CORRUPT: Final = "_corrupt_record"

STRINGS = [
    *("5", "-5", "0", "-0", "2147483648", "9223372036854775808", "1" * 300),
    *("0.0", "-0.0", "1.50", "1.000", "123e-2", "1e0", "0e5", "1e3", "1E3", "1e+3", "1e6", "1e7"),
    *("9999999.0", "10000000.0", "12345678.9", "1e10", "15e9", "0.001", "2e-3", "0.0009", "1e-5"),
    *("-1.5E-7", "0.1234567890123456789012345", "9007199254740993.0", "5e-324", "1e-400"),
    *("1.7976931348623157e308", "2.2250738585072014e-308", "1e400", "-1e400"),
    *("NaN", "Infinity", "-Infinity", "true", "false", "null"),
    *("{}", "{ }", "[]", "[ ]", '{"a": 1}', '{"a": null}', "[null]", '{"b": 1, "a": 2, "b": 3}'),
    '{ "b" : [1, 2.50, null, true, {"c": "x", "d": []}] , "a": {} }',
    '{"k": 1e400, "j": NaN, "i": 1e3, "h": -0, "g": -0.0, "f": 1.10}',
    r'{"k": "\u00e9 é / \/ \n \t \b \f \r \" \\ \u0001 \u001f \u007f \u0000 \u2028"}',
    r'{"\u00e9 \n \" \u001f": 1}',
    r'{"k": "\ud83d\ude00 😀"}',
    *(r'{"k": "\ud800"}', r'["\udc00x"]', r'"\ud83d\ude00 😀"', r'"\ud800 x"', r'"a\/\u00e9"'),
    *('"x"', '""', '"5"', "[" * 200 + "]" * 200),
    *("+1", ".5", "1.", "01", "Inf", '"\t"', '{"a": "\t"}', '{"a": 01}', "[1,]", '{"a": 1,}'),
]
DECIMALS = [
    *("1", "1.2", "1.23", "1.230", "1.234", "1.235", "1.245", "-1.234", "-1.235", "1.0050"),
    *("12.3450000000000000000000000001", "0." + "1" * 50, "0", "-0", "-0.001", "0e99999"),
    *("999.99", "999.994", "999.995", "1000", "-1000", "99999", "1" + "0" * 40, "1e99999"),
    *("1e2", "1.5e1", "1e3", "1E-3", "5e-3", "4.9e-3", "1e-400", "1e-2000"),
    *('"1"', '"1.23"', '"1.235"', '"1e2"', '"+1"', '".5"', '"1."', '"1000"', '"\u0661"'),
    *('""', '" 1"', '"1 "', '"x"', '"-"', '"1_0"', '"1,000"', '"0x1"', '"NaN"', '"Infinity"'),
    *("null", "true", "NaN", "Infinity", "{}", "[1]"),
]
WHOLE = [
    *('{"m": 12345678901234567890.1234567890123456785}', '{"m": 1e-19}', '{"m": 5e-19}'),
    *('{"m": 99999999999999999999.9999999999999999995}', '{"m": 123456789012345678901}'),
    *('{"z": 1.5}', '{"z": 2.5}', '{"z": -0.5}', '{"z": 99999.5}', '{"z": 1e4}', '{"z": 1e5}'),
    *('{"k": [1.25, 2, null, "3.34"]}', '{"k": [100]}'),
    '{"l": [1, "a", true, null, 1.50, {"a": 1}, [1, 2], [], [null]]}',
    *('{"l": []}', '{"l": null}', '{"l": "x"}', '{"l": {}}', '{"l": 5}'),
    *('{"n": {"s": 5, "i": 3}}', '{"n": {"s": {"i": 5}}}', '{"n": {"i": "x", "s": 5}}'),
    *('{"n": {"s": 1, "s": "b"}}', '{"n": {"i": 1, "i": null}}', '{"n": 5}', '{"n": []}'),
    *('{"n": ""}', '{"n": null}', '{"o": [{"s": 1}, null, {"s": [1.0]}, {}]}', '{"o": [1]}'),
    *('{"s": 1, "s": "b"}', '{"s": "b", "s": 1}', '{"s": "a", "s": null}', '{"i": 1, "i": 2}'),
    *('{"i": "x", "i": 2}', '{"i": 2, "i": "x"}', '{"d": 1.234, "d": 5}', '{"d": 1000, "d": 5}'),
    *('{"l": [1], "l": [2]}', '{"n": {"s": "a"}, "n": {"i": 1}}', '{"u": 1, "u": 2, "s": 5}'),
    *('{"S": 5}', '{"\\u0073": 5}', '{"s": 5, "u": "\\ud800"}', '{"s": 5, "u": 1e400}'),
    *('{"s": 5, "i": 1.0}', '{"s": 5, "i": "5"}', '{"s": 5, "i": 9223372036854775808}'),
    *('{"s": 5, "i": -0, "x": 1e400, "f": 0.1, "b": true}', '{"s": 5, "x": NaN, "f": 1e300}'),
    *('{"s": 5, "x": 1%s}' % ("0" * 400), '{"s": 5, "x": "1"}', '{"s": 5, "b": 1}'),
    *('{"s": 5}\n', '{"s": 5', '{"s": 5, "u": tru}', "{}", "5", '"x"', "[]", '[{"s": 5}]'),
]
VALUES = (
    [f'{{"s": {string}}}' for string in STRINGS]
    + [f'{{"d": {decimal}}}' for decimal in DECIMALS]
    + WHOLE
)


@pytest.fixture(scope="module")
def sparks(spark: SparkSession) -> dict[str, Any]:
    """Return Spark's result for each text, None if it is malformed."""
    frame = spark.createDataFrame([(value,) for value in VALUES], "text string")
    rows = frame.select(
        "text", from_json("text", f"{SCHEMA}, {CORRUPT} string").alias("row")
    ).collect()
    result = {text: row.asDict(recursive=True) for text, row in rows}
    return {text: None if row.pop(CORRUPT) is not None else row for text, row in result.items()}


@pytest.fixture(scope="module")
def tested() -> dict[str, Any]:
    schema = pa.schema([("value", KIND), (CORRUPT, pa.string())])
    columns = TypedColumns(schema, JsonDecoder(KIND), "json", "PERMISSIVE")
    data = batch([Row(number, value.encode()) for number, value in enumerate(VALUES)])
    rows = columns.next_batch(decoding.Records(data, topic="t", partition=3))
    assert rows is not None
    result = rows.to_pylist()
    for text, row in zip(VALUES, result, strict=True):
        assert row[CORRUPT] == (text if row["value"] is None else None)
    return {text: row["value"] for text, row in zip(VALUES, result, strict=True)}


@pytest.mark.parametrize("text", VALUES)
def test_rows_equal_those_of_from_json(
    text: str, tested: dict[str, Any], sparks: dict[str, Any]
) -> None:
    assert repr(tested[text]) == repr(sparks[text])  # NaN is not equal to itself

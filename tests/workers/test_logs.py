"""The log lines of workers and of their supervisor."""

import json
import logging
from datetime import datetime
from typing import Any

import pytest

from asyncconsumer.cli.logs import MessageWriter
from asyncconsumer.workers.logs import LogFormat, make_formatter

pytestmark = pytest.mark.fast


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("shop.orders", logging.WARNING, __file__, 1, message, args, None)
    vars(made).update(fields)
    return made


def line(made: logging.LogRecord, worker: int | None = 3) -> dict[str, Any]:
    text = make_formatter(LogFormat.JSON, worker).format(made)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_a_json_line_has_time_level_logger_message_and_worker() -> None:
    parsed = line(record("two\nlines of %s", "orders"))
    time = datetime.fromisoformat(parsed.pop("time"))
    assert time.utcoffset() is not None
    assert parsed == {
        "level": "WARNING",
        "logger": "shop.orders",
        "message": "two\nlines of orders",
        "worker": 3,
    }
    assert "worker" not in line(record("draining"), worker=None)


def test_a_json_line_has_the_fields_of_a_handler_and_no_record_value() -> None:
    fields = {"handler": "bill", "topic": "t", "partition": 0, "offset": 7, "attempts": 2}
    parsed = line(record("failed", **fields, value=b"4111", key=b"card"))
    assert {name: parsed[name] for name in fields} == fields
    assert parsed.keys().isdisjoint({"value", "key"})


def test_a_traceback_is_a_single_field() -> None:
    made = record("failed")
    try:
        dict[str, int]()["no such customer"]
    except KeyError as error:
        made.exc_info = (type(error), error, error.__traceback__)
    traceback = line(made)["traceback"]
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("KeyError: 'no such customer'")


def test_text_lines_have_a_time() -> None:
    date = datetime.now().astimezone().strftime("%Y-")
    worker = make_formatter(LogFormat.TEXT, 2).format(record("failed"))
    assert worker.startswith(date)
    assert worker.endswith(" worker 2 WARNING shop.orders: failed")
    supervisor = make_formatter(LogFormat.TEXT).format(record("worker 2 has ended"))
    assert supervisor.startswith(date)
    assert supervisor.endswith(" supervisor WARNING: worker 2 has ended")


def test_messages_of_the_supervisor_are_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write = MessageWriter(make_formatter(LogFormat.JSON))
    write("worker 1 is up")
    write("100% of the app is missing", logging.ERROR)
    up, missing = map(json.loads, capsys.readouterr().err.splitlines())
    assert (up["level"], up["message"]) == ("INFO", "worker 1 is up")
    assert (missing["level"], missing["message"]) == ("ERROR", "100% of the app is missing")

"""The log of commands."""

import logging

import pytest

from asyncconsumer.cli.logs import RepeatFilter

pytestmark = pytest.mark.fast


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("asyncconsumer", logging.WARNING, "", 0, message, arguments, None)


def test_a_message_about_one_subject_is_written_once() -> None:
    repeats = RepeatFilter()
    attempts = [record("failed: %s; next in %.1f s", "a:1", wait) for wait in (0.5, 0.7, 1.0)]
    assert [repeats.filter(attempt) for attempt in attempts] == [True, False, False]
    assert repeats.filter(record("failed: %s; next in %.1f s", "b:1", 0.5))
    assert repeats.filter(record("closed %s", "a:1"))


def test_a_message_is_written_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("asyncconsumer.cli.logs.time.monotonic", lambda: now)
    repeats = RepeatFilter()
    assert repeats.filter(record("no arguments"))
    assert not repeats.filter(record("no arguments"))
    now += 61
    assert repeats.filter(record("no arguments"))

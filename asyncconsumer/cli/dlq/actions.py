"""The actions of the commands of `asyncconsumer dlq`."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.dlq.json_lines import as_fields, from_lines, to_lines
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.dead_letter_queue import DeadLetter, DeadLetterFilter, DeadLetterQueue

_AT_ONCE: Final = 500  # records to send before they are marked as done
_LONGEST_MESSAGE: Final = 80  # characters of an error in the table


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The options of `asyncconsumer dlq replay`."""

    selection: DeadLetterFilter
    limit: int | None
    topic: str | None  # for all of them
    sources: frozenset[str]  # the topics to which they may be sent back
    edit: bool
    yes: bool
    as_json: bool = False


async def list_dead_letters(
    queue: DeadLetterQueue, selection: DeadLetterFilter, limit: int | None, *, as_json: bool
) -> None:
    """Print dead letters as a table or as JSON."""
    dead_letters = await queue.read(selection, limit=limit)
    if as_json:
        _print_json(dead_letters)
    else:
        _print(dead_letters)


async def show(
    queue: DeadLetterQueue, selection: DeadLetterFilter, place: str, *, as_json: bool
) -> None:
    """Print all fields of one dead letter."""
    dead_letters = await queue.read(selection)
    if not dead_letters:
        raise ConfigError(
            f"There is no dead letter {place}. It may be replayed, dropped or deleted. "
            "Names are as in `asyncconsumer dlq list`."
        )
    fields = as_fields(dead_letters[0])
    if as_json:
        text.print_json(fields)
        return
    for name, value in fields.items():
        text.console().print(text.cell(f"{name + ':':15} {'-' if value is None else value}"))


async def replay(queue: DeadLetterQueue, plan: ReplayPlan) -> None:
    """Send dead letters back to their topics. Mark each as done after it was written.

    Only dead letters of the topics `plan.sources` are sent. Their headers can name any topic,
    because other programs may write to the dead letter topic.
    """
    dead_letters = await queue.read(plan.selection, limit=plan.limit)
    if plan.edit and dead_letters:
        dead_letters = await _edited(dead_letters)
    if not plan.as_json:
        _print(dead_letters)
    if plan.topic is None:
        dead_letters = _of_sources(dead_letters, plan.sources)
    if plan.as_json:
        _print_json(dead_letters)
    if not _confirmed(dead_letters, "sent back", yes=plan.yes):
        return
    forgotten = 0
    for start in range(0, len(dead_letters), _AT_ONCE):
        block = dead_letters[start : start + _AT_ONCE]
        await queue.send(block, plan.topic)
        forgotten += await queue.finish(block)
    text.print_message(f"sent back {text.counted(len(dead_letters), 'dead letter')}", "green")
    _warn(forgotten)


async def export(
    queue: DeadLetterQueue, selection: DeadLetterFilter, limit: int | None, output: Path | None
) -> None:
    """Write dead letters as lines of JSON to a file or to standard output."""
    lines = to_lines(await queue.read(selection, limit=limit))
    if output is None:
        sys.stdout.write(lines)
        return
    try:
        await asyncio.to_thread(output.write_text, lines, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None


async def drop(
    queue: DeadLetterQueue,
    selection: DeadLetterFilter,
    limit: int | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Mark dead letters as done without sending them."""
    dead_letters = await queue.read(selection, limit=limit)
    (_print_json if as_json else _print)(dead_letters)
    if _confirmed(dead_letters, "dropped", yes=yes):
        forgotten = await queue.finish(dead_letters)
        text.print_message(f"dropped {text.counted(len(dead_letters), 'dead letter')}", "green")
        _warn(forgotten)


def _of_sources(dead_letters: list[DeadLetter], sources: frozenset[str]) -> list[DeadLetter]:
    """Return the dead letters that came from the topics `sources`.

    Print the number of all other dead letters.
    """
    others = Counter(each.record.topic for each in dead_letters if each.record.topic not in sources)
    if others:
        counts = ", ".join(f"{topic} ({n})" for topic, n in sorted(others.items()))
        text.print_message(
            f"dead letters of topics without --source are not sent: {counts}", "yellow"
        )
    return [each for each in dead_letters if each.record.topic in sources]


async def _edited(dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Open dead letters in the user's editor, and return the edited dead letters.

    Dead letters whose lines the user removed are left out.
    """
    lines = to_lines(dead_letters)
    return from_lines(await asyncio.to_thread(_edit, lines), dead_letters)


def _edit(lines: str) -> str:
    """Open a text in the user's editor. Return the saved text."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="asyncconsumer-") as folder:  # only for this user
        path = Path(folder, "dead-letters.jsonl")
        path.write_text(lines, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)  # noqa: S603 - chosen by the user
        except (OSError, subprocess.CalledProcessError) as error:
            raise ConfigError(
                f"The editor {editor!r} failed: {error}. Set the variable EDITOR."
            ) from None
        return path.read_text(encoding="utf-8")


def _confirmed(dead_letters: Sequence[DeadLetter], action: str, *, yes: bool) -> bool:
    if not dead_letters:
        text.print_message("there are no such dead letters", "green")
        return False
    if not yes:
        text.print_message(
            f"{text.counted(len(dead_letters), 'dead letter')} would be {action}; repeat the "
            "command with --yes",
            "yellow",
        )
        raise typer.Exit(1)
    return True


def _warn(forgotten: int) -> None:
    if forgotten:
        text.print_message(
            f"{forgotten} of them will be listed again, because the commit has no room for more "
            "gaps between them",
            "yellow",
        )


def _print_json(dead_letters: Sequence[DeadLetter]) -> None:
    text.print_json([as_fields(dead_letter) for dead_letter in dead_letters])


def _print(dead_letters: Sequence[DeadLetter]) -> None:
    now = datetime.now(UTC)
    table = text.table("place", "age", "original", "key", "handler", "error", "attempts")
    for dead_letter in dead_letters:
        record = dead_letter.record
        age = now - dead_letter.written
        key = None if record.key is None else record.key.decode(errors="backslashreplace")
        error = " ".join(f"{dead_letter.error_type}: {dead_letter.error_message}".split())
        cells = (
            dead_letter.place,
            str(age).partition(".")[0],
            f"{record.topic}[{record.partition}]@{record.offset}",
            key,
            dead_letter.handler,
            error[:_LONGEST_MESSAGE],
            dead_letter.attempts,
        )
        table.add_row(*map(text.cell, cells))
    text.console().print(table if dead_letters else "There are no dead letters.")

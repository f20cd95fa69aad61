"""Tracebacks as text of limited length, for headers of dead letters and for events."""

import traceback
from typing import Final

LONGEST_TRACEBACK: Final = 4_000
"""Characters of a traceback. The end is kept, because it names the failing line."""

_MOST_FRAMES: Final = 30  # of each exception, from the innermost outwards
_CUT: Final = "...\n"


def traceback_text(error: BaseException, *, messages: bool = True) -> str:
    """Return the traceback of an exception and its causes as text.

    The text has at most `LONGEST_TRACEBACK` characters. Without `messages`, only the classes of
    exceptions are shown, because a message may quote a record.
    """
    summary = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES)
    if not messages:
        _drop_messages(summary)
    text = "".join(summary.format())
    if len(text) <= LONGEST_TRACEBACK:
        return text
    return _CUT + text[len(_CUT) - LONGEST_TRACEBACK :]


def _drop_messages(summary: traceback.TracebackException) -> None:
    """Remove the messages and notes of an exception, of its causes, and of a group's exceptions."""
    waiting, seen = [summary], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each._str = ""  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public access
        each.__notes__ = None
        linked = (each.__cause__, each.__context__, *(each.exceptions or ()))
        waiting += [other for other in linked if other is not None]

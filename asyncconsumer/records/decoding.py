"""Which record decoder runs: chosen here, once, and never in silence.

`ASYNCCONSUMER_DECODER=compiled` or `=pure` asks for one by name, and then that one loads or the
import fails. Unasked, the compiled one is taken; where it is missing, the pure-Python twin serves
with a warning that says why it is missing and what to do.
"""

import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

IMPLEMENTATIONS: Final = {
    "compiled": "asyncconsumer.records._records",
    "pure": "asyncconsumer.records._pure",
}
_VARIABLE: Final = "ASYNCCONSUMER_DECODER"


class PureDecoderWarning(RuntimeWarning):
    """The compiled decoder is missing: everything works, many times slower."""


def load(wanted: str | None) -> tuple[str, ModuleType]:
    """The decoder's name and module. An asked-for one loads or raises; only else it falls back."""
    if wanted and wanted not in IMPLEMENTATIONS:
        raise ImportError(
            f"{_VARIABLE}={wanted}: no such decoder; take one of {list(IMPLEMENTATIONS)}"
        )
    if wanted:
        return wanted, importlib.import_module(IMPLEMENTATIONS[wanted])
    try:
        return "compiled", importlib.import_module(IMPLEMENTATIONS["compiled"])
    except ImportError as error:
        pure = _pure_instead(error)
        warnings.warn(
            f"{_trouble(error)}, or set {_VARIABLE}=pure to accept this.",
            PureDecoderWarning,
            stacklevel=3,
        )
        return "pure", pure


def available() -> list[str]:
    """For the tests: every decoder present here gets the same suite."""
    return [name for name, module in IMPLEMENTATIONS.items() if importlib.util.find_spec(module)]


def _pure_instead(error: ImportError) -> ModuleType:
    try:
        return importlib.import_module(IMPLEMENTATIONS["pure"])
    except ImportError as other:  # a codec does not load here either: ours says what to do
        raise error from other


def _trouble(error: ImportError) -> str:
    slower = "records are decoded in pure Python, many times slower"
    if not isinstance(error, ModuleNotFoundError):  # it is there, and says itself what it lacks
        return f"the compiled record decoder cannot be loaded ({error}); {slower}. Change that"
    return (
        f"the compiled record decoder is missing ({_why_missing(error)}); {slower}. Install a C "
        "compiler and the Python headers and reinstall asyncconsumer"
    )


def _why_missing(error: ImportError) -> str:
    here = Path(__file__)
    if any(folder.is_file() for folder in here.parents):
        return f"{error}: none can be imported from a zip, but from one of asyncconsumer.spark.ship"
    note = here.with_name("_not_compiled.txt")
    return note.read_text(encoding="utf-8").strip() if note.exists() else str(error)


name, decoder = load(os.environ.get(_VARIABLE) or None)

if TYPE_CHECKING:  # the pure twin is the reference, also for the types
    from asyncconsumer.records._pure import AsyncRecords as AsyncRecords
    from asyncconsumer.records._pure import FetchAnswer as FetchAnswer
    from asyncconsumer.records._pure import Loop as Loop
    from asyncconsumer.records._pure import PartitionAnswer as PartitionAnswer
    from asyncconsumer.records._pure import Record as Record
    from asyncconsumer.records._pure import Records as Records
    from asyncconsumer.records._pure import crc32c as crc32c
    from asyncconsumer.records._pure import fetch_answer as fetch_answer
    from asyncconsumer.records._pure import record_set_end as record_set_end
    from asyncconsumer.records._pure import room_for as room_for
else:
    AsyncRecords = decoder.AsyncRecords
    FetchAnswer = decoder.FetchAnswer
    Loop = decoder.Loop
    PartitionAnswer = decoder.PartitionAnswer
    Record = decoder.Record
    Records = decoder.Records
    crc32c = decoder.crc32c
    record_set_end = decoder.record_set_end
    fetch_answer = decoder.fetch_answer
    room_for = decoder.room_for

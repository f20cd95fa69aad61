"""The choice of the record decoder, made once at import.

`ASYNCCONSUMER_DECODER=compiled` or `=pure` selects a decoder; if it cannot be loaded, the import
fails. By default the compiled one is used. If it is missing, the pure-Python one is used, with a
warning that gives the reason and the remedy.
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
    """A warning that the compiled decoder is missing, so that decoding is much slower."""


def load(name: str | None) -> tuple[str, ModuleType]:
    """Import the decoder `name`. Return its name and module.

    With None, import the compiled decoder, or the pure-Python one if the compiled one is missing.
    """
    if name and name not in IMPLEMENTATIONS:
        raise ImportError(
            f"{_VARIABLE}={name}: no such decoder; use one of {list(IMPLEMENTATIONS)}"
        )
    if name:
        return name, importlib.import_module(IMPLEMENTATIONS[name])
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
    """Return the names of the installed decoders. Tests run with each of them."""
    return [name for name, module in IMPLEMENTATIONS.items() if importlib.util.find_spec(module)]


def _pure_instead(error: ImportError) -> ModuleType:
    try:
        return importlib.import_module(IMPLEMENTATIONS["pure"])
    except ImportError as other:  # a codec is missing for both: the first error has the remedy
        raise error from other


def _trouble(error: ImportError) -> str:
    slower = "records are decoded in pure Python, many times slower"
    if not isinstance(error, ModuleNotFoundError):  # the error has the reason
        return f"the compiled record decoder cannot be loaded ({error}); {slower}. Repair it"
    return (
        f"the compiled record decoder is missing ({_why_missing(error)}); {slower}. Install a C "
        "compiler and the Python headers and reinstall asyncconsumer"
    )


def _why_missing(error: ImportError) -> str:
    module = Path(__file__)
    if any(folder.is_file() for folder in module.parents):
        return (
            f"{error}: of compiled modules none can be imported from a zip, except from that of "
            "asyncconsumer.spark.ship"
        )
    note = module.with_name("_not_compiled.txt")
    return note.read_text(encoding="utf-8").strip() if note.exists() else str(error)


name, decoder = load(os.environ.get(_VARIABLE) or None)

if TYPE_CHECKING:  # the pure-Python decoder has the type annotations
    from asyncconsumer.records._pure import AsyncRecords as AsyncRecords
    from asyncconsumer.records._pure import BlockRun as BlockRun
    from asyncconsumer.records._pure import FetchAnswer as FetchAnswer
    from asyncconsumer.records._pure import Loop as Loop
    from asyncconsumer.records._pure import Message as Message
    from asyncconsumer.records._pure import MessageBuilder as MessageBuilder
    from asyncconsumer.records._pure import PartitionAnswer as PartitionAnswer
    from asyncconsumer.records._pure import PartReader as PartReader
    from asyncconsumer.records._pure import PartsCall as PartsCall
    from asyncconsumer.records._pure import Record as Record
    from asyncconsumer.records._pure import RecordBlock as RecordBlock
    from asyncconsumer.records._pure import RecordEncoder as RecordEncoder
    from asyncconsumer.records._pure import Records as Records
    from asyncconsumer.records._pure import crc32c as crc32c
    from asyncconsumer.records._pure import fetch_answer as fetch_answer
    from asyncconsumer.records._pure import murmur2 as murmur2
    from asyncconsumer.records._pure import record_set_end as record_set_end
    from asyncconsumer.records._pure import room_for as room_for
else:
    AsyncRecords = decoder.AsyncRecords
    BlockRun = decoder.BlockRun
    FetchAnswer = decoder.FetchAnswer
    Loop = decoder.Loop
    Message = decoder.Message
    MessageBuilder = decoder.MessageBuilder
    PartitionAnswer = decoder.PartitionAnswer
    PartReader = decoder.PartReader
    PartsCall = decoder.PartsCall
    Record = decoder.Record
    RecordBlock = decoder.RecordBlock
    RecordEncoder = decoder.RecordEncoder
    Records = decoder.Records
    crc32c = decoder.crc32c
    record_set_end = decoder.record_set_end
    fetch_answer = decoder.fetch_answer
    murmur2 = decoder.murmur2
    room_for = decoder.room_for

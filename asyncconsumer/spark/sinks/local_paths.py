"""Folders of the local file system, told apart from addresses such as ``s3://bucket/folder``."""

import os
import re
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # two letters at least: C: is a drive


_LAKES: Final = "To write to an object store, use DeltaSink with its storage_options"


def local_path(given: str | os.PathLike[str], taker: str, instead: str = _LAKES) -> Path:
    """Return it as a path. An address with a scheme is refused: it would become a local folder."""
    text = str(given)  # of a path in an object store this is its address
    if scheme := _SCHEME.match(text.lstrip()):
        raise ConfigError(
            f"{taker} takes a local path, and {text!r} begins with the scheme {scheme[0]!r}. "
            f"{instead}. If it is a local path, give it as an absolute path"
        )
    return Path(given)

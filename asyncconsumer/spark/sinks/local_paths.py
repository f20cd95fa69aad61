"""Folders of the local file system, as distinct from URLs such as ``s3://bucket/folder``."""

import os
import re
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # two letters at least: C: is a drive


_LAKES: Final = "To write to an object store, use DeltaSink with its storage_options"


def local_path(given: str | os.PathLike[str], taker: str, instead: str = _LAKES) -> Path:
    """Return `given` as a path. Refuse a URL, because it would become a local folder."""
    text = str(given)  # of an object store path, this is its URL
    if scheme := _SCHEME.match(text.lstrip()):
        raise ConfigError(
            f"{taker} takes a local path, and {text!r} begins with the scheme {scheme[0]!r}. "
            f"{instead}. If it is a local path, give it as an absolute path"
        )
    return Path(given)

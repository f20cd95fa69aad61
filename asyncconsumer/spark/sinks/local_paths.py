"""The check that a path is local, and not a URL such as ``s3://bucket/folder``."""

import os
import re
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # at least two letters: C: is a drive
_USE_DELTA: Final = "To write to an object store, use DeltaSink with its `storage_options`."


def local_path(path: str | os.PathLike[str], name: str, advice: str = _USE_DELTA) -> Path:
    """Return `path` as a local path.

    Raise ConfigError for a URL, which would otherwise become a local folder of that name. In the
    message, `name` is the user of the path, and `advice` says what to do.
    """
    text = str(path)  # for the path object of an object store, this is its URL
    if scheme := _SCHEME.match(text.lstrip()):
        raise ConfigError(
            f"{name} needs a local path, and {text!r} begins with the scheme {scheme[0]!r}. "
            f"{advice} If it is a local path, pass it as an absolute path."
        )
    return Path(path)

"""The claims of a landing folder in the format of earlier versions: one symbolic link per claim.

A claim is an offset range of a partition that a writer has written. The links of a partition are
read once, when this version first stores a claim of the partition. Then a last link is created
under the name of the next claim, so that writers of earlier versions can make no more claims.
"""

import os
import re
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

from asyncconsumer.errors import ConfigError

_LINK: Final = re.compile(r"(\d{20})\.([0-9a-f]{32})(?:\.([0-9a-f]{32}))?")
_FIRST: Final = "first"  # the start of a partition that has no claim yet
_CLOSED: Final = "closed, see _claims"

Link: TypeAlias = tuple[int, int, str, UUID | None]
"""Start and end of a range, the token of its file, and the topic's id."""


def last_link(folder: Path) -> Link | None:
    """Return the newest claim of a partition in the format of earlier versions, or None.

    `folder` has the links of the partition. Before returning, create a link that stops writers of
    earlier versions from making more claims.
    """
    while folder.is_dir():
        names = sorted(name for name in os.listdir(folder) if name.isdecimal())  # noqa: PTH208
        if names and _target(folder / names[-1]) == _CLOSED:
            names.pop()
            return _link(folder / names[-1]) if names else None
        last = _link(folder / names[-1]) if names else None
        if last is None and _close(folder / _FIRST):
            return None
        end = int(_target(folder / _FIRST)) if last is None else last[1]
        if _close(folder / f"{end:020d}"):
            return last
    return None


def _close(path: Path) -> bool:
    """Create the link that stops writers of earlier versions, at the path of the next claim.

    Return False if such a writer has created a claim at `path` before.
    """
    try:
        path.symlink_to(_CLOSED)
    except FileExistsError:
        return _target(path) == _CLOSED
    return True


def _link(path: Path) -> Link:
    match = _LINK.fullmatch(target := _target(path))
    if match is None or int(match[1]) <= int(path.name):
        raise ConfigError(
            f"{path} -> {target} is not a claim of a landing folder. Remove this file."
        )
    topic_id = None if match[3] is None else UUID(match[3])
    return int(path.name), int(match[1]), match[2], topic_id


def _target(path: Path) -> str:
    return str(path.readlink())

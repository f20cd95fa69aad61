"""Refuse wheels that must not be released: `python tools/check_wheels.py WHEEL ...`."""

import re
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DECODER: Final = re.compile(r"asyncconsumer/records/_records\.[^/]*\.so")


class DistError(Exception):
    """A distribution that must not be released."""


def source_version() -> str:
    """Return the version of the source tree, without an import of the package."""
    text = (ROOT / "asyncconsumer" / "__init__.py").read_text(encoding="utf-8")
    return str(re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0])


def check_wheel(wheel: Path, version: str) -> None:
    """Raise `DistError` if a wheel has no compiled decoder, or another version."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if not any(DECODER.fullmatch(name) for name in names):
        raise DistError(
            f"{wheel.name} has no compiled record decoder, so records would be decoded many times "
            "slower. Install a C compiler and the Python headers, and build again"
        )
    if not wheel.name.startswith(f"asyncconsumer-{version}-"):
        raise DistError(f"{wheel.name} is not of version {version}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("name the wheels to check")
    try:
        for argument in sys.argv[1:]:
            check_wheel(Path(argument), source_version())
    except DistError as error:
        sys.exit(str(error))

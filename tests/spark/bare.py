"""A Python that has what the package needs, but not the package: as an executor's may be."""

import sysconfig
import venv
from pathlib import Path

LEFT_OUT = "asyncconsumer"


def bare_python(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Its executable. What makes editable installs visible is in files that are left out."""
    venv.create(folder, symlinks=True)
    (there,) = folder.glob("lib/python*/site-packages")
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        name = found.name.lower()
        if LEFT_OUT not in name and found.suffix != ".pth" and not name.startswith(without):
            (there / found.name).symlink_to(found)
    return folder / "bin" / "python3"

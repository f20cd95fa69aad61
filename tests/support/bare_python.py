"""A Python with the dependencies of the package and without the package, as on an executor."""

import sysconfig
import venv
from pathlib import Path

LEFT_OUT = "asyncconsumer"


def bare_python(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Create a virtual environment without editable installs, and return its executable."""
    venv.create(folder, symlinks=True)
    (path,) = folder.glob("lib/python*/site-packages")
    for result in Path(sysconfig.get_path("purelib")).iterdir():
        name = result.name.lower()
        if LEFT_OUT not in name and result.suffix != ".pth" and not name.startswith(without):
            (path / result.name).symlink_to(result)
    return folder / "bin" / "python3"

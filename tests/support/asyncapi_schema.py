"""The official JSON schema of AsyncAPI 3, from the npm package that its project publishes."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import filelock
import pytest

from asyncconsumer.testing.servers.maven import cache_folder

_PACKAGE: Final = "asyncapi-specs-6.11.1.tgz"
_SHA256: Final = "01af8744dc33c0c7eb2e908f6a955319ee58b70ecadc9387d1aeb16c0cd28928"


@cache
def schema() -> dict[str, Any]:
    """Return the schema of version 3.0.0. The package is downloaded by npm, once.

    Without npm or a network, the test is skipped.
    """
    package = cache_folder() / _PACKAGE
    package.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{package}.lock"):
        if not package.exists():
            _download(package)
    assert hashlib.sha256(package.read_bytes()).hexdigest() == _SHA256, f"{package} is corrupt"
    with tarfile.open(package) as archive:
        member = archive.extractfile("package/schemas/3.0.0.json")
        assert member is not None
        schema: dict[str, Any] = json.load(member)
        return schema


def _download(package: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm on PATH; install it to validate documents")
    with tempfile.TemporaryDirectory(dir=package.parent) as folder:
        name = "@asyncapi/specs@6.11.1"
        ran = subprocess.run([npm, "pack", name], cwd=folder, capture_output=True, check=False)
        if ran.returncode:
            pytest.skip(f"npm could not download {name}; it is needed to validate documents")
        (Path(folder) / _PACKAGE).rename(package)

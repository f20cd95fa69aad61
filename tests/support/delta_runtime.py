"""delta-rs has a runtime of its own, from its first use until the process ends."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable


@pytest.fixture(scope="session", autouse=True)
def delta_rs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Started here, so that no test seems to have left it behind."""
    folder = tmp_path_factory.mktemp("delta")
    DeltaTable.create(str(folder), pa.schema([("x", pa.int32())]))
    return folder

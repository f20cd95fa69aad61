"""For the tests of what feeds a lake."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable


@pytest.fixture(scope="session", autouse=True)
def _delta_rs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """delta-rs has a runtime of its own, from its first use until the process ends."""
    folder = tmp_path_factory.mktemp("delta")
    DeltaTable.create(str(folder), pa.schema([("x", pa.int32())]))
    return folder

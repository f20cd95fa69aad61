"""The runtime of delta-rs, which runs from its first use until the process ends."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable


@pytest.fixture(scope="session", autouse=True)
def delta_rs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Start the runtime before the tests, so that it is not a leftover of one."""
    folder = tmp_path_factory.mktemp("delta")
    DeltaTable.create(str(folder), pa.schema([("x", pa.int32())]))
    return folder

"""Iceberg tables with a catalog in a SQLite file, and the threads of pyiceberg."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.concurrent import ExecutorFactory

from asyncconsumer.spark.sinks.iceberg import IcebergSink
from tests.support.feeder_tables import numbers

NAME = "lake.orders"
THREADS = 2


def options_of(folder: Path) -> dict[str, str]:
    """Return the settings of a catalog in this folder."""
    database, warehouse = folder / "catalog.db", folder / "warehouse"
    return {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{warehouse}"}


@pytest.fixture(scope="session", autouse=True)
def pyiceberg_threads() -> None:
    """Start the threads of pyiceberg before the tests, so that they are not leftovers of one."""
    os.environ["PYICEBERG_MAX_WORKERS"] = str(THREADS)
    executor, barrier = ExecutorFactory.get_or_create(), Barrier(THREADS)
    for started in [executor.submit(barrier.wait) for _ in range(THREADS)]:
        started.result()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = load_catalog("test", **options_of(tmp_path))
    yield catalog
    catalog.close()


def make_sink(catalog: Catalog, **options: Any) -> IcebergSink:
    sink = IcebergSink(NAME, catalog=catalog, **options)
    sink.open()
    return sink


def held(catalog: Catalog) -> list[int]:
    """Return the values in the table."""
    return numbers(catalog.load_table(NAME).scan(selected_fields=("value",)).to_arrow())


def sink_in(folder: Path) -> IcebergSink:
    """Return a sink whose catalog and files are in this folder."""
    return IcebergSink(NAME, catalog="test", catalog_options=options_of(folder))


def held_in(folder: Path) -> list[int]:
    """Return the values in the table of this folder, or none if it does not exist yet."""
    catalog = load_catalog("test", **options_of(folder))
    try:
        return held(catalog) if catalog.table_exists(NAME) else []
    finally:
        catalog.close()

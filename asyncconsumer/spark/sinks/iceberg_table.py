"""An Iceberg table for a sink: creation, new columns, data files, and commits with one attempt."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchTableError,
        ValidationError,
        ValidationException,
    )
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible, _dataframe_to_data_files
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform, parse_transform
except ImportError as error:
    raise ImportError(
        "IcebergSink needs pyiceberg: pip install 'asyncconsumer[iceberg]'"
    ) from error

from asyncconsumer.errors import ConfigError

__all__ = [
    "CommitConflict",
    "append_files",
    "create_table",
    "fit_columns",
    "load_catalog",
    "load_table",
    "write_files",
]

_PARTITION: Final = re.compile(r"(?P<name>\w+)\((?:(?P<width>\d+) *, *)?(?P<column>[^(),]+)\)")


class CommitConflict(ValidationException):
    """An error because the table has a newer commit than the state on which a commit is based.

    pyiceberg repeats a commit after a `CommitFailedException`, on the new snapshot and without a
    check of its offsets. After a `ValidationException`, such as this one, it does not repeat the
    commit, and deletes the manifests.
    """


class SingleAttempt:
    """A wrapper of a catalog. pyiceberg does not repeat commits that fail with it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the catalog has
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Commit to the catalog. Raise CommitConflict if another commit was first."""
        try:
            return self._catalog.commit_table(*arguments, **options)
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error


def load_table(catalog: Catalog, name: str) -> Table | None:
    """Return the table in its newest state, or None if it does not exist."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return None
    table.catalog = cast("Catalog", SingleAttempt(catalog))
    return table


def create_table(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> Table:
    """Create the table and its namespace, unless another writer has created them before."""
    partitions = [_partition(text) for text in partition_by]
    try:
        catalog.create_namespace_if_not_exists(catalog.namespace_from(name))
        with catalog.create_table_transaction(
            name, schema, properties=dict(properties)
        ) as transaction:
            if partitions:
                with transaction.update_spec() as spec:
                    for column, transform, field_name in partitions:
                        spec.add_field(column, transform, field_name)
    except Exception:  # each catalog has its own errors if another writer was first
        if (table := load_table(catalog, name)) is None:  # no other writer created it
            raise
        return table
    table = load_table(catalog, name)
    assert table is not None
    return table


def _partition(text: str) -> tuple[str, Transform[Any, Any], str]:
    """Return the column, the transform and the name of the partition field `text`.

    The syntax is that of Spark's PARTITIONED BY: `topic`, `day(timestamp)`, `bucket(16, key)`.
    """
    if (match := _PARTITION.fullmatch(text.strip())) is None:
        return text, IdentityTransform(), text
    name, width, column = match["name"].removesuffix("s"), match["width"], match["column"].strip()
    transform = parse_transform(f"{name}[{width}]" if width else name)
    if isinstance(transform, UnknownTransform):
        raise ConfigError(
            f"`partition_by` of IcebergSink has {text!r}, and Iceberg has no transform "
            f"{match['name']!r}. Use identity, year, month, day, hour, bucket or truncate."
        )
    return column, transform, f"{column}_{name}"


def fit_columns(table: Table, schema: pa.Schema, *, evolve: bool) -> None:
    """Raise ConfigError if rows of this schema do not fit into the table.

    With `evolve`, add the columns that the table lacks.
    """
    try:
        if evolve and not _fits(table, schema):
            with table.update_schema() as update:
                update.union_by_name(schema)
        _check(table, schema)
    except (ValueError, ValidationError) as error:
        raise ConfigError(
            f"The records do not fit into the Iceberg table {'.'.join(table.name())}. Change them "
            "with the feeder's `transform` or `columns`, change the table, or set "
            f"`evolve_schema=True` to add columns. {error}"
        ) from error


def _fits(table: Table, schema: pa.Schema) -> bool:
    try:
        _check(table, schema)
    except ValueError:
        return False
    return True


def _check(table: Table, schema: pa.Schema) -> None:
    metadata = table.metadata
    version = metadata.format_version
    _check_pyarrow_schema_compatible(metadata.schema(), schema, format_version=version)


def write_files(metadata: TableMetadata, io: FileIO, rows: pa.Table) -> tuple[DataFile, ...]:
    """Write `rows` to data files that belong to no snapshot yet, and return these files."""
    if not rows.num_rows:
        return ()
    return tuple(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))


def append_files(table: Table, files: Sequence[DataFile], properties: Mapping[str, str]) -> None:
    """Commit a snapshot with these files.

    The properties are stored in the summary of the snapshot and in the table. Raise CommitConflict
    if `table` is not the newest state.
    """
    transaction = table.transaction()
    with transaction.update_snapshot(snapshot_properties=dict(properties)).fast_append() as append:
        for file in files:
            append.append_data_file(file)
    transaction.set_properties(dict(properties))
    transaction.commit_transaction()

"""The Arrow and Parquet files that `asyncconsumer consume` writes."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.errors import ConfigError
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, schema_of

FileKind: TypeAlias = Literal["arrow", "parquet"]

_BATCH: Final = 10_000  # records in each batch of a file
_TIMES: Final[Literal["ms"]] = "ms"


class RecordFile(AsyncResource):
    """A file with one row for each record, open for its ``async with`` block.

    The rows are written to a temporary file in the same folder, which replaces the file at the end.
    After an error the temporary file is deleted. If the user stops the command, the file is kept.
    """

    def __init__(self, path: Path, kind: FileKind) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.part")
        self._kind = kind
        try:
            self._schema = schema_of(COLUMNS, timestamps=_TIMES)
        except ImportError as error:
            raise ConfigError(str(error)) from None
        self._rows: list[decoding.Record] = []
        self._writer: Any = None

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            self._writer = await asyncio.to_thread(self._create)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from None

    async def _before_close(self, error: BaseException | None) -> None:
        complete = error is None or isinstance(error, asyncio.CancelledError | TimeoutError)
        self._close(complete=complete)

    async def put(self, records: Sequence[decoding.Record]) -> OSError | None:
        """Add records. Return the error of the file system if the write fails, otherwise None."""
        self._rows += records
        if len(self._rows) < _BATCH:
            return None
        rows, self._rows = self._rows, []
        try:
            await asyncio.to_thread(self._write, rows)
        except OSError as error:
            return error
        return None

    def _create(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        if self._kind == "arrow":
            from pyarrow import ipc

            return ipc.new_file(str(self._part), self._schema)
        from pyarrow import parquet

        return parquet.ParquetWriter(str(self._part), self._schema, compression="zstd")

    def _write(self, rows: list[decoding.Record]) -> None:
        import pyarrow as pa

        columns = [
            [record.topic for record in rows],
            [record.partition for record in rows],
            [record.offset for record in rows],
            [record.timestamp for record in rows],
            [record.timestamp_type for record in rows],
            [record.key for record in rows],
            [record.value for record in rows],
            [[{"key": name, "value": value} for name, value in record.headers] for record in rows],
        ]
        by_name = dict(zip(COLUMNS, columns, strict=True))
        arrays = [pa.array(by_name[field.name], field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._kind == "arrow":
            self._writer.write_batch(batch)
        else:
            self._writer.write_table(pa.Table.from_batches([batch]))

    def _close(self, *, complete: bool) -> None:
        """Close the temporary file.

        If `complete`, write the last rows and move the file to its final name. Otherwise delete the
        file. This method does not await anything, because it may run after a cancellation.
        """
        try:
            if complete and self._rows:
                self._write(self._rows)
        finally:
            self._writer.close()
            if complete:
                self._part.replace(self._path)
            else:
                self._part.unlink()

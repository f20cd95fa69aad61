"""The options `--key` and `--grep` of `asyncconsumer consume`, which select records."""

import re
from collections.abc import Sequence

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.decoding import Record


class RecordFilter:
    """A filter of records by their key and by a pattern for their value.

    If the key or the pattern is None, it selects all records.
    """

    def __init__(self, key: str | None, pattern: str | None) -> None:
        self._key = None if key is None else key.encode()
        try:
            self._pattern = None if pattern is None else re.compile(pattern.encode())
        except re.error as error:
            raise ConfigError(f"--grep {pattern!r} is not a pattern: {error}") from None

    def select(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that have the key, and whose value matches the pattern."""
        return self.by_value(self.by_key(records))

    def by_key(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that have the key."""
        return [record for record in records if self._key is None or record.key == self._key]

    def by_value(self, records: Sequence[Record]) -> list[Record]:
        """Return the records whose value matches the pattern. A null value matches as empty."""
        pattern = self._pattern
        return [record for record in records if not pattern or pattern.search(record.value or b"")]

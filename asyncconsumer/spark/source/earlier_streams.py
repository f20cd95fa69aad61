"""The reader of streaming queries for Spark 4.0 and 4.1.

These versions call `latestOffset` without the start of the micro-batch and without a limit. So each
micro-batch reads all new records, and the source does not know whether a query has a checkpoint.
"""

from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.selection import includes_latest
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.offsets import from_json, to_json, with_ids
from asyncconsumer.spark.source.spark_api import VERSION
from asyncconsumer.spark.source.stream_reader import KafkaStreamReader


def refuse_limits(options: SourceOptions) -> None:
    """Raise ConfigError if the options limit micro-batches."""
    for name, value in (
        ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
        ("minOffsetsPerTrigger", options.min_offsets_per_trigger),
    ):
        if value is not None:
            raise ConfigError(
                f"`{name}` needs Spark 4.2 or later. Spark {VERSION} does not let a source in "
                "Python limit its micro-batches. Remove the option, or upgrade Spark."
            )


class EarlierStreamReader(KafkaStreamReader):
    """A reader of streaming queries for versions of Spark that cannot limit micro-batches."""

    _newest: dict[str, Any] | None = None  # the starting offset `latest`, until Spark asks for it

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offsets of a query without a checkpoint."""
        if self._newest is not None:
            self._initial, self._newest = self._newest, None
        return super().initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - as Spark calls it
        """Return the end offsets of all partitions. Spark plans no batch if they are unchanged."""
        if self._latest is None and includes_latest(self._options.starting):
            # Spark asks for the start after the end, and the end must not be before the start
            self._newest = to_json(self._find_initial())
        latest = self._find_latest()
        if not latest.offsets:  # a pattern matches no topic, perhaps only for a moment
            if self._latest is None:
                raise ConfigError(
                    "`subscribePattern` matches no topic. Create one before the query starts, "
                    f"because Spark {VERSION} does not tell a source in Python where a query is."
                )
            latest = self._latest
        self._latest = latest
        return with_ids(to_json(latest.offsets), latest.topic_ids)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a finished micro-batch to the group of the option `commitToGroup`."""
        self._commit_to_group(from_json(end))

    def _check_start(self, start: dict[str, Any]) -> None:
        if self._latest is None:  # Spark repeats a micro-batch of an earlier run
            super()._check_start(start)

"""The reader of streaming queries.

Spark stores the offsets of a query, and asks the reader for the end of each micro-batch.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.spark.options.selection import includes_latest
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.offsets import (
    Losses,
    Offsets,
    count_backlog,
    from_json,
    ids_in,
    limit_offsets,
    ranges_between,
    recreated,
    start_in,
    to_json,
    with_ids,
    with_start,
)
from asyncconsumer.spark.source.resolve import check_complete, drop_missing, resolve
from asyncconsumer.spark.source.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from asyncconsumer.spark.source.task import Task, UnpickleHook, read_task
from asyncconsumer.spark.source.task_planning import plan_tasks, ranges_to_sample
from asyncconsumer.spark.source.worker_loop import worker_loop
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger(__name__)


class _Latest(NamedTuple):
    """The end offsets of partitions at one moment, and the ids of their topics."""

    offsets: Offsets
    topic_ids: Mapping[str, UUID]


class KafkaStreamReader(UnpickleHook, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans micro-batches on the driver and reads them on executors."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._initial: dict[str, Any] | None = None  # start of a query without a checkpoint
        self._available_now = False
        self._target: _Latest | None = None  # the end of an available-now query
        self._latest: _Latest | None = None  # the last end offsets
        self._record_bytes: dict[str, int] = {}  # by topic, sampled once; 0 if unknown
        self._last_trigger = -float("inf")  # when the last micro-batch was planned
        self._committed: Offsets = {}  # the last offsets committed to a group

    # --- offsets ---------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offsets of a query without a checkpoint.

        Spark calls this twice: when it plans the first micro-batch, and when it runs it. Both calls
        must return the same offsets.
        """
        if self._initial is None:
            self._initial = to_json(self._find_initial())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch that the options set.

        Spark passes this limit, or another one, to `latestOffset`.
        """
        lowest = self._options.min_offsets_per_trigger
        highest = self._options.max_offsets_per_trigger
        if lowest is not None:  # only one limit can be returned; `_next_end` applies the other
            return ReadMinRows(lowest)
        return ReadAllAvailable() if highest is None else ReadMaxRows(highest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end offsets of the next micro-batch.

        Return `start` itself if there is nothing to read.
        """
        first = from_json(start)
        if start != self._initial:
            self._commit_to_group(first)
        latest = self._target if self._target is not None else self._find_latest()
        if self._available_now:
            self._target = latest
        self._latest = latest
        end = self._next_end(first, latest.offsets, limit)
        if start == self._initial:  # Spark also runs an empty first batch, and may repeat it
            return with_ids(with_start(to_json(end), start), latest.topic_ids)
        if end == first and not recreated(ids_in(start), latest.topic_ids):
            return start
        return with_ids(to_json(end), latest.topic_ids)

    def _next_end(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if not latest:  # a pattern matches no topic, perhaps only for a moment: keep the offsets
            return start
        if isinstance(limit, ReadAllAvailable):
            return latest
        log_starts = self._log_starts(latest.keys() - start.keys())
        may_wait = isinstance(limit, ReadMinRows) and self._target is None
        if may_wait and self._is_early(count_backlog(start, latest, log_starts)):
            return start
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_offsets = max_offsets or self._options.max_offsets_per_trigger
        if max_offsets is None:
            return latest
        return limit_offsets(start, latest, log_starts, max_offsets)

    def _is_early(self, offsets: int) -> bool:
        """Return whether to wait for more than the available `offsets` before the next micro-batch.

        The wait ends at `minOffsetsPerTrigger` offsets, or `maxTriggerDelay` after the previous
        micro-batch.
        """
        now, min_offsets = time.monotonic(), self._options.min_offsets_per_trigger or 0
        delay_ms = (now - self._last_trigger) * 1000
        if offsets < min_offsets and delay_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_trigger = now
        return False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the records that exist when its first micro-batch is planned.

        The end offsets are not looked up in this call, but after the start offsets. Otherwise, with
        `startingOffsets` latest on an active topic, the start could be after the end.
        """
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the last known end offsets, or None before the first lookup.

        Spark shows them in the query's progress.
        """
        return None if self._latest is None else to_json(self._latest.offsets)

    # --- tasks -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the planned tasks of a micro-batch. Spark calls them partitions."""
        last = from_json(end)
        first = start_in(end)
        if first is None:  # not a first batch that this source planned
            self._check_start(start)
            first = from_json(start)
        log_starts = self._log_starts(last.keys() - first.keys())
        ranges, losses = ranges_between(first, last, log_starts)
        topic_ids = ids_in(end)
        self._report([*losses, *recreated(ids_in(start), topic_ids)])
        self._sample_sizes(ranges)
        tasks = plan_tasks(ranges, self._options, self._record_bytes)
        return [Task(task, topic_ids) for task in tasks]

    def _check_start(self, start: dict[str, Any]) -> None:
        """Raise ConfigError if Spark repeats a query's first micro-batch whose start is unknown.

        This happens after Spark's own source has planned it with the start `latest`, because that
        source stores the start where a Python source cannot read it. The current latest offsets
        are higher, so the records before them would be skipped.
        """
        if start == self._initial and includes_latest(self._options.starting):
            raise ConfigError(
                "The checkpoint has a first micro-batch that another source planned and did not "
                "commit. Its start was `latest` at that time, which the checkpoint does not tell. "
                'Run the query once with format("kafka") until a micro-batch is committed, or '
                "start it with a new checkpoint and explicit `startingOffsets`."
            )

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read the offset ranges of one task. Yield their records as Arrow batches."""
        return read_task(partition, self._options, self._schema)

    def _report(self, losses: Losses) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("%s", loss)

    # --- Kafka -----------------------------------------------------------------------------------

    def _commit_to_group(self, offsets: Offsets) -> None:
        """Commit the query's offsets to the group of the option `commitToGroup`.

        The offsets are only for tools that show the lag of groups. They are committed when Spark
        plans the next micro-batch, which it also does when no records are left. With the trigger
        `once` there is no next micro-batch, so the next run of the query commits them.
        """
        group = self._options.commit_to_group
        if group is None or offsets == self._committed:
            return
        self._committed = offsets
        try:
            worker_loop().run(self._client().commit(group, offsets))
        except (ConsumerError, TimeoutError) as error:  # not fatal: the checkpoint has the offsets
            reason = str(error) or "no response in time"
            _log.warning("commitToGroup failed to commit for group %s: %s", group, reason)

    def _client(self) -> Client:
        return worker_loop().client(self._options.kafka)

    def _find_initial(self) -> Offsets:
        client = self._client()

        async def ask() -> Offsets:
            partitions = await client.partitions(self._options.selection)
            check_complete(self._options.starting, partitions)
            return await resolve(client, self._options.starting, partitions)

        return worker_loop().run(ask())

    def _find_latest(self) -> _Latest:
        client = self._client()

        async def ask() -> _Latest:
            partitions = await client.partitions(self._options.selection)
            topic_ids = client.topic_ids({tp.topic for tp in partitions})
            return _Latest(await client.latest(partitions), topic_ids)

        return worker_loop().run(ask())

    def _sample_sizes(self, ranges: Sequence[OffsetRange]) -> None:
        samples = ranges_to_sample(ranges, self._options)
        unknown = [offsets for offsets in samples if offsets.topic not in self._record_bytes]
        if unknown:
            sizes = worker_loop().run(self._client().record_bytes(unknown))
            self._record_bytes |= {
                offsets.topic: sizes.get(offsets.topic, 0) for offsets in unknown
            }

    def _log_starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the log start offsets of the given partitions.

        Leave out partitions that were deleted.
        """
        if not partitions:
            return {}
        return worker_loop().run(drop_missing(self._client().earliest, partitions))

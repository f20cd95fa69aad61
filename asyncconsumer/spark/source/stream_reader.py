"""The reader of streaming queries. Spark keeps the offsets and asks for the end of each batch."""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from asyncconsumer.errors import ConsumerError
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.batch_reader import Task, UnpickleHook, read_task
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.offsets import (
    Losses,
    Offsets,
    backlog,
    from_json,
    ids_in,
    limited,
    ranges_between,
    recreated,
    start_in,
    to_json,
    with_ids,
    with_start,
)
from asyncconsumer.spark.source.resolve import drop_missing, resolve
from asyncconsumer.spark.source.task_planning import ranges_to_sample, tasks_of
from asyncconsumer.spark.source.worker_loop import home
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger(__name__)


class _Seen(NamedTuple):
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
        self._target: _Seen | None = None  # the end of an available-now query
        self._latest: _Seen | None = None  # the last end offsets
        self._record_bytes: dict[str, int] = {}  # of each topic, asked once; 0 if not known
        self._last_trigger = -float("inf")  # when the last micro-batch was planned
        self._told: Offsets = {}  # the last offsets committed to a group

    # --- offsets ---------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint.

        Spark calls this when it plans the first micro-batch and when it runs it. Both calls must
        return the same offsets.
        """
        if self._initial is None:
            client = self._client()

            async def find() -> Offsets:
                partitions = await client.partitions(self._options.selection)
                return await resolve(client, self._options.starting, partitions)

            self._initial = to_json(home().run(find()))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options. Spark passes it, or another, to `latestOffset`."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if least is not None:  # only one limit can be returned; `_next_end` applies the other
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself if there is nothing to read."""
        begun = from_json(start)
        if start != self._initial:
            self._tell_group(begun)
        seen = self._target if self._target is not None else self._ask_latest()
        if self._available_now:
            self._target = seen
        self._latest = seen
        end = self._next_end(begun, seen.offsets, limit)
        if start == self._initial:  # Spark also runs an empty first batch, and may repeat it
            return with_ids(with_start(to_json(end), start), seen.topic_ids)
        if end == begun and not recreated(ids_in(start), seen.topic_ids):
            return start
        return with_ids(to_json(end), seen.topic_ids)

    def _next_end(self, begun: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return latest
        waits = isinstance(limit, ReadMinRows) and self._target is None
        if waits and self._is_early(backlog(begun, latest)):
            return begun
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        most = most or self._options.max_offsets_per_trigger
        if most is None:
            return latest
        return limited(begun, latest, self._begins(latest.keys() - begun.keys()), most)

    def _is_early(self, offsets: int) -> bool:
        """Return whether to wait for more records, for up to `maxTriggerDelay`."""
        now, enough = time.monotonic(), self._options.min_offsets_per_trigger or 0
        delay_ms = (now - self._last_trigger) * 1000
        if offsets < enough and delay_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_trigger = now
        return False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the records that exist when its first micro-batch is planned.

        The end is not taken now, because Spark asks for the start later. With `latest` as the start
        of an active topic, the query would start after its end.
        """
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the last known end offsets, for the query's progress."""
        return None if self._latest is None else to_json(self._latest.offsets)

    # --- tasks -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        last = from_json(end)
        first = start_in(end)
        if first is None:  # not a first batch, for which `latest` may have changed since
            first = from_json(start)
        begins = self._begins(last.keys() - first.keys())
        ranges, losses = ranges_between(first, last, begins)
        topic_ids = ids_in(end)
        self._report([*losses, *recreated(ids_in(start), topic_ids)])
        self._ask_sizes(ranges)
        tasks = tasks_of(ranges, self._options, self._record_bytes)
        return [Task(each, topic_ids) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read the ranges of one task."""
        return read_task(partition, self._options, self._schema)

    def _report(self, losses: Losses) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("%s", loss)

    # --- Kafka -----------------------------------------------------------------------------------

    def _tell_group(self, done: Offsets) -> None:
        """Commit the progress of the query to the `commitToGroup` group, for lag tools only.

        Spark calls `commit` with the next micro-batch, so never for the last one.
        """
        group = self._options.commit_to_group
        if group is None or done == self._told:
            return
        self._told = done
        try:
            home().run(self._client().commit(group, done))
        except (ConsumerError, TimeoutError) as error:  # not fatal: the checkpoint has the offsets
            _log.warning("commitToGroup %s: %s", group, str(error) or "no answer in time")

    def _client(self) -> Client:
        return home().client(self._options.kafka)

    def _ask_latest(self) -> _Seen:
        client = self._client()

        async def ask() -> _Seen:
            partitions = await client.partitions(self._options.selection)
            topic_ids = client.topic_ids({one.topic for one in partitions})
            return _Seen(await client.latest(partitions), topic_ids)

        return home().run(ask())

    def _ask_sizes(self, ranges: Sequence[OffsetRange]) -> None:
        asked = ranges_to_sample(ranges, self._options)
        unknown = [one for one in asked if one.topic not in self._record_bytes]
        if unknown:
            found = home().run(self._client().record_bytes(unknown))
            self._record_bytes |= {one.topic: found.get(one.topic, 0) for one in unknown}

    def _begins(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the start offsets of added partitions, without those that were deleted again."""
        if not partitions:
            return {}
        return home().run(drop_missing(self._client().earliest, partitions))

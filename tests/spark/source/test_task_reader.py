"""The Python process of an executor, on fake brokers."""

from collections.abc import Callable, Collection, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from asyncconsumer.errors import ConfigError, DataLoss, UnknownTopicOrPartition
from asyncconsumer.spark.options.source import parse
from asyncconsumer.spark.source.offsets import Offsets, from_json, to_json
from asyncconsumer.spark.source.source import KafkaSource
from asyncconsumer.spark.source.stream_reader import KafkaStreamReader
from asyncconsumer.spark.source.task import Task
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import WorkerLoop
from asyncconsumer.spark.values.columns import Columns
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import OffsetRange, TopicPartition

pytestmark = pytest.mark.fast


ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
OFFSETS = Columns(pa.schema([("offset", pa.int64())]))


@pytest.fixture
def worker_loop() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.close()


def batches(
    worker_loop: WorkerLoop,
    kafka: KafkaHandle,
    *ranges: OffsetRange,
    fail: bool = True,
    size: int = 2**20,
) -> Iterator[Any]:
    options = {"max.partition.fetch.bytes": str(size)}
    client = worker_loop.client({"bootstrap.servers": kafka.bootstrap_servers, **options})
    return worker_loop.iterate(read(client, ranges, OFFSETS, fail_on_data_loss=fail))


def offsets(result: Iterator[Any]) -> list[int]:
    return [offset for batch in result for offset in batch.column("offset").to_pylist()]


EXISTING, DELETED = TopicPartition("kept", 0), TopicPartition("gone", 0)


class Cluster:
    """A cluster in which a topic was deleted, at once or after some requests."""

    def __init__(self, known: int = 0) -> None:
        self.known = known
        self.position = 0
        self.size = 1
        self.sampled: list[str] = []
        self.read: list[OffsetRange] = []

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.known -= 1
        if DELETED in partitions and self.known < 0:
            raise UnknownTopicOrPartition(str(DELETED))
        return dict.fromkeys(partitions, 3)

    async def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(await self.latest(partitions), 0)

    def reader(self, offset_range: OffsetRange) -> "Cluster":
        self.read.append(offset_range)
        return self

    def fetch_bytes(self, _: OffsetRange) -> int:
        return 1

    async def record_bytes(self, ranges: Collection[OffsetRange]) -> dict[str, int]:
        self.sampled += [offset_range.topic for offset_range in ranges]
        return {"kept": self.size}

    async def fetch_ahead(self) -> None:
        """Do nothing, because there is no connection."""

    async def next(self) -> None:
        """Return None, because the log is empty."""


@pytest.mark.parametrize("known", range(5))
def test_existing_topics_are_read_though_another_one_is_deleted(
    worker_loop: WorkerLoop, known: int
) -> None:
    cluster: Any = Cluster(known)
    ranges = [OffsetRange(*EXISTING, 1, 5), OffsetRange(*DELETED, 1, 3)]
    assert (
        offsets(worker_loop.iterate(read(cluster, ranges, OFFSETS, fail_on_data_loss=False))) == []
    )
    assert OffsetRange(*EXISTING, 1, 3) in cluster.read
    with pytest.raises(DataLoss, match=r"1 to 5 of kept\[0\]"):
        offsets(worker_loop.iterate(read(cluster, ranges, OFFSETS, fail_on_data_loss=True)))


class Steps(Cluster):
    """A cluster that records the order of calls."""

    def __init__(self, size: int) -> None:
        super().__init__(100)
        self.size = size
        self.steps: list[str] = []

    def fetch_bytes(self, _: OffsetRange) -> int:
        return self.size

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.steps.append("ends")
        return await super().latest(partitions)

    async def fetch_ahead(self) -> None:
        self.steps.append("ask")

    async def next(self) -> None:
        self.steps.append("read")


@pytest.mark.parametrize(
    ("size", "steps"),
    [(1, "ask ask ask ends read read read"), (2**23, "ask ends ask read ask read read")],
)
def test_small_ranges_are_fetched_ahead(worker_loop: WorkerLoop, size: int, steps: str) -> None:
    cluster: Any = Steps(size)
    ranges = [OffsetRange("t", number, 0, 3) for number in range(3)]
    empty = OffsetRange("t", 3, 3, 3)  # must not be fetched, because a broker would wait
    assert (
        offsets(
            worker_loop.iterate(read(cluster, [*ranges, empty], OFFSETS, fail_on_data_loss=True))
        )
        == []
    )
    assert " ".join(cluster.steps) == f"{steps} read"
    assert cluster.read == [*ranges, empty]  # each by the reader that was created first


def test_a_new_partition_deleted_before_planning_is_data_loss(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: Cluster())
    places = ({"old": {"0": 2}}, {"old": {"0": 3}, "kept": {"0": 3}, "gone": {"0": 3}})

    def planned(fail: str) -> list[Any]:
        options = {
            "kafka.bootstrap.servers": "a:1",
            "subscribePattern": ".",
            "failOnDataLoss": fail,
        }
        reader = KafkaStreamReader(parse(options, streaming=True), StructType())
        return [part for task in reader.partitions(*places) for part in task.value]

    assert sorted(planned("false")) == [OffsetRange(*EXISTING, 0, 3), OffsetRange("old", 0, 2, 3)]
    with pytest.raises(DataLoss, match=r"earliest offsets of gone\[0\] cannot be found"):
        planned("true")


class Growing:
    """A topic of one partition whose end grows with each request."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.ids: dict[str, UUID] = {}  # brokers before Kafka 2.8 have none

    async def partitions(self, _: object) -> Collection[TopicPartition]:
        return [EXISTING]

    async def list_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, self.ends.pop(0)) if partitions else {}

    latest = list_offsets

    def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        return {name: self.ids[name] for name in topics if name in self.ids}


REQUIRED = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minPartitions": "many"}, "`minPartitions` must be a whole number"),
        ({"failOnDataLoss": "maybe"}, "`failOnDataLoss` must be true or false"),
        ({"kafka.security.protocol": "SLL"}, "Did you mean SSL"),
        ({"startingOffsets": "{"}, "`startingOffsets` must be JSON"),
        ({"valueFormat": "xml"}, "`valueFormat` must be one of"),
        (
            {"endingOffsets": "earliest"},
            "`endingOffsets` can't be earliest",
        ),  # wrong for batches and streams
        ({"assign": '{"t": [0]}'}, "Set exactly one of"),
    ],
)
def test_wrong_options_are_reported_by_load(options: dict[str, str], message: str) -> None:
    """Check `schema`, which Spark calls at load unless a schema was declared."""
    source = KafkaSource(REQUIRED | options)
    with pytest.raises(ConfigError, match=message):
        source.schema()


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"startingOffsets": "latest"},
        {"maxOffsetsPerTrigger": "5"},
        {"SUBSCRIBE": "t", "StartingOffsets": "earliest", "kafka.FETCH.min.bytes": "1"},
    ],
)
def test_options_of_batches_and_of_streams_are_accepted_by_load(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        name: value for name, value in REQUIRED.items() if name.upper() not in options
    } | options
    assert "value" in KafkaSource(settings).schema()
    assert caplog.text == ""  # at load, the kind of the query is not known


def test_missing_options_are_reported_by_load() -> None:
    for missing, message in (
        ("subscribe", "to select topics"),
        ("kafka.bootstrap.servers", "is missing"),
    ):
        options = {name: value for name, value in REQUIRED.items() if name != missing}
        with pytest.raises(ConfigError, match=message):
            KafkaSource(options).schema()


ID = StructType([StructField("id", LongType(), nullable=False)])


@pytest.mark.parametrize(
    ("column", "value_format", "message"),
    [
        (StructField("key", BinaryType(), nullable=False), None, "key"),
        (StructField("value", BinaryType(), nullable=False), None, "value"),
        (StructField("value", ID), "json", "value"),
        (StructField("value", ID), "avro", ""),  # the schema of the values has no null either
        (StructField("offset", LongType(), nullable=False), None, ""),
    ],
)
def test_columns_that_may_have_nulls_cannot_be_declared_not_null(
    column: StructField, value_format: str | None, message: str
) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    if value_format is not None:
        avro = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
        options |= {"valueFormat": value_format, "valueSchema": avro}
    source, schema = KafkaSource(options), StructType([column])
    if not message:
        source.reader(schema)
        return
    for reader in (source.reader, source.streamReader):
        with pytest.raises(ConfigError, match=f"Column {message} may contain nulls"):
            reader(schema)
    if value_format == "json":
        source.reader(schema.toNullable())


def ends_of(reader: KafkaStreamReader, batches: int) -> list[int]:
    """Return the end offsets of micro-batches of a topic that is read from its beginning."""
    offset: dict[str, Any] = {"kept": {"0": 0}}
    results = []
    for _ in range(batches):
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        results.append(from_json(offset)[EXISTING])
    return results


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        # the first micro-batch does not wait; two triggers have too few records
        ({"minOffsetsPerTrigger": "20"}, [5, 5, 5, 40]),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "20"}, [5, 5, 5, 25]),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "4"}, [4, 8, 12, 16]),
        ({"minOffsetsPerTrigger": "20", "maxTriggerDelay": "60s"}, [5, 5, 24, 24]),
    ],
)
def test_min_offsets_per_trigger_waits_up_to_max_trigger_delay(
    worker_loop: WorkerLoop,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    ends: list[int],
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    clock = SimpleNamespace(monotonic=iter([0.0, 59.0, 61.0, 62.0]).__next__)
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.time", clock)
    settings = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept"} | options
    reader, cluster = (
        KafkaStreamReader(parse(settings, streaming=True), StructType()),
        Growing(5, 14, 24, 40),
    )
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    assert ends_of(reader, 4) == ends


def test_an_available_now_query_ignores_min_offsets_per_trigger(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "4"}
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept"} | limits
    reader, cluster = KafkaStreamReader(parse(options, streaming=True), StructType()), Growing(5, 9)
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    reader.prepareForTriggerAvailableNow()
    assert ends_of(reader, 3) == [4, 5, 5]


class Extended:
    """A topic with an added partition, of which retention has deleted the first 90 records."""

    added = TopicPartition("kept", 1)

    def topic_ids(self, _: object) -> dict[str, UUID]:
        return {}

    async def partitions(self, _: object) -> frozenset[TopicPartition]:
        return frozenset({EXISTING, self.added})

    async def latest(self, _: object) -> dict[TopicPartition, int]:
        return {EXISTING: 5, self.added: 100}

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 90)


@pytest.mark.parametrize(("least", "waits"), [("11", True), ("10", False)])
def test_deleted_records_of_an_added_partition_do_not_count_for_a_trigger(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch, least: str, *, waits: bool
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept", "minOffsetsPerTrigger": least}
    reader = KafkaStreamReader(parse(options, streaming=True), StructType())
    monkeypatch.setattr(reader, "_client", Extended)
    start, limit = to_json({EXISTING: 5}), reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) != start  # the first trigger does not wait
    assert (reader.latestOffset(start, limit) == start) == waits


@pytest.fixture
def growing(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., KafkaStreamReader]:
    """Return a function that makes readers of a topic with the given ends."""
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "kept"}, streaming=True)

    def make(*ends: int) -> KafkaStreamReader:
        reader, cluster = KafkaStreamReader(options, StructType()), Growing(*ends)
        monkeypatch.setattr(reader, "_client", lambda: cluster)
        return reader

    return make


def planned(reader: KafkaStreamReader, *places: dict[str, Any]) -> list[OffsetRange]:
    return [part for task in reader.partitions(*places) for part in task.value]


def test_a_first_batch_is_repeated_from_its_start(
    growing: Callable[..., KafkaStreamReader],
) -> None:
    first = growing(5, 8)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == {EXISTING: 8}
    assert planned(first, start, end) == [OffsetRange(*EXISTING, 5, 8)]
    again = growing(9, 8, 11)
    assert planned(again, again.initialOffset(), end) == [OffsetRange(*EXISTING, 5, 8)]
    assert again.latestOffset(end, ReadAllAvailable()) is end
    later = again.latestOffset(end, ReadAllAvailable())
    assert later == {"kept": {"0": 11}}
    assert planned(again, end, later) == [OffsetRange(*EXISTING, 8, 11)]


def test_an_empty_first_batch_loses_no_record(
    growing: Callable[..., KafkaStreamReader],
) -> None:
    first = growing(5, 5, 6)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert (
        planned(first, first.initialOffset(), end) == []
    )  # Spark calls it again, with a longer log
    again = growing(7, 9)  # a restart does not know the start
    assert planned(again, again.initialOffset(), end) == []
    later = again.latestOffset(end, ReadAllAvailable())
    assert planned(again, end, later) == [OffsetRange(*EXISTING, 5, 9)]


class Written(Cluster):
    """A cluster in which a record is written between any two requests."""

    end = 10

    async def partitions(self, _: object) -> frozenset[TopicPartition]:
        return frozenset([EXISTING])

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.end += 1
        return dict.fromkeys(partitions, self.end)

    list_offsets = latest

    def topic_ids(self, _: object) -> dict[str, UUID]:
        return {"kept": ONE}


def test_an_available_now_query_starts_before_its_end(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Written()
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: cluster)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "kept"}, streaming=True)
    reader = KafkaStreamReader(options, StructType())
    reader.prepareForTriggerAvailableNow()  # the order in which Spark calls
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (task,) = reader.partitions(start, end)
    assert task.value == [OffsetRange(*EXISTING, 11, 12)]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end  # no later records


@pytest.mark.parametrize(("size", "tasks"), [(10, 1), (5 * 2**20, 3)])
def test_record_sizes_are_sampled_once_for_each_topic(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch, size: int, tasks: int
) -> None:
    cluster = Cluster()
    cluster.size = size
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: cluster)
    options = parse(
        {"kafka.bootstrap.servers": "a:1", "subscribePattern": ".", "recordsPerTask": "20000"},
        streaming=True,
    )
    reader = KafkaStreamReader(options, StructType())
    old = {"kept": {"0": 0, "1": 0}, "other": {"0": 0}}
    new = {"kept": {"0": 5, "1": 4}, "other": {"0": 1}}
    for _ in range(2):
        assert len(reader.partitions(old, new)) == tasks
    assert sorted(cluster.sampled) == ["kept", "other"]  # "other" has no sample


def running(
    worker_loop: WorkerLoop,
    monkeypatch: pytest.MonkeyPatch,
    ids: dict[str, UUID],
    *ends: int,
    **options: str,
) -> KafkaStreamReader:
    """Return a reader as of a new process, for topics with these ids."""
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    settings = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept", **options}
    reader, cluster = (
        KafkaStreamReader(parse(settings, streaming=True), StructType()),
        Growing(*ends),
    )
    cluster.ids = ids
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    return reader


@pytest.mark.parametrize(
    "now", [150, 100, 99, 1]
)  # longer than, as long as, and shorter than the part read
def test_a_topic_that_was_re_created_between_runs_is_reported(
    now: int,
    worker_loop: WorkerLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = running(worker_loop, monkeypatch, {"kept": ONE}, 0, 50, 100, startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    later = first.latestOffset(end, ReadAllAvailable())
    assert [from_json(part) for part in (end, later)] == [{EXISTING: 50}, {EXISTING: 100}]
    assert planned(first, end, later) == [OffsetRange(*EXISTING, 50, 100)]

    same = running(worker_loop, monkeypatch, {"kept": ONE}, 100, 150)
    assert same.latestOffset(later, ReadAllAvailable()) is later
    further = same.latestOffset(later, ReadAllAvailable())
    assert planned(same, later, further) == [OffsetRange(*EXISTING, 100, 150)]

    second = running(worker_loop, monkeypatch, {"kept": ANOTHER}, now)
    further = second.latestOffset(later, ReadAllAvailable())
    assert further != later  # also with the same offsets, so that a batch reports it
    with pytest.raises(DataLoss, match=r"deleted and (re-)?created"):
        planned(second, later, further)
    lossy = running(worker_loop, monkeypatch, {"kept": ANOTHER}, now, failOnDataLoss="false")
    ranges = [OffsetRange(*EXISTING, 100, now)] if now > 100 else []
    assert planned(lossy, later, further) == ranges
    assert "topic kept was deleted and re-created" in caplog.text
    assert lossy.latestOffset(further, ReadAllAvailable()) is further  # reported once


def test_a_query_continues_at_offsets_without_topic_ids(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check offsets without ids, as of Spark's source, earlier versions, or old brokers."""
    plain = {"kept": {"0": 100}}
    reader = running(worker_loop, monkeypatch, {"kept": ONE}, 100, 150)
    assert reader.latestOffset(plain, ReadAllAvailable()) is plain  # no batch for the id alone
    end = reader.latestOffset(plain, ReadAllAvailable())
    assert planned(reader, plain, end) == [OffsetRange(*EXISTING, 100, 150)]
    old = running(worker_loop, monkeypatch, {}, 170)
    assert old.latestOffset(end, ReadAllAvailable()) == {"kept": {"0": 170}}
    first = {**plain, 'started at {"kept": {"0": 40}}': {}}
    assert planned(reader, {"kept": {"0": 70}}, first) == [OffsetRange(*EXISTING, 40, 100)]


def test_tasks_have_the_ids_of_their_topics(
    worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = running(worker_loop, monkeypatch, {"kept": ONE}, 150)
    start = {"kept": {"0": 100}}
    end = reader.latestOffset(start, ReadAllAvailable())
    (task,) = reader.partitions(start, end)
    assert isinstance(task, Task)
    assert task.topic_ids == {"kept": ONE}


class Hidden(Growing):
    """A topic that a pattern does not see at the times given by `seen`."""

    def __init__(self, seen: list[bool], *ends: int) -> None:
        super().__init__(*ends)
        self.seen = seen

    async def partitions(self, _: object) -> Collection[TopicPartition]:
        return [EXISTING] if self.seen.pop(0) else []


@pytest.mark.parametrize(
    "limit", [{}, {"maxOffsetsPerTrigger": "3"}, {"minOffsetsPerTrigger": "1"}]
)
def test_a_pattern_without_topics_keeps_its_offsets(
    limit: dict[str, str], worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.worker_loop", lambda: worker_loop)
    options = {"kafka.bootstrap.servers": "a:1", "subscribePattern": "k.*"} | limit
    reader = KafkaStreamReader(parse(options, streaming=True), StructType())
    cluster = Hidden([False, False, True], 8)
    cluster.ids = {"kept": ONE}
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    start = to_json({EXISTING: 5})
    for _ in range(2):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) is start
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert planned(reader, start, end) == [OffsetRange(*EXISTING, 5, 8)]


def test_a_foreign_first_batch_with_an_unknown_start_is_refused(
    growing: Callable[..., KafkaStreamReader],
) -> None:
    reader = growing(9)
    with pytest.raises(ConfigError, match=r'Run the query once with format\("kafka"\)'):
        reader.partitions(reader.initialOffset(), to_json({EXISTING: 8}))


@pytest.mark.parametrize(
    "starting", ["earliest", '{"kept": {"0": 5}}'], ids=["earliest", "offsets"]
)
def test_a_foreign_first_batch_with_a_fixed_start_is_repeated(
    starting: str, worker_loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = running(worker_loop, monkeypatch, {}, 5, startingOffsets=starting)
    assert planned(reader, reader.initialOffset(), to_json({EXISTING: 8})) == [
        OffsetRange(*EXISTING, 5, 8)
    ]

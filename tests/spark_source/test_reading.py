"""What an executor's Python process does, without a Spark around it."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from asyncconsumer.errors import ConfigError, DataLoss, UnknownTopicOrPartition
from asyncconsumer.net.connection import BrokerConnection, RawResponse
from asyncconsumer.net.pool import Traffic
from asyncconsumer.spark.options.selection import SubscribedTopicNames
from asyncconsumer.spark.options.source import parse
from asyncconsumer.spark.source.batch_reader import Task
from asyncconsumer.spark.source.offsets import Offsets, from_json
from asyncconsumer.spark.source.source import KafkaSource
from asyncconsumer.spark.source.stream_reader import KafkaStreamReader
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import WorkerLoop
from asyncconsumer.spark.values.columns import Columns
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import OffsetRange, TopicPartition
from tests.spark_source.world import fill

ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
OFFSETS = Columns(pa.schema([("offset", pa.int64())]))


@pytest.fixture
def home() -> Iterator[WorkerLoop]:
    one = WorkerLoop()
    yield one
    one.close()


def batches(
    home: WorkerLoop, kafka: KafkaHandle, *ranges: OffsetRange, fail: bool = True, size: int = 2**20
) -> Iterator[Any]:
    options = {"max.partition.fetch.bytes": str(size)}
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers, **options})
    return home.iterate(read(client, ranges, OFFSETS, fail_on_data_loss=fail))


def offsets(found: Iterator[Any]) -> list[int]:
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_ranges_of_a_task_are_read_one_after_the_other(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    topic = asyncio.run(kafka.topic(partitions=3))
    asyncio.run(fill(kafka, topic, 90, 3))
    ranges = [
        OffsetRange(topic, 2, 5, 9),
        OffsetRange(topic, 0, 0, 30),
        OffsetRange(topic, 1, 3, 3),
    ]
    for _ in range(2):  # the second time over the same connections
        assert offsets(batches(home, kafka, *ranges)) == [*range(5, 9), *range(30)]


def test_whoever_has_enough_may_stop(home: WorkerLoop, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 200))
    for _ in range(3):
        found = batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500)
        assert offsets(islice(found, 1))[0] == 0
        found.close()  # type: ignore[attr-defined]
    assert len(offsets(batches(home, kafka, OffsetRange(topic, 0, 0, 200), size=500))) == 200


def test_a_client_is_kept_for_all_of_its_options(home: WorkerLoop, kafka: KafkaHandle) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    first = home.client(servers)
    assert home.client(dict(servers)) is first
    assert home.client({**servers, "isolation.level": "read_committed"}) is not first
    others = [home.client({**servers, "client.id": str(number)}) for number in range(8)]
    assert home.client({**servers, "client.id": "7"}) is others[7]
    assert home.client(servers) is not first  # closed: too many came after it


KEPT, GONE = TopicPartition("kept", 0), TopicPartition("gone", 0)


class Cluster:
    """Where a topic went a moment ago; after some questions, if it is still known at first."""

    def __init__(self, known: int = 0) -> None:
        self.known = known
        self.position = 0
        self.size = 1
        self.sampled: list[str] = []
        self.read: list[OffsetRange] = []

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.known -= 1
        if GONE in partitions and self.known < 0:
            raise UnknownTopicOrPartition(str(GONE))
        return dict.fromkeys(partitions, 3)

    async def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(await self.latest(partitions), 0)

    def reader(self, wanted: OffsetRange) -> "Cluster":
        self.read.append(wanted)
        return self

    def fetch_bytes(self, _: OffsetRange) -> int:
        return 1

    async def record_bytes(self, ranges: Collection[OffsetRange]) -> dict[str, int]:
        self.sampled += [one.topic for one in ranges]
        return {"kept": self.size}

    async def ask_ahead(self) -> None:
        """Nothing is on its way."""

    async def next(self) -> None:
        """There is nothing."""


@pytest.mark.fast
@pytest.mark.parametrize("known", range(5))
def test_what_is_there_is_read_whenever_the_other_goes(home: WorkerLoop, known: int) -> None:
    cluster: Any = Cluster(known)
    ranges = [OffsetRange(*KEPT, 1, 5), OffsetRange(*GONE, 1, 3)]
    assert offsets(home.iterate(read(cluster, ranges, OFFSETS, fail_on_data_loss=False))) == []
    assert OffsetRange(*KEPT, 1, 3) in cluster.read
    with pytest.raises(DataLoss, match=r"1 to 5 of kept\[0\]"):
        offsets(home.iterate(read(cluster, ranges, OFFSETS, fail_on_data_loss=True)))


class Steps(Cluster):
    """Tells what is done, and when."""

    def __init__(self, size: int) -> None:
        super().__init__(100)
        self.size = size
        self.steps: list[str] = []

    def fetch_bytes(self, _: OffsetRange) -> int:
        return self.size

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.steps.append("ends")
        return await super().latest(partitions)

    async def ask_ahead(self) -> None:
        self.steps.append("ask")

    async def next(self) -> None:
        self.steps.append("read")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("size", "steps"),
    [(1, "ask ask ask ends read read read"), (2**23, "ask ends ask read ask read read")],
)
def test_fetches_are_on_their_way_before_they_are_wanted(
    home: WorkerLoop, size: int, steps: str
) -> None:
    cluster: Any = Steps(size)
    ranges = [OffsetRange("t", number, 0, 3) for number in range(3)]
    empty = OffsetRange("t", 3, 3, 3)  # a broker would wait for what is not wanted
    assert (
        offsets(home.iterate(read(cluster, [*ranges, empty], OFFSETS, fail_on_data_loss=True)))
        == []
    )
    assert " ".join(cluster.steps) == f"{steps} read"
    assert cluster.read == [*ranges, empty]  # each by the reader that has asked


def test_a_small_range_does_not_ask_for_much(home: WorkerLoop) -> None:
    small, large = OffsetRange("t", 0, 0, 10_000), OffsetRange("t", 0, 0, 10_000_000)
    client = home.client({"bootstrap.servers": "localhost:1"})
    assert client.fetch_bytes(small) < client.fetch_bytes(large) == 4 * 2**20
    assert client.fetch_bytes(OffsetRange("t", 0, 0, 1)) == 2**18
    client = home.client({"bootstrap.servers": "localhost:1", "max.partition.fetch.bytes": "9999"})
    assert client.fetch_bytes(small) == 9999


@pytest.mark.fast
def test_a_new_partition_that_is_gone_before_its_batch_is_planned(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: Cluster())
    places = ({"old": {"0": 2}}, {"old": {"0": 3}, "kept": {"0": 3}, "gone": {"0": 3}})

    def planned(fail: str) -> list[Any]:
        options = {
            "kafka.bootstrap.servers": "a:1",
            "subscribePattern": ".",
            "failOnDataLoss": fail,
        }
        reader = KafkaStreamReader(parse(options, streaming=True), StructType())
        return [one for task in reader.partitions(*places) for one in task.value]

    assert sorted(planned("false")) == [OffsetRange(*KEPT, 0, 3), OffsetRange("old", 0, 2, 3)]
    with pytest.raises(DataLoss, match=r"earliest offsets of gone\[0\] cannot be found"):
        planned("true")


class Growing:
    """A topic of one partition that has some records more each time its end is asked for."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.ids: dict[str, UUID] = {}  # brokers before Kafka 2.8 have none

    async def partitions(self, _: object) -> Collection[TopicPartition]:
        return [KEPT]

    async def list_offsets(self, asked: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(asked, self.ends.pop(0)) if asked else {}

    latest = list_offsets

    def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        return {name: self.ids[name] for name in topics if name in self.ids}


@pytest.mark.fast
def test_writing_is_for_sparks_own() -> None:
    for writer in (KafkaSource({}).writer, KafkaSource({}).streamWriter):
        with pytest.raises(ConfigError, match=r'to write to it, keep format\("kafka"\)'):
            writer(StructType(), False)


GIVEN = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers"),
        ({"kafka.fetch.min.byte": "1"}, "did you mean kafka.fetch.min.bytes"),
        ({"minPartitions": "many"}, "minPartitions must be a whole number"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"kafka.security.protocol": "SLL"}, "did you mean SSL"),
        ({"startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({"valueFormat": "xml"}, "valueFormat must be one of"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),  # wrong in both
        ({"topic": "t"}, "unknown option 'topic'"),
        ({"assign": '{"t": [0]}'}, "only one of"),
    ],
)
def test_what_is_wrong_is_told_as_soon_as_spark_loads(options: dict[str, str], told: str) -> None:
    """It asks for the schema then, unless one was declared."""
    source = KafkaSource(GIVEN | options)
    with pytest.raises(ConfigError, match=told):
        source.schema()


@pytest.mark.fast
@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"startingOffsets": "latest"},
        {"maxOffsetsPerTrigger": "5"},
        {"SUBSCRIBE": "t", "StartingOffsets": "earliest", "kafka.FETCH.min.bytes": "1"},
    ],
)
def test_what_is_right_for_a_batch_or_for_a_stream_may_be_loaded(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    given = {name: value for name, value in GIVEN.items() if name.upper() not in options} | options
    assert "value" in KafkaSource(given).schema()
    assert caplog.text == ""  # which of the two it is is not known yet


@pytest.mark.fast
def test_what_is_missing_is_told_as_soon_as_spark_loads() -> None:
    for missing, told in (("subscribe", "which topics"), ("kafka.bootstrap.servers", "is missing")):
        given = {name: value for name, value in GIVEN.items() if name != missing}
        with pytest.raises(ConfigError, match=told):
            KafkaSource(given).schema()


ID = StructType([StructField("id", LongType(), nullable=False)])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("column", "value_format", "told"),
    [
        (StructField("key", BinaryType(), nullable=False), None, "key"),
        (StructField("value", BinaryType(), nullable=False), None, "value"),
        (StructField("value", ID), "json", "value"),
        (StructField("value", ID), "avro", ""),  # where the values' own schema says as much
        (StructField("offset", LongType(), nullable=False), None, ""),
    ],
)
def test_what_may_be_null_cannot_be_declared_otherwise(
    column: StructField, value_format: str | None, told: str
) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    if value_format is not None:
        avro = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
        options |= {"valueFormat": value_format, "valueSchema": avro}
    source, schema = KafkaSource(options), StructType([column])
    if not told:
        source.reader(schema)
        return
    for reader in (source.reader, source.streamReader):
        with pytest.raises(ConfigError, match=f"column {told} may have nulls"):
            reader(schema)
    if value_format == "json":
        source.reader(schema.toNullable())


def ends_of(reader: KafkaStreamReader, batches: int) -> list[int]:
    """Of a topic that is read from its beginning."""
    at: dict[str, Any] = {"kept": {"0": 0}}
    found = []
    for _ in range(batches):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        found.append(from_json(at)[KEPT])
    return found


@pytest.mark.fast
@pytest.mark.parametrize(
    ("options", "ends"),
    [
        # the first is never waited with; then there are too few, twice; then enough
        ({"minOffsetsPerTrigger": "20"}, [5, 5, 5, 40]),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "20"}, [5, 5, 5, 25]),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "4"}, [4, 8, 12, 16]),
        ({"minOffsetsPerTrigger": "20", "maxTriggerDelay": "60s"}, [5, 5, 24, 24]),
    ],
)
def test_a_micro_batch_waits_for_enough_but_not_for_long(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], ends: list[int]
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    clock = SimpleNamespace(monotonic=iter([0.0, 59.0, 61.0, 62.0]).__next__)
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.time", clock)
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept"} | options
    reader, cluster = (
        KafkaStreamReader(parse(given, streaming=True), StructType()),
        Growing(5, 14, 24, 40),
    )
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    assert ends_of(reader, 4) == ends


@pytest.mark.fast
def test_what_is_available_now_is_not_waited_with(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "4"}
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept"} | limits
    reader, cluster = KafkaStreamReader(parse(given, streaming=True), StructType()), Growing(5, 9)
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    reader.prepareForTriggerAvailableNow()
    assert ends_of(reader, 3) == [4, 5, 5]


@pytest.fixture
def growing(home: WorkerLoop, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaStreamReader]:
    """Readers of a topic with these ends."""
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "kept"}, streaming=True)

    def reader(*ends: int) -> KafkaStreamReader:
        made, cluster = KafkaStreamReader(options, StructType()), Growing(*ends)
        monkeypatch.setattr(made, "_client", lambda: cluster)
        return made

    return reader


def planned(reader: KafkaStreamReader, *places: dict[str, Any]) -> list[OffsetRange]:
    return [one for task in reader.partitions(*places) for one in task.value]


@pytest.mark.fast
def test_a_first_batch_is_repeated_from_where_it_began(
    growing: Callable[..., KafkaStreamReader],
) -> None:
    first = growing(5, 8)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == {KEPT: 8}
    assert planned(first, start, end) == [OffsetRange(*KEPT, 5, 8)]
    again = growing(9, 8, 11)
    assert planned(again, again.initialOffset(), end) == [OffsetRange(*KEPT, 5, 8)]
    assert again.latestOffset(end, ReadAllAvailable()) is end
    later = again.latestOffset(end, ReadAllAvailable())
    assert later == {"kept": {"0": 11}}
    assert planned(again, end, later) == [OffsetRange(*KEPT, 8, 11)]


@pytest.mark.fast
def test_a_first_batch_of_nothing_loses_nothing(
    growing: Callable[..., KafkaStreamReader],
) -> None:
    first = growing(5, 5, 6)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert planned(first, first.initialOffset(), end) == []  # Spark asks again, of a longer log
    again = growing(7, 9)  # nor does it know where that began, if it did not end
    assert planned(again, again.initialOffset(), end) == []
    later = again.latestOffset(end, ReadAllAvailable())
    assert planned(again, end, later) == [OffsetRange(*KEPT, 5, 9)]


class Written(Cluster):
    """Where a record is written between any two questions."""

    end = 10

    async def partitions(self, _: object) -> frozenset[TopicPartition]:
        return frozenset([KEPT])

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.end += 1
        return dict.fromkeys(partitions, self.end)

    list_offsets = latest

    def topic_ids(self, _: object) -> dict[str, UUID]:
        return {"kept": ONE}


@pytest.mark.fast
def test_an_available_now_query_of_a_topic_that_is_written_to_starts_before_its_end(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Written()
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: cluster)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "kept"}, streaming=True)
    reader = KafkaStreamReader(options, StructType())
    reader.prepareForTriggerAvailableNow()  # Spark's order
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (task,) = reader.partitions(start, end)
    assert task.value == [OffsetRange(*KEPT, 11, 12)]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end  # there is no more


@pytest.mark.fast
@pytest.mark.parametrize(("size", "tasks"), [(10, 1), (5 * 2**20, 3)])
def test_how_large_records_are_is_asked_once(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch, size: int, tasks: int
) -> None:
    cluster = Cluster()
    cluster.size = size
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    monkeypatch.setattr(KafkaStreamReader, "_client", lambda _: cluster)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribePattern": "."}, streaming=True)
    reader = KafkaStreamReader(options, StructType())
    old = {"kept": {"0": 0, "1": 0}, "other": {"0": 0}}
    new = {"kept": {"0": 5, "1": 4}, "other": {"0": 1}}
    for _ in range(2):
        assert len(reader.partitions(old, new)) == tasks
    assert sorted(cluster.sampled) == ["kept", "other"]  # the other one could not be told


def test_a_topic_that_goes_while_a_task_waits(home: WorkerLoop, kafka: KafkaHandle) -> None:
    kept, gone = asyncio.run(kafka.topic()), "gone-before-it-was-read"
    asyncio.run(fill(kafka, kept, 4))
    ranges = [OffsetRange(gone, 0, 0, 5), OffsetRange(kept, 0, 1, 4)]
    with pytest.raises(DataLoss, match=gone):
        offsets(batches(home, kafka, *ranges))
    assert offsets(batches(home, kafka, *ranges, fail=False)) == [1, 2, 3]


def test_nothing_looks_late_because_spark_takes_its_time(home: WorkerLoop) -> None:
    late: list[str] = []

    async def things() -> AsyncGenerator[list[str], None]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, late.append, "a deadline that was nobody's fault")
        yield list(late)
        for _ in range(3):
            await asyncio.sleep(0)
        yield list(late)
        await asyncio.sleep(0.1)
        yield list(late)

    found = home.iterate(things())
    assert next(found) == []
    time.sleep(0.3)
    assert next(found) == []
    assert len(next(found)) == 1  # time that the loop is run does pass
    assert list(found) == []


def test_between_tasks_time_passes(home: WorkerLoop) -> None:
    passed: list[str] = []

    async def once() -> None:
        asyncio.get_running_loop().call_later(0.1, passed.append, "a login, or what is idle")

    async def things() -> AsyncGenerator[int, None]:
        yield 1

    home.run(once())
    assert list(home.iterate(things())) == [1]
    time.sleep(0.15)
    for _ in range(2):
        home.run(asyncio.sleep(0))
    assert len(passed) == 1


def test_two_that_read_in_turns_share_a_clock_that_stands_still(home: WorkerLoop) -> None:
    async def times() -> AsyncGenerator[float, None]:
        while True:
            yield asyncio.get_running_loop().time()

    one, other = home.iterate(times()), home.iterate(times())
    begun, _ = next(one), next(other)
    for _ in range(3):
        time.sleep(0.1)
        ended = max(next(one), next(other))
    assert ended - begun < 0.1
    one.close()
    other.close()


def test_a_connection_that_ended_meanwhile_is_not_used(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    brokers = home.client(options)._session.brokers
    address = brokers.config.addresses[0]
    connection = home.run(brokers.connection(address, Traffic.CONTROL))
    connection._transport.get_extra_info("socket").shutdown(socket.SHUT_RD)  # as if it hung up
    assert connection.ending is None
    home.client(options)
    assert connection.ending is not None


def test_only_who_reads_alone_keeps_the_loop_to_itself(
    home: WorkerLoop, kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    receive = BrokerConnection.receive

    def noted(connection: BrokerConnection, answer: asyncio.Future[RawResponse]) -> None:
        kept.append(connection)
        receive(connection, answer)

    monkeypatch.setattr(BrokerConnection, "receive", noted)
    topic = asyncio.run(kafka.topic(partitions=2))
    asyncio.run(fill(kafka, topic, 20, 2))
    ranges = [OffsetRange(topic, number, 0, 10) for number in range(2)]
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    assert home.run(client.record_bytes(ranges))[topic] > 0
    assert kept == []  # many topics are asked at once
    assert len(offsets(batches(home, kafka, *ranges))) == 20
    assert kept


def test_who_stops_early_ends_what_it_read_from(home: WorkerLoop) -> None:
    ended: list[str] = []

    async def things() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("all")

    for _ in home.iterate(things()):
        break
    assert ended == ["all"]


def running(
    home: WorkerLoop,
    monkeypatch: pytest.MonkeyPatch,
    ids: dict[str, UUID],
    *ends: int,
    **options: str,
) -> KafkaStreamReader:
    """A reader in another process than the one before, of a topic with this id."""
    monkeypatch.setattr("asyncconsumer.spark.source.stream_reader.home", lambda: home)
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "kept", **options}
    reader, cluster = KafkaStreamReader(parse(given, streaming=True), StructType()), Growing(*ends)
    cluster.ids = ids
    monkeypatch.setattr(reader, "_client", lambda: cluster)
    return reader


@pytest.mark.fast
@pytest.mark.parametrize("now", [150, 100, 99, 1])  # longer, as long, shorter than what was read
def test_a_topic_that_was_created_again_between_two_runs_is_told_of(
    now: int, home: WorkerLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = running(home, monkeypatch, {"kept": ONE}, 0, 50, 100, startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    later = first.latestOffset(end, ReadAllAvailable())
    assert [from_json(one) for one in (end, later)] == [{KEPT: 50}, {KEPT: 100}]
    assert planned(first, end, later) == [OffsetRange(*KEPT, 50, 100)]

    same = running(home, monkeypatch, {"kept": ONE}, 100, 150)
    assert same.latestOffset(later, ReadAllAvailable()) is later
    further = same.latestOffset(later, ReadAllAvailable())
    assert planned(same, later, further) == [OffsetRange(*KEPT, 100, 150)]

    second = running(home, monkeypatch, {"kept": ANOTHER}, now)
    further = second.latestOffset(later, ReadAllAvailable())
    assert further != later  # also where the offsets are the same: there is something to tell
    with pytest.raises(DataLoss, match="deleted and created a"):
        planned(second, later, further)
    careless = running(home, monkeypatch, {"kept": ANOTHER}, now, failOnDataLoss="false")
    ranges = [OffsetRange(*KEPT, 100, now)] if now > 100 else []
    assert planned(careless, later, further) == ranges
    assert "topic kept was deleted and created again" in caplog.text
    assert careless.latestOffset(further, ReadAllAvailable()) is further  # told once


@pytest.mark.fast
def test_offsets_without_ids_are_read_on(home: WorkerLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Spark's own source, of earlier versions, and of brokers that have no ids."""
    plain = {"kept": {"0": 100}}
    reader = running(home, monkeypatch, {"kept": ONE}, 100, 150)
    assert reader.latestOffset(plain, ReadAllAvailable()) is plain  # no batch for the id alone
    end = reader.latestOffset(plain, ReadAllAvailable())
    assert planned(reader, plain, end) == [OffsetRange(*KEPT, 100, 150)]
    old = running(home, monkeypatch, {}, 170)
    assert old.latestOffset(end, ReadAllAvailable()) == {"kept": {"0": 170}}
    first = {**plain, 'started at {"kept": {"0": 40}}': {}}
    assert planned(reader, {"kept": {"0": 70}}, first) == [OffsetRange(*KEPT, 40, 100)]


@pytest.mark.fast
def test_tasks_know_which_topics_they_are_of(
    home: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = running(home, monkeypatch, {"kept": ONE}, 150)
    start = {"kept": {"0": 100}}
    end = reader.latestOffset(start, ReadAllAvailable())
    (task,) = reader.partitions(start, end)
    assert isinstance(task, Task)
    assert task.topic_ids == {"kept": ONE}


def test_a_task_of_a_topic_that_was_created_again_since_it_was_planned(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    """By a process that never saw the old one, so that nothing but the id tells."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    ranges = [OffsetRange(topic, 0, 5, 10)]

    def read_with(ids: dict[str, UUID], *, fail: bool) -> list[int]:
        found = read(client, ranges, OFFSETS, fail_on_data_loss=fail, topic_ids=ids)
        return offsets(home.iterate(found))

    assert read_with({}, fail=True) == list(range(5, 10))
    ids = client.topic_ids([topic])
    assert read_with(ids, fail=True) == list(range(5, 10))
    with pytest.raises(DataLoss, match="was deleted and created anew"):
        read_with({topic: ANOTHER}, fail=True)
    assert read_with({topic: ANOTHER}, fail=False) == list(range(5, 10))


def test_a_process_that_knew_the_topic_before_reads_the_new_one(
    home: WorkerLoop, kafka: KafkaHandle
) -> None:
    """Spark's workers live longer than queries: what they know of a topic may be old."""
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 10))
    client = home.client({"bootstrap.servers": kafka.bootstrap_servers})
    found = read(client, [OffsetRange(topic, 0, 0, 10)], OFFSETS, fail_on_data_loss=True)
    assert offsets(home.iterate(found)) == list(range(10))
    old = client.topic_ids([topic])
    asyncio.run(kafka.admin.delete_topic(topic))
    asyncio.run(kafka.admin.create_topic(topic))
    asyncio.run(fill(kafka, topic, 20))
    planner = WorkerLoop()
    other = planner.client({"bootstrap.servers": kafka.bootstrap_servers})
    planner.run(other.partitions(SubscribedTopicNames((topic,))))
    new = other.topic_ids([topic])
    planner.close()
    assert new != old
    wanted = [OffsetRange(topic, 0, 10, 20)]
    found = read(client, wanted, OFFSETS, fail_on_data_loss=True, topic_ids=new)
    assert offsets(home.iterate(found)) == list(range(10, 20))
    with pytest.raises(DataLoss, match="was deleted and created anew"):
        offsets(home.iterate(read(client, wanted, OFFSETS, fail_on_data_loss=True, topic_ids=old)))

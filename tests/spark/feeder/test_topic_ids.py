"""Re-created topics: their records must not be written after those of the old topic.

The new log may be as long as the old one, so offsets alone do not show the change.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable

from asyncconsumer import TopicPartition
from asyncconsumer.errors import SinkFailed, SinkOffsetConflict
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.delta import DeltaSink
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Offset
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import batch, joined
from tests.support.memory_sink import AT, MemorySink, world
from tests.support.memory_sink import make_feeder as fed_by_fakes

pytestmark = pytest.mark.fast


PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
KINDS: list[Any] = [LandingFolder, DeltaSink]

of_both = pytest.mark.parametrize("kind", KINDS)


def opened(kind: Callable[[str], Any], folder: Path) -> Any:
    sink = kind(str(folder / "sink"))
    sink.open()
    sink.load([PLACE, OTHER])
    return sink


def write(sink: Any, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


# --- sinks ---------------------------------------------------------------------------------------


@of_both
def test_a_batch_with_another_topic_id_is_refused(kind: Any, tmp_path: Path) -> None:
    sink = opened(kind, tmp_path)
    assert write(sink, batch("t", 0, 0, range(3), topic_id=ONE)) == set()
    for number in range(2):
        again = opened(kind, tmp_path) if number else sink
        assert write(again, batch("t", 0, 3 + number, [1], topic_id=ONE)) == set()
        with pytest.raises(
            SinkOffsetConflict, match=r"t\[0\].*another topic of that name.* re-created\. "
        ) as excinfo:
            write(again, batch("t", 0, 4 + number, [1], topic_id=ANOTHER))
        assert (excinfo.value.partition, excinfo.value.recorded) == (PLACE, 4 + number)
    assert opened(kind, tmp_path).load([PLACE]) == {PLACE: 5}


@of_both
def test_batches_without_topic_ids_are_accepted(kind: Any, tmp_path: Path) -> None:
    """Check a sink that was written without ids. It has the id after the next batch."""
    assert write(opened(kind, tmp_path), batch("t", 0, 0, [0])) == set()
    assert write(opened(kind, tmp_path), batch("t", 0, 1, [1], topic_id=ONE)) == set()
    sink = opened(kind, tmp_path)
    with pytest.raises(SinkOffsetConflict):
        write(sink, batch("t", 0, 2, [2], topic_id=ANOTHER))
    assert write(sink, batch("t", 0, 2, [2])) == set()


@of_both
def test_each_topic_of_a_sink_has_its_own_id(kind: Any, tmp_path: Path) -> None:
    ids = {"t": ONE, "u": ANOTHER, "t" * 249: UUID(int=3 << 100)}
    places = [TopicPartition(topic, 0) for topic in ids]
    for offset in range(3):
        sink = opened(kind, tmp_path)
        sink.load(places)
        whole = joined(*(batch(topic, 0, offset, [offset], topic_id=ids[topic]) for topic in ids))
        assert write(sink, whole) == set()


def test_a_delta_table_has_the_id_in_its_first_commit_with_records(tmp_path: Path) -> None:
    sink = opened(DeltaSink, tmp_path)
    for offset in range(3):
        write(sink, batch("t", 0, offset, [offset], topic_id=ONE))
    log = sorted((tmp_path / "sink" / "_delta_log").glob("*.json"))
    reported = [
        number for number, path in enumerate(log) if "asyncconsumer:t:id" in path.read_text()
    ]
    assert reported == [1]  # commit 0 creates the table
    with pytest.raises(
        SinkOffsetConflict, match=r"t\[1\] up to offset 0"
    ):  # the id applies to all partitions
        write(sink, batch("t", 1, 0, [0], topic_id=ANOTHER))


@pytest.mark.parametrize("late_id", [ONE, ANOTHER])
def test_concurrent_first_commits_of_a_topic_check_its_id(
    late_id: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, late = opened(DeltaSink, tmp_path), opened(DeltaSink, tmp_path)
    write(sink, batch("other", 0, 0, [0]))
    meanwhile, append = [batch("t", 0, 0, [0], topic_id=ONE)], DeltaSink._append

    def after_another(self: DeltaSink, table: DeltaTable, what: FeedBatch) -> None:
        if self is late and meanwhile:
            write(sink, meanwhile.pop())
        append(self, table, what)

    monkeypatch.setattr(DeltaSink, "_append", after_another)
    second = batch("t", 1, 0, [1], topic_id=late_id)
    if late_id == ONE:
        assert write(late, second) == set()
    else:
        with pytest.raises(SinkOffsetConflict, match=r"t\[1\]"):
            write(late, second)
    held = {PLACE: 1, OTHER: 1 if late_id == ONE else None}
    assert opened(DeltaSink, tmp_path).load([PLACE, OTHER]) == held


# --- feeders -------------------------------------------------------------------------------------


class RecordingSink(MemorySink):
    """A memory sink that records transaction names and topic ids of batches."""

    def __init__(self, *, remembers: bool = True) -> None:
        super().__init__(remembers=remembers)
        self.ids = list[UUID | None]()
        self.names = list[tuple[str, int]]()
        self.dies = False

    async def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        self.ids += [part.topic_id for part in batch.parts.values()]
        self.names.append((batch.txn_app_id, batch.txn_version))
        if self.dies:
            raise OSError("the process dies")
        return await super().publish(batch, prepared)


@simulated(seeds=range(2), limit=600)
async def test_a_batch_has_the_topic_id_of_its_records() -> None:
    """Check an id that differs from the one at assignment."""
    async with world() as cluster:
        sink = RecordingSink()
        async with fed_by_fakes(cluster, sink) as feeder:
            await feeder.caught_up()
            made = cluster.recreate_topic("t")
            cluster.append("t", 0, 10)
            await feeder.caught_up()
        assert sink.ends == {AT: 10}
        assert set(sink.ids) == {made}


@pytest.mark.parametrize("message", ["", f" of {ONE.hex}"])
@simulated(seeds=range(2), limit=600)
async def test_a_repeated_batch_has_the_same_txn_app_id(message: str) -> None:
    """Check intents with and without topic ids, because the table may have the batch already."""
    async with world(records=30) as cluster:
        sink = RecordingSink(remembers=False)
        async with fed_by_fakes(cluster, sink, max_records=1000) as feeder:
            intent = Offset(0, metadata=f"asyncconsumer batch until 7{message}")
            await feeder.caught_up()
            await feeder._consumer.commit({AT: intent})
        sink.names.clear()
        sink.ends.clear()
        async with fed_by_fakes(cluster, sink, max_records=1000) as feeder:
            await feeder.caught_up()
        first, rest = sink.names
        assert first == ("asyncconsumer:t:0" + (":AAAAEAAAAAAAAAAAAAAAAA" if message else ""), 7)
        assert rest[0] not in (first[0], "asyncconsumer:t:0")


@simulated(seeds=range(2), limit=600)
async def test_a_write_intent_has_the_topic_id() -> None:
    async with world(records=5) as cluster:
        sink = RecordingSink(remembers=False)
        sink.dies = True
        with pytest.raises(SinkFailed, match="dies"):
            async with fed_by_fakes(cluster, sink, retries=0) as feeder:
                await feeder.run()
        sink.dies = False
        async with fed_by_fakes(cluster, sink) as feeder:
            await feeder.caught_up()
        assert sink.names[0] == sink.names[1]
        assert sink.ids[0] == sink.ids[1] is not None

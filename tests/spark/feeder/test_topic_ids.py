"""A topic that was deleted and re-created: nothing of it may be taken for what follows the old one.

It may be as long by then as the old one was, so that no offset tells.
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
from tests.support.memory_sink import AT, Shelf, world
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
def test_what_follows_is_taken_only_of_the_same_topic(kind: Any, tmp_path: Path) -> None:
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
def test_where_brokers_have_no_ids_nothing_is_another(kind: Any, tmp_path: Path) -> None:
    """Topics that were fed before brokers had ids are known from the next batch on."""
    assert write(opened(kind, tmp_path), batch("t", 0, 0, [0])) == set()
    assert write(opened(kind, tmp_path), batch("t", 0, 1, [1], topic_id=ONE)) == set()
    sink = opened(kind, tmp_path)
    with pytest.raises(SinkOffsetConflict):
        write(sink, batch("t", 0, 2, [2], topic_id=ANOTHER))
    assert write(sink, batch("t", 0, 2, [2])) == set()


@of_both
def test_topics_are_distinguished(kind: Any, tmp_path: Path) -> None:
    ids = {"t": ONE, "u": ANOTHER, "t" * 249: UUID(int=3 << 100)}
    places = [TopicPartition(topic, 0) for topic in ids]
    for offset in range(3):
        sink = opened(kind, tmp_path)
        sink.load(places)
        whole = joined(*(batch(topic, 0, offset, [offset], topic_id=ids[topic]) for topic in ids))
        assert write(sink, whole) == set()


def test_a_delta_table_has_the_id_in_the_commit_of_the_first_records(tmp_path: Path) -> None:
    sink = opened(DeltaSink, tmp_path)
    for offset in range(3):
        write(sink, batch("t", 0, offset, [offset], topic_id=ONE))
    log = sorted((tmp_path / "sink" / "_delta_log").glob("*.json"))
    reported = [
        number for number, path in enumerate(log) if "asyncconsumer:t:id" in path.read_text()
    ]
    assert reported == [1]  # the table itself is 0
    with pytest.raises(SinkOffsetConflict, match=r"t\[1\] up to offset 0"):  # of the same topic
        write(sink, batch("t", 1, 0, [0], topic_id=ANOTHER))


@pytest.mark.parametrize("late_id", [ONE, ANOTHER])
def test_of_two_that_tell_a_table_of_a_topic_the_second_looks_again(
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


class Names(Shelf):
    """One that keeps what batches are called, and of which topic they are."""

    def __init__(self, *, remembers: bool = True) -> None:
        super().__init__(remembers=remembers)
        self.ids = list[UUID | None]()
        self.names = list[tuple[str, int]]()
        self.dies = False

    async def publish(self, batch: FeedBatch, prepared: object) -> Collection[TopicPartition]:
        self.ids += [part.topic_id for part in batch.parts.values()]
        self.names.append((batch.txn_app_id, batch.txn_version))
        if self.dies:
            raise OSError("here the process dies")
        return await super().publish(batch, prepared)


@simulated(seeds=range(2), limit=600)
async def test_a_batch_has_the_id_of_the_topic_that_was_read() -> None:
    """The test includes an id that differs from the one at assignment."""
    async with world() as cluster:
        sink = Names()
        async with fed_by_fakes(cluster, sink) as feeder:
            await feeder.caught_up()
            made = cluster.recreate_topic("t")
            cluster.append("t", 0, 10)
            await feeder.caught_up()
        assert sink.ends == {AT: 10}
        assert set(sink.ids) == {made}


@pytest.mark.parametrize("message", ["", f" of {ONE.hex}"])
@simulated(seeds=range(2), limit=600)
async def test_a_batch_that_is_made_again_has_the_name_that_it_had(message: str) -> None:
    """Whatever was in use then: it may be in the table by that name."""
    async with world(records=30) as cluster:
        sink = Names(remembers=False)
        async with fed_by_fakes(cluster, sink, max_records=1000) as feeder:
            promise = Offset(0, metadata=f"asyncconsumer batch until 7{message}")
            await feeder.caught_up()
            await feeder._consumer.commit({AT: promise})
        sink.names.clear()
        sink.ends.clear()
        async with fed_by_fakes(cluster, sink, max_records=1000) as feeder:
            await feeder.caught_up()
        first, rest = sink.names
        assert first == ("asyncconsumer:t:0" + (":AAAAEAAAAAAAAAAAAAAAAA" if message else ""), 7)
        assert rest[0] not in (first[0], "asyncconsumer:t:0")


@simulated(seeds=range(2), limit=600)
async def test_a_promise_has_the_id() -> None:
    async with world(records=5) as cluster:
        sink = Names(remembers=False)
        sink.dies = True
        with pytest.raises(SinkFailed, match="dies"):
            async with fed_by_fakes(cluster, sink, retries=0) as feeder:
                await feeder.run()
        sink.dies = False
        async with fed_by_fakes(cluster, sink) as feeder:
            await feeder.caught_up()
        assert sink.names[0] == sink.names[1]
        assert sink.ids[0] == sink.ids[1] is not None

"""A topic that was deleted and made anew: nothing of it may be taken for what follows the old one.

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
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Offset
from tests.consumer.real import send
from tests.spark.delta_runtime import delta_rs as delta_rs
from tests.spark.lake import batch, feeder, joined
from tests.spark.shelf import AT, Shelf, world
from tests.spark.shelf import feeder as fed_by_fakes

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
KINDS: list[Any] = [LandingFolder, DeltaSink]

of_both = pytest.mark.parametrize("kind", KINDS)


def opened(kind: Callable[[str], Any], folder: Path) -> Any:
    one = kind(str(folder / "sink"))
    one.open()
    one.load([PLACE, OTHER])
    return one


def write(one: Any, what: FeedBatch) -> set[TopicPartition]:
    return set(one.publish(what, one.prepare(what)))


# --- sinks ---------------------------------------------------------------------------------------


@pytest.mark.fast
@of_both
def test_what_follows_is_taken_only_of_the_same_topic(kind: Any, tmp_path: Path) -> None:
    one = opened(kind, tmp_path)
    assert write(one, batch("t", 0, 0, range(3), topic_id=ONE)) == set()
    for number in range(2):
        again = opened(kind, tmp_path) if number else one
        assert write(again, batch("t", 0, 3 + number, [1], topic_id=ONE)) == set()
        with pytest.raises(
            SinkOffsetConflict, match=r"t\[0\].*another topic of that name.* anew\. "
        ) as told:
            write(again, batch("t", 0, 4 + number, [1], topic_id=ANOTHER))
        assert (told.value.partition, told.value.recorded) == (PLACE, 4 + number)
    assert opened(kind, tmp_path).load([PLACE]) == {PLACE: 5}


@pytest.mark.fast
@of_both
def test_where_brokers_have_no_ids_nothing_is_another(kind: Any, tmp_path: Path) -> None:
    """And what was fed before they had them is known from the next batch on."""
    assert write(opened(kind, tmp_path), batch("t", 0, 0, [0])) == set()
    assert write(opened(kind, tmp_path), batch("t", 0, 1, [1], topic_id=ONE)) == set()
    one = opened(kind, tmp_path)
    with pytest.raises(SinkOffsetConflict):
        write(one, batch("t", 0, 2, [2], topic_id=ANOTHER))
    assert write(one, batch("t", 0, 2, [2])) == set()


@pytest.mark.fast
@of_both
def test_topics_are_told_apart(kind: Any, tmp_path: Path) -> None:
    ids = {"t": ONE, "u": ANOTHER, "t" * 249: UUID(int=3 << 100)}
    places = [TopicPartition(topic, 0) for topic in ids]
    for at in range(3):
        one = opened(kind, tmp_path)
        one.load(places)
        whole = joined(*(batch(topic, 0, at, [at], topic_id=ids[topic]) for topic in ids))
        assert write(one, whole) == set()


@pytest.mark.fast
def test_a_delta_table_has_the_id_in_the_commit_of_the_first_records(tmp_path: Path) -> None:
    one = opened(DeltaSink, tmp_path)
    for at in range(3):
        write(one, batch("t", 0, at, [at], topic_id=ONE))
    log = sorted((tmp_path / "sink" / "_delta_log").glob("*.json"))
    told = [number for number, path in enumerate(log) if "asyncconsumer:t:id" in path.read_text()]
    assert told == [1]  # the table itself is 0
    with pytest.raises(SinkOffsetConflict, match=r"t\[1\] up to offset 0"):  # of the same topic
        write(one, batch("t", 1, 0, [0], topic_id=ANOTHER))


@pytest.mark.fast
@pytest.mark.parametrize("late_id", [ONE, ANOTHER])
def test_of_two_that_tell_a_table_of_a_topic_the_second_looks_again(
    late_id: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, late = opened(DeltaSink, tmp_path), opened(DeltaSink, tmp_path)
    write(one, batch("other", 0, 0, [0]))
    meanwhile, append = [batch("t", 0, 0, [0], topic_id=ONE)], DeltaSink._append

    def after_another(self: DeltaSink, table: DeltaTable, what: FeedBatch) -> None:
        if self is late and meanwhile:
            write(one, meanwhile.pop())
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


@pytest.mark.fast
@simulated(seeds=range(2), limit=600)
async def test_a_batch_has_the_id_of_the_topic_that_was_read() -> None:
    """Also where that is another one than when the partition was taken up."""
    async with world() as cluster:
        sink = Names()
        async with fed_by_fakes(cluster, sink) as one:
            await one.caught_up()
            made = cluster.recreate_topic("t")
            cluster.append("t", 0, 10)
            await one.caught_up()
        assert sink.ends == {AT: 10}
        assert set(sink.ids) == {made}


@pytest.mark.fast
@pytest.mark.parametrize("told", ["", f" of {ONE.hex}"])
@simulated(seeds=range(2), limit=600)
async def test_a_batch_that_is_made_again_has_the_name_that_it_had(told: str) -> None:
    """Whatever was in use then: it may be in the table by that name."""
    async with world(records=30) as cluster:
        sink = Names(remembers=False)
        async with fed_by_fakes(cluster, sink, max_records=1000) as one:
            promise = Offset(0, metadata=f"asyncconsumer batch until 7{told}")
            await one.caught_up()
            await one._consumer.commit({AT: promise})
        sink.names.clear()
        sink.ends.clear()
        async with fed_by_fakes(cluster, sink, max_records=1000) as one:
            await one.caught_up()
        first, rest = sink.names
        assert first == ("asyncconsumer:t:0" + (":AAAAEAAAAAAAAAAAAAAAAA" if told else ""), 7)
        assert rest[0] not in (first[0], "asyncconsumer:t:0")


@pytest.mark.fast
@simulated(seeds=range(2), limit=600)
async def test_a_promise_has_the_id() -> None:
    async with world(records=5) as cluster:
        sink = Names(remembers=False)
        sink.dies = True
        with pytest.raises(SinkFailed, match="dies"):
            async with fed_by_fakes(cluster, sink, retries=0) as one:
                await one.run()
        sink.dies = False
        async with fed_by_fakes(cluster, sink) as one:
            await one.caught_up()
        assert sink.names[0] == sink.names[1]
        assert sink.ids[0] == sink.ids[1] is not None


async def test_delta_is_told_of_another_name_when_a_topic_is_made_anew(kafka: KafkaHandle) -> None:
    """Its versions begin again, and Delta leaves out what is not above the last one."""
    topic, group = await kafka.topic(), kafka.group()
    written = list[FeedBatch]()

    def write(_: object, batch: FeedBatch) -> None:
        written.append(batch)

    for count in (20, 10):
        await send(kafka, topic, range(count))
        async with feeder(kafka, topic, group, write=write) as one:
            await one.caught_up()
        await kafka.admin.delete_topic(topic)
        await kafka.admin.create_topic(topic)
    first, second = written
    assert (first.txn_version, second.txn_version) == (20, 10)
    assert first.txn_app_id != second.txn_app_id


@of_both
async def test_nothing_is_fed_of_a_topic_that_was_made_anew_meanwhile(
    kind: Any, kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group, folder = await kafka.topic(), kafka.group(), str(tmp_path / "sink")
    await send(kafka, topic, range(20))
    async with feeder(kafka, topic, group, kind(folder)) as one:
        await one.caught_up()
    await kafka.admin.delete_topic(topic)
    await kafka.admin.create_topic(topic)
    await send(kafka, topic, range(100, 150))
    with pytest.raises(SinkOffsetConflict, match="another topic of that name"):
        async with feeder(kafka, topic, group, kind(folder)) as one:
            await one.run()
    sink = kind(folder)
    sink.open()
    place = TopicPartition(topic, 0)
    assert sink.load([place]) == {place: 20}
